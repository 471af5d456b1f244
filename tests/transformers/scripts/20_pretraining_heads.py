# Does sentence B follow sentence A? And further pre-training on our own text.
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizer, TFBertForNextSentencePrediction, TFBertForPreTraining

tokenizer = BertTokenizer.from_pretrained(sys.argv[1])

# next sentence prediction
nsp = TFBertForNextSentencePrediction.from_pretrained(sys.argv[1])
prompt = "In Italy, pizza served in formal settings is presented unsliced."
candidates = ["The sky is blue due to the short wave length of blue light.",
              "It is eaten with a knife and a fork."]
next_sentence = []
for candidate in candidates:
    encoding = tokenizer(prompt, candidate, return_tensors="tf")
    logits = nsp(encoding["input_ids"], token_type_ids=encoding["token_type_ids"])[0]
    next_sentence.append(tf.nn.softmax(logits, axis=-1).numpy()[0].tolist())

story = [
    "The old man lived in a small house near the sea.",
    "Every morning he took his boat and went out to fish.",
    "One day the wind was strong and the boat did not come back.",
    "The people of the village looked for him all night.",
    "In the morning they found him on a small island.",
]
firsts, seconds, labels = [], [], []
for i in range(4):
    firsts += [story[i], story[i]]
    seconds += [story[i + 1], story[(i + 3) % 5]]
    labels += [0, 1]
inputs = dict(tokenizer(firsts, seconds, max_length=32, truncation=True, padding="max_length",
                        return_tensors="np"))
inputs["next_sentence_label"] = np.array(labels)
inputs["labels"] = inputs["input_ids"].copy()

rand = np.random.RandomState(0).uniform(size=inputs["input_ids"].shape)
special = np.isin(inputs["input_ids"], tokenizer.all_special_ids)
mask_arr = (rand < 0.15) & ~special
inputs["input_ids"][mask_arr] = tokenizer.mask_token_id
inputs["labels"][~mask_arr] = -100

model = TFBertForPreTraining.from_pretrained(sys.argv[1])
outputs = model({k: tf.constant(v) for k, v in inputs.items()})
prediction_logits, seq_relationship_logits = outputs.prediction_logits, outputs[2]

dataset = tf.data.Dataset.from_tensor_slices(inputs).batch(4)
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=5e-5))
history = model.fit(dataset, epochs=2)
after = model({k: v for k, v in inputs.items() if "label" not in k}, training=False)
json.dump({
    "next_sentence": next_sentence,
    "masked": int(mask_arr.sum()), "loss": np.array(outputs.loss).tolist(),
    "predicted": tokenizer.convert_ids_to_tokens(prediction_logits.numpy()[mask_arr].argmax(-1)),
    "shape": list(prediction_logits.shape), "relationship": seq_relationship_logits.numpy().tolist(),
    "history": [float(v) for v in history.history["loss"]],
    "after": after[0].numpy()[mask_arr][:, 500:505].tolist(), "after_nsp": after[1].numpy().tolist(),
}, open(sys.argv[2], "w"))
