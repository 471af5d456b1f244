import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizer, TFBertForSequenceClassification

tokenizer = BertTokenizer.from_pretrained(sys.argv[1])
model = TFBertForSequenceClassification.from_pretrained(sys.argv[1])

sentences = ["I am so happy today", "this is terrible news", "we won the match!", "he is very ill",
             "what a lovely surprise", "i hate this noise", "thank you, dear friend", "so sad..."]
targets = np.array([1, 0, 1, 0, 1, 0, 1, 0])
encoded = tokenizer(sentences, padding="max_length", max_length=12, truncation=True,
                    return_tensors="np")
x = [encoded["input_ids"], encoded["attention_mask"]]
features = {"input_ids": x[0], "attention_mask": x[1]}


def count_trainable():
    return int(sum(tf.keras.backend.count_params(w) for w in model.trainable_weights))


def compile_and_fit(lr):
    optimizer = tf.keras.optimizers.Adam(learning_rate=lr)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    h = model.fit(features, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return [float(v) for v in h.history["loss"]]


results = {"all": count_trainable()}

# 1. the head alone
model.bert.trainable = False
results["head_only"] = count_trainable()
before = model.bert(encoded["input_ids"], encoded["attention_mask"])[1].numpy()
results["loss_head_only"] = compile_and_fit(1e-2)
after = model.bert(encoded["input_ids"], encoded["attention_mask"])[1].numpy()
results["bert_unchanged"] = bool((before == after).all())
results["classifier"] = model.classifier.get_weights()[0].tolist()

# 2. the embeddings and the lower layers stay frozen
model.bert.trainable = True
model.bert.embeddings.trainable = False
for layer in model.bert.encoder.layer[:1]:
    layer.trainable = False
results["upper_layers"] = count_trainable()
words = model.bert.embeddings.get_weights()
lower = model.bert.encoder.layer[0].get_weights()
results["loss_upper_layers"] = compile_and_fit(1e-4)
results["embeddings_unchanged"] = all(
    np.array_equal(a, b) for a, b in zip(words, model.bert.embeddings.get_weights()))
results["lower_unchanged"] = all(
    np.array_equal(a, b) for a, b in zip(lower, model.bert.encoder.layer[0].get_weights()))
results["logits"] = model(x)[0].numpy().tolist()

with open(sys.argv[2], "w") as f:
    json.dump(results, f)
