import json
import sys

import numpy as np
import tensorflow as tf
from transformers import AutoTokenizer, TFAutoModelForQuestionAnswering

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = TFAutoModelForQuestionAnswering.from_pretrained(sys.argv[1])

examples = [
    ("Where is the Eiffel Tower?", "The Eiffel Tower is in Paris, the capital of France.", "Paris"),
    ("Who wrote the letter?", "On Sunday my sister wrote a letter to her uncle.", "my sister"),
    ("When was the bridge built?", "The old stone bridge over the river near the village where my "
     "grandfather was born, a place that few people ever visit, was built in 1874.", "1874"),
]
questions, contexts, texts = zip(*examples)
starts = [c.index(a) for c, a in zip(contexts, texts)]

train = tokenizer(list(questions), list(contexts), truncation="only_second", max_length=40, stride=8,
                  return_overflowing_tokens=True, return_offsets_mapping=True, padding="max_length")
offset_mapping = train.pop("offset_mapping")
sample_map = train.pop("overflow_to_sample_mapping")
train["start_positions"], train["end_positions"] = [], []
for i, offsets in enumerate(offset_mapping):
    start_char = starts[sample_map[i]]
    end_char = start_char + len(texts[sample_map[i]])
    # keep the offsets of the context only
    offsets = [o if s == 1 else None for o, s in zip(offsets, train.sequence_ids(i))]
    start = [k for k, o in enumerate(offsets) if o and o[0] <= start_char]
    end = [k for k, o in enumerate(offsets) if o and o[1] >= end_char]
    inside = start and end  # otherwise the answer is (0, 0)
    train["start_positions"].append(start[-1] if inside else 0)
    train["end_positions"].append(end[0] if inside else 0)
    offset_mapping[i] = offsets

dataset = tf.data.Dataset.from_tensor_slices(dict(train)).batch(2)
model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=3e-4))
history = model.fit(dataset, epochs=3)

outputs = model.predict(dataset)
start_probs = tf.nn.softmax(outputs.start_logits, axis=-1).numpy()
end_probs = tf.nn.softmax(outputs.end_logits, axis=-1).numpy()
answers = []
for i, offsets in enumerate(offset_mapping):
    candidates = [
        (float(start_probs[i][s] * end_probs[i][e]), offsets[s][0], offsets[e][1])
        for s in np.argsort(start_probs[i])[-1:-11:-1]
        for e in np.argsort(end_probs[i])[-1:-11:-1]
        if offsets[s] and offsets[e] and s <= e < s + 10
    ]
    score, begin, end = max(candidates)
    answers.append([score, contexts[sample_map[i]][begin:end]])
enc = tokenizer.encode_plus(questions[0], contexts[0], return_tensors="tf")
start_scores, end_scores = [tf.nn.softmax(s) for s in model(enc, return_dict=False)]
json.dump({
    "positions": [train["start_positions"], train["end_positions"], sample_map],
    "offsets": offset_mapping[-1], "ids": train["input_ids"][-1],
    "loss": [float(v) for v in history.history["loss"]], "answers": answers,
    "start": start_scores.numpy().tolist(), "end": end_scores.numpy().tolist(),
    "span": tokenizer.decode(enc["input_ids"].numpy()[0, 7:10]),
    "char_to_token": enc.char_to_token(0, 4, 1),
}, open(sys.argv[2], "w"))
