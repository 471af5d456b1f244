# Fine-tune BERT on movie reviews with Keras
import json
import sys

import tensorflow as tf
from transformers import BertTokenizer, TFBertForSequenceClassification

MODEL_NAME = sys.argv[1]

train_texts = [
    "a wonderful film, full of warmth and humor",
    "the plot was dull and the acting even worse",
    "i loved every minute of this movie",
    "what a waste of time, i want my money back",
    "brilliant performances from the whole cast!",
    "boring, predictable and far too long",
    "one of the best films of the year",
    "the script is a mess and nobody seems to care",
]
train_labels = [1, 0, 1, 0, 1, 0, 1, 0]
val_texts = ["a great story, beautifully told", "i fell asleep after ten minutes"]
val_labels = [1, 0]

tokenizer = BertTokenizer.from_pretrained(MODEL_NAME)
model = TFBertForSequenceClassification.from_pretrained(MODEL_NAME, num_labels=2)

train_encodings = tokenizer(train_texts, truncation=True, padding=True)
val_encodings = tokenizer(val_texts, truncation=True, padding=True)

train_dataset = tf.data.Dataset.from_tensor_slices((dict(train_encodings), train_labels))
val_dataset = tf.data.Dataset.from_tensor_slices((dict(val_encodings), val_labels))

optimizer = tf.keras.optimizers.Adam(learning_rate=5e-5, epsilon=1e-08, clipnorm=1.0)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
metric = tf.keras.metrics.SparseCategoricalAccuracy("accuracy")
model.compile(optimizer=optimizer, loss=loss, metrics=[metric])
history = model.fit(train_dataset.batch(4), epochs=2, validation_data=val_dataset.batch(4))

test_sentence = "This is a really good movie. I loved it and will watch again"
predict_input = tokenizer.encode(test_sentence, truncation=True, padding=True, return_tensors="tf")
tf_output = model.predict(predict_input)[0]
tf_prediction = tf.nn.softmax(tf_output, axis=1)
labels = ["Negative", "Positive"]
label = tf.argmax(tf_prediction, axis=1).numpy()

results = {
    "history": {k: [float(x) for x in v] for k, v in history.history.items()},
    "input_ids": predict_input.numpy().tolist(),
    "prediction": tf_prediction.numpy().tolist(),
    "label": labels[label[0]],
    "val_logits": model.predict(val_dataset.batch(4)).logits.tolist(),
}
with open(sys.argv[2], "w") as f:
    json.dump(results, f)
