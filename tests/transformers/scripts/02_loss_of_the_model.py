import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizerFast, TFBertForSequenceClassification

checkpoint, output_file = sys.argv[1:]

texts = [
    "The central bank raised interest rates again on Tuesday",
    "The striker scored twice in the second half",
    "Scientists found water under the surface of the moon",
    "The president will visit three countries in Europe",
    "Shares of the company fell after a weak report",
    "The team lost the final by one point",
    "A new vaccine was tested on mice",
    "Voters go to the polls on Sunday",
    "Oil prices rose for the third day",
    "She won the race in a record time",
    "The telescope sent its first pictures of a distant planet",
    "The two leaders signed a peace agreement",
]
labels = np.array([2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3, 0])

tokenizer = BertTokenizerFast.from_pretrained(checkpoint)
tokenized_data = tokenizer(texts, return_tensors="np", padding=True)
# Tokenizer returns a BatchEncoding, but we convert that to a dict for Keras
tokenized_data = dict(tokenized_data)

model = TFBertForSequenceClassification.from_pretrained(checkpoint)
# Lower learning rates are often better for fine-tuning transformers
model.compile(optimizer=tf.keras.optimizers.Adam(3e-5))  # No loss argument!
first = model.fit(tokenized_data, labels, batch_size=4, epochs=1, shuffle=False)

# the same with the labels as part of the input dict
features = dict(tokenizer(texts, padding="max_length", truncation=True, max_length=16))
features["labels"] = labels
dataset = tf.data.Dataset.from_tensor_slices(features).batch(4)
second = model.fit(dataset, epochs=2, verbose=2)
eval_loss = model.evaluate(dataset)
predictions = model.predict(dataset)
predicted = np.argmax(predictions["logits"], axis=-1)

outputs = model(**tokenizer(texts[:3], return_tensors="tf", padding=True), labels=labels[:3])
with open(output_file, "w") as f:
    json.dump(
        {
            "first": [float(x) for x in first.history["loss"]],
            "second": [float(x) for x in second.history["loss"]],
            "eval_loss": float(eval_loss),
            "logits": predictions.logits.tolist(),
            "classes": [model.config.id2label[i] for i in predicted],
            "loss": np.array(outputs.loss).tolist(),
            "num_labels": model.config.num_labels,
        },
        f,
    )
