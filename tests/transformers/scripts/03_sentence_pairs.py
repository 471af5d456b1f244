import json
import sys

import numpy as np
import tensorflow as tf
from transformers import AutoConfig, AutoTokenizer, TFAutoModelForSequenceClassification

model_path = sys.argv[1]
MAX_LEN = 24

pairs = [
    ("The cat sat on the mat.", "A cat was sitting on a mat.", 1),
    ("He bought a new car last week.", "She sold her house last year.", 0),
    ("The meeting was moved to Friday.", "They moved the meeting to Friday.", 1),
    ("It will rain tomorrow in the north.", "The museum opens at nine.", 0),
    ("The company said profits rose by ten percent in the last quarter of the year, more than "
     "analysts had expected.", "Profits rose ten percent, the company said.", 1),
    ("The child is playing in the garden.", "A man is reading a book.", 0),
    ("Police arrested two men on Monday.", "Two men were arrested by police on Monday.", 1),
    ("The train was late again.", "I like my coffee with milk.", 0),
]

config = AutoConfig.from_pretrained(
    model_path,
    num_labels=2,
    id2label={0: "not_equivalent", 1: "equivalent"},
    label2id={"not_equivalent": 0, "equivalent": 1},
)
tokenizer = AutoTokenizer.from_pretrained(model_path, use_fast=True)
model = TFAutoModelForSequenceClassification.from_pretrained(model_path, config=config)

sentence1 = [p[0] for p in pairs]
sentence2 = [p[1] for p in pairs]
y = tf.convert_to_tensor([p[2] for p in pairs])
x = tokenizer(sentence1, sentence2, padding="max_length", truncation=True, max_length=MAX_LEN,
              return_tensors="tf")

ds = tf.data.Dataset.from_tensor_slices((dict(x), y)).batch(4, drop_remainder=True)
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=2e-5),
              loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              metrics=["accuracy"])
hist = model.fit(ds, epochs=3, verbose=0)

new = [("The dog is in the garden.", "There is a dog in the garden."),
       ("The dog is in the garden.", "Oil prices fell on Monday.")]
enc = tokenizer.batch_encode_plus(new, padding=True, return_tensors="tf")
probs = tf.nn.softmax(model(enc)[0], axis=-1).numpy()
for (a, b), p in zip(new, probs):
    print(f"{a} / {b}: {round(p[1] * 100)}% paraphrase")
result = {
    "loss": np.array(hist.history["loss"]).tolist(),
    "accuracy": np.array(hist.history["accuracy"]).tolist(),
    "probabilities": probs.tolist(),
    "labels": [model.config.id2label[int(i)] for i in probs.argmax(-1)],
    "input_ids": x["input_ids"][4].numpy().tolist(),
    "token_type_ids": x["token_type_ids"][4].numpy().tolist(),
    "logits": model.predict(dict(x), batch_size=4)[0].tolist(),
    "first_tokens": tokenizer.convert_ids_to_tokens(enc["input_ids"][0]),
}
json.dump(result, open(sys.argv[2], "w"))
