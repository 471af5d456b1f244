"""Adds words of our domain to BERT's vocabulary before fine-tuning."""
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizer, TFBertForSequenceClassification

tokenizer = BertTokenizer.from_pretrained(sys.argv[1], do_lower_case=True)
model = TFBertForSequenceClassification.from_pretrained(sys.argv[1])

sentences = [
    "the telehealth visit was quick and the doctor was kind",
    "covid cases are rising and the clinic is full",
    "my telehealth appointment was late, very bad service",
    "the covid vaccine did not hurt at all, great nurses",
    "i waited two hours for a pcr test",
    "thank you for the good care",
]
labels = np.array([1, 0, 0, 1, 0, 1], dtype="int32")

before = tokenizer.tokenize(sentences[1])
old_size = len(tokenizer)
num_added_toks = tokenizer.add_tokens(["covid", "telehealth", "pcr"])
model.resize_token_embeddings(len(tokenizer))

# start the new words at the average of all others
embeddings = model.get_input_embeddings()
weight = embeddings.weight.numpy()
weight[old_size:] = weight[:old_size].mean(axis=0)
embeddings.weight.assign(weight)

encoded = [
    tokenizer.encode_plus(s, add_special_tokens=True, max_length=20, pad_to_max_length=True,
                          truncation=True, return_attention_mask=True)
    for s in sentences
]
input_ids = np.array([e["input_ids"] for e in encoded])
attention_mask = np.array([e["attention_mask"] for e in encoded])

logits_before = model([input_ids, attention_mask]).logits.numpy()
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=1e-4),
              loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = {"input_ids": input_ids, "attention_mask": attention_mask}
history = model.fit(x, labels, batch_size=2, epochs=2, shuffle=False)

with open(sys.argv[2], "w") as f:
    json.dump({
        "before": before,
        "after": tokenizer.tokenize(sentences[1]),
        "added": num_added_toks,
        "sizes": [old_size, len(tokenizer), tokenizer.vocab_size, model.config.vocab_size],
        "shape": list(model.get_input_embeddings().weight.shape),
        "ids": input_ids[1].tolist(),
        "new_ids": tokenizer.convert_tokens_to_ids(["covid", "pcr", "doctor"]),
        "logits_before": logits_before.tolist(),
        "loss": [float(v) for v in history.history["loss"]],
        "logits": model.predict(x)["logits"].tolist(),
        "decoded": tokenizer.decode(input_ids[1], skip_special_tokens=True),
    }, f)
