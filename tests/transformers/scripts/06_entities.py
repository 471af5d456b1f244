# Token classification (NER), with the labels aligned by word_ids()
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizerFast, TFBertForTokenClassification
from transformers import DataCollatorForTokenClassification

model_checkpoint = sys.argv[1]
words = [["John", "Smith", "works", "at", "Google", "in", "New", "York", "."],
         ["Angela", "Merkel", "visited", "Paris", "on", "Monday"],
         ["The", "British", "Museum", "is", "in", "London", "."]]
tags = [["B-PER", "I-PER", "O", "O", "B-ORG", "O", "B-LOC", "I-LOC", "O"],
        ["B-PER", "I-PER", "O", "B-LOC", "O", "O"],
        ["O", "B-ORG", "I-ORG", "O", "O", "B-LOC", "O"]]

tokenizer = BertTokenizerFast.from_pretrained(model_checkpoint)
model = TFBertForTokenClassification.from_pretrained(model_checkpoint)
label2id = model.config.label2id

def tokenize_and_align_labels(tokens, ner_tags):
    tokenized_inputs = tokenizer(tokens, truncation=True, is_split_into_words=True)
    labels = []
    for i, label in enumerate(ner_tags):
        previous_word_idx = None
        label_ids = []
        for word_idx in tokenized_inputs.word_ids(batch_index=i):
            if word_idx is None or word_idx == previous_word_idx:
                label_ids.append(-100)  # special tokens, and all but the first token of a word
            else:
                label_ids.append(label2id[label[word_idx]])
            previous_word_idx = word_idx
        labels.append(label_ids)
    tokenized_inputs["labels"] = labels
    return tokenized_inputs

tokenized = tokenize_and_align_labels(words, tags)
features = [{k: tokenized[k][i] for k in tokenized} for i in range(len(words))]
data_collator = DataCollatorForTokenClassification(tokenizer=tokenizer, return_tensors="tf")
batch = data_collator(features)
train_set = tf.data.Dataset.from_tensor_slices(dict(batch)).batch(2)

model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=1e-3))
history = model.fit(train_set, epochs=3)

# predictions, one tag per word
example = "Mary Jones moved from Berlin to the University of Oxford".split()
inputs = tokenizer(example, is_split_into_words=True, return_tensors="tf")
logits = model(inputs).logits
ids = tf.argmax(logits, axis=-1)[0].numpy()
first = [inputs.word_ids().index(w) for w in range(len(example))]
json.dump({
    "tokens": inputs.tokens(), "word_ids": inputs.word_ids(),
    "labels": batch["labels"].numpy().tolist(),
    "train_logits": model.predict(train_set)["logits"][:, :3].tolist(),
    "loss": np.array(history.history["loss"]).tolist(),
    "logits": logits.numpy()[0, first].tolist(),
    "entities": [[w, model.config.id2label[ids[i]]] for w, i in zip(example, first)],
}, open(sys.argv[2], "w"))
