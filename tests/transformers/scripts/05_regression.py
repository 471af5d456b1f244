# Semantic textual similarity (STS-B style): one number for two sentences
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizerFast, TFBertForSequenceClassification, create_optimizer

MODEL = sys.argv[1]
batch_size = 4
num_epochs = 3

data = [
    (5.0, "A plane is taking off.", "An air plane is taking off."),
    (3.8, "A man is playing a large flute.", "A man is playing a flute."),
    (3.8, "A man is spreading cheese on a pizza.", "A man is putting cheese on a pizza."),
    (2.6, "Three men are playing chess.", "Two men are playing chess."),
    (4.25, "A man is playing the guitar.", "A man is playing an instrument."),
    (0.5, "A woman is dancing.", "A man is talking."),
    (1.0, "A dog runs in the snow.", "A cat sleeps on the sofa."),
    (4.6, "The boy is eating an apple.", "A boy eats an apple."),
]
scores = np.array([d[0] / 5.0 for d in data], dtype=np.float32)

tokenizer = BertTokenizerFast.from_pretrained(MODEL)
enc = tokenizer(
    [d[1] for d in data],
    [d[2] for d in data],
    padding=True,
    truncation=True,
    max_length=32,
    return_tensors="np",
)
train_set = tf.data.Dataset.from_tensor_slices({**enc, "labels": scores}).batch(batch_size)

model = TFBertForSequenceClassification.from_pretrained(MODEL, num_labels=1)

batches_per_epoch = len(data) // batch_size
total_train_steps = int(batches_per_epoch * num_epochs)
optimizer, schedule = create_optimizer(
    init_lr=5e-4, num_warmup_steps=2, num_train_steps=total_train_steps, weight_decay_rate=0.01
)
model.compile(optimizer=optimizer)
before = model.predict(train_set)["logits"].squeeze()
history = model.fit(train_set, epochs=num_epochs)
after = model.predict(train_set)["logits"].squeeze()

pearson = np.corrcoef(after, scores)[0, 1]
print(f"pearson {pearson:.4f}")
json.dump(
    {
        "num_labels": model.config.num_labels,
        "learning_rates": [float(schedule(step)) for step in range(total_train_steps)],
        "before": before.tolist(),
        "loss": [float(x) for x in history.history["loss"]],
        "after": after.tolist(),
        "pearson": float(pearson),
    },
    open(sys.argv[2], "w"),
)
