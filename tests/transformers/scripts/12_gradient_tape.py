# Multi-label classification of restaurant reviews, with a training loop of our own
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizerFast, TFBertForSequenceClassification

path, out = sys.argv[1], sys.argv[2]
CLASSES = ["food", "service", "price", "place", "staff"]
train_data = [
    ("The soup was cold and the waiter was slow", [1, 1, 0, 0, 1]),
    ("Great food for a low price", [1, 0, 1, 0, 0]),
    ("Beautiful garden, friendly people", [0, 0, 0, 1, 1]),
    ("We waited an hour for our order", [0, 1, 0, 0, 0]),
    ("Way too expensive!", [0, 0, 1, 0, 0]),
    ("The table was not clean and the music too loud", [0, 0, 0, 1, 0]),
    ("Best fish in town and a quick kitchen", [1, 1, 0, 0, 0]),
    ("My wife loved the view", [0, 0, 0, 1, 0]),
]
test_texts = ["The meat was dry and they brought the wrong drinks", "A nice place by the river"]

tokenizer = BertTokenizerFast.from_pretrained(path)
model = TFBertForSequenceClassification.from_pretrained(
    path, num_labels=len(CLASSES), id2label=dict(enumerate(CLASSES)),
    label2id={c: i for i, c in enumerate(CLASSES)},
)
optimizer = tf.keras.optimizers.Adam(learning_rate=5e-5)
loss_fn = tf.keras.losses.BinaryCrossentropy(from_logits=True)
train_loss = tf.keras.metrics.Mean()


@tf.function
def train_step(input_ids, attention_mask, labels):
    with tf.GradientTape() as tape:
        outputs = model(input_ids, attention_mask=attention_mask, training=True)
        loss = loss_fn(labels, outputs.logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss(loss)


enc = tokenizer([t for t, _ in train_data], padding=True, truncation=True, max_length=32)
labels = np.array([y for _, y in train_data], dtype=np.float32)
dataset = tf.data.Dataset.from_tensor_slices((enc["input_ids"], enc["attention_mask"], labels))
losses = []
for epoch in range(3):
    train_loss.reset_state()
    for batch in dataset.batch(4):
        train_step(*batch)
    losses.append(float(train_loss.result()))
    print(f"epoch {epoch + 1}: {losses[-1]:.4f}")

inputs = tokenizer(test_texts, padding=True, return_tensors="tf")
probabilities = tf.sigmoid(model(inputs, training=False)[0]).numpy()
found = [[model.config.id2label[i] for i in np.flatnonzero(p > 0.5)] for p in probabilities]
with open(out, "w") as f:
    json.dump({"losses": losses, "probabilities": probabilities.tolist(), "found": found,
               "iterations": int(optimizer.iterations), "label2id": model.config.label2id}, f)
