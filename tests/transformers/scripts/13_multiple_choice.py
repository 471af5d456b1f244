import json
import sys

import numpy as np
import tensorflow as tf
from transformers import AutoTokenizer, TFAutoModelForMultipleChoice, TFBertForMultipleChoice

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = TFBertForMultipleChoice.from_pretrained(sys.argv[1])

# the example of the documentation
prompt = "In Italy, pizza served in formal settings, such as at a restaurant, is presented unsliced."
choice0 = "It is eaten with a fork and a knife."
choice1 = "It is eaten while held in the hand."
encoding = tokenizer([prompt, prompt], [choice0, choice1], return_tensors="tf", padding=True)
inputs = {k: tf.expand_dims(v, 0) for k, v in encoding.items()}
outputs = model(inputs)  # batch size is 1
logits = outputs.logits

# SWAG-like training
ending_names = ["ending0", "ending1", "ending2", "ending3"]
rows = [
    ("The girl opened the door and", ["saw a black dog.", "ate the river.", "is a cold soup.",
                                      "flew to the moon."], 0),
    ("He put the letter into", ["the music.", "his bag.", "a loud noise.", "tomorrow."], 1),
    ("After dinner they", ["were a bridge.", "rose by two percent.", "went for a walk.",
                           "the the."], 2),
    ("The player scored and the crowd", ["slept.", "became a small stone.", "closed the book.",
                                         "began to sing."], 3),
]


def preprocess(rows):
    first_sentences = [[row[0]] * 4 for row in rows]
    second_sentences = [row[1] for row in rows]
    first_sentences = sum(first_sentences, [])
    second_sentences = sum(second_sentences, [])
    tokenized = tokenizer(first_sentences, second_sentences, truncation=True, max_length=24,
                          padding="max_length")
    return {k: [v[i : i + 4] for i in range(0, len(v), 4)] for k, v in tokenized.items()}


features = preprocess(rows)
labels = [row[2] for row in rows]
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(2)
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=5e-5))
history = model.fit(x=dataset, epochs=2)
predictions = tf.nn.softmax(model.predict(dataset).logits, axis=1).numpy()
accuracy = (np.argmax(predictions, axis=1) == np.array(labels)).mean()

again = TFAutoModelForMultipleChoice.from_pretrained(sys.argv[1])
with_loss = again({k: tf.constant(v) for k, v in features.items()}, labels=tf.constant(labels))
json.dump({
    "example": logits.numpy().tolist(), "loss": [float(x) for x in history.history["loss"]],
    "predictions": predictions.tolist(), "accuracy": float(accuracy),
    "losses": with_loss.loss.numpy().tolist(), "shape": np.array(features["input_ids"]).shape,
}, open(sys.argv[2], "w"))
