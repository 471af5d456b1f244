# BERT as a feature extractor: no fine-tuning, a linear model on top
import json
import sys

import numpy as np
import transformers as ppb
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity

tokenizer = ppb.AutoTokenizer.from_pretrained(sys.argv[1])
bert = ppb.TFAutoModel.from_pretrained(sys.argv[1])

train = [
    ("the soup was cold and the waiter was rude", 0),
    ("delicious food and friendly staff", 1),
    ("we waited an hour for a pizza", 0),
    ("a perfect evening, we will come back", 1),
    ("the worst meal i ever had", 0),
    ("great coffee and a beautiful view", 1),
    ("dirty tables, loud music", 0),
    ("the best breakfast in town", 1),
]
test = ["the meat was dry", "what a wonderful place", "Never again!!"]


def embed(texts, batch_size=3):
    means, pooled, first = [], [], []
    for i in range(0, len(texts), batch_size):
        encoded = tokenizer(texts[i : i + batch_size], padding=True, return_tensors="tf")
        output = bert(encoded)
        hidden = output.last_hidden_state.numpy()
        mask = encoded["attention_mask"].numpy()[:, :, None]
        means.append((hidden * mask).sum(axis=1) / mask.sum(axis=1))
        pooled.append(output.pooler_output.numpy())
        first.append(output[0][:, 0, :].numpy())
    return np.concatenate(means), np.concatenate(pooled), np.concatenate(first)


mean_train, pooled_train, cls_train = embed([text for text, _ in train])
mean_test, pooled_test, cls_test = embed(test)
y = [label for _, label in train]

predictions = {}
for name, x_train, x_test in [
    ("mean", mean_train, mean_test),
    ("pooled", pooled_train, pooled_test),
    ("cls", cls_train, cls_test),
]:
    lr_clf = LogisticRegression(max_iter=1000)
    lr_clf.fit(x_train, y)
    predictions[name] = lr_clf.predict(x_test).tolist()
    predictions[name + "_score"] = float(lr_clf.score(x_train, y))

json.dump({
    "predictions": predictions,
    "similarity": cosine_similarity(mean_test, mean_train).tolist(),
    "mean": mean_test.tolist(),
    "pooled": pooled_test.tolist(),
    "cls": cls_test.tolist(),
}, open(sys.argv[2], "w"))
