# Fine-tuning with datasets, dynamic padding and prepare_tf_dataset
import json
import sys

import numpy as np
import tensorflow as tf
from datasets import Dataset
from transformers import AutoTokenizer, DataCollatorWithPadding, set_seed
from transformers import TFAutoModelForSequenceClassification

set_seed(42)
checkpoint = sys.argv[1]
raw = {
    "train": Dataset.from_dict({
        "text": ["The bank will close ten offices", "France won the match in the last minute",
                 "Voters want a new government", "A small planet far from the sun",
                 "Car prices fell", "The coach is angry with his players after the game",
                 "The king and the queen will visit Germany", "How plants talk to each other"],
        "label": [2, 1, 0, 3, 2, 1, 0, 3],
    }),
    "validation": Dataset.from_dict({
        "text": ["The market is weak", "She ran the race of her life", "A machine that can speak"],
        "label": [2, 1, 3],
    }),
}

tokenizer = AutoTokenizer.from_pretrained(checkpoint)

def tokenize_function(example):
    return tokenizer(example["text"], truncation=True)

tokenized = {split: ds.map(tokenize_function, batched=True) for split, ds in raw.items()}
data_collator = DataCollatorWithPadding(tokenizer=tokenizer, return_tensors="tf")

model = TFAutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=4)
tf_train_set = model.prepare_tf_dataset(tokenized["train"], shuffle=False, batch_size=4,
                                        collate_fn=data_collator)
tf_validation_set = model.prepare_tf_dataset(tokenized["validation"], shuffle=False, batch_size=2,
                                             tokenizer=tokenizer, drop_remainder=False)

num_epochs = 2
num_train_steps = len(tf_train_set) * num_epochs
lr_scheduler = tf.keras.optimizers.schedules.PolynomialDecay(
    initial_learning_rate=5e-5, end_learning_rate=0.0, decay_steps=num_train_steps)
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=lr_scheduler), metrics=["accuracy"])
history = model.fit(tf_train_set, validation_data=tf_validation_set, epochs=num_epochs)

preds = model.predict(tf_validation_set)["logits"]
features, labels = next(iter(tf_train_set))
# the older way
samples = [{k: v for k, v in tokenized["train"][i].items() if k not in ("text", "label")}
           for i in range(2)]
batch = data_collator(samples)
json.dump({
    "columns": sorted(features), "shape": list(features["input_ids"].shape),
    "labels": labels.numpy().tolist(), "steps": num_train_steps,
    "batch": batch["input_ids"].numpy().tolist(), "mask": batch["attention_mask"].numpy().tolist(),
    "history": {k: np.array(v).tolist() for k, v in history.history.items()},
    "preds": preds.tolist(), "classes": np.argmax(preds, axis=1).tolist(),
}, open(sys.argv[2], "w"))
