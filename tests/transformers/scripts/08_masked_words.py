# What does BERT think goes here?
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizer, TFBertForMaskedLM

tokenizer = BertTokenizer.from_pretrained(sys.argv[1])
model = TFBertForMaskedLM.from_pretrained(sys.argv[1])
results = {}

inputs = tokenizer("The capital of France is [MASK].", return_tensors="tf")
logits = model(**inputs).logits

# retrieve index of [MASK]
mask_token_index = tf.where((inputs.input_ids == tokenizer.mask_token_id)[0])
selected_logits = tf.gather_nd(logits[0], indices=mask_token_index)
predicted_token_id = tf.math.argmax(selected_logits, axis=-1)
results["word"] = tokenizer.decode(predicted_token_id)

labels = tokenizer("The capital of France is Paris.", return_tensors="tf")["input_ids"]
# mask labels of non-[MASK] tokens
labels = tf.where(inputs.input_ids == tokenizer.mask_token_id, labels, -100)
outputs = model(**inputs, labels=labels)
results["loss"] = float(outputs.loss)


def fill(text, top_k=5):
    text = text.replace("<mask>", tokenizer.mask_token)
    input_ids = tokenizer.encode(text, add_special_tokens=True)
    index = input_ids.index(tokenizer.mask_token_id)
    predictions = model(tf.constant(input_ids)[None, :])[0]  # Batch size 1
    probs = tf.nn.softmax(predictions[0, index])
    values, indices = tf.math.top_k(probs, k=top_k)
    tokens = tokenizer.convert_ids_to_tokens(indices.numpy().tolist())
    return [[token, float(value)] for token, value in zip(tokens, values)]


results["fill"] = [fill("I would like a <mask> of coffee."), fill("She <mask> the piano every day")]


def pseudo_log_likelihood(sentence):
    """Masks one token after the other and adds up what each was worth."""
    tensor_input = tokenizer(sentence, return_tensors="np")["input_ids"]
    length = tensor_input.shape[-1]
    repeated = np.repeat(tensor_input, length - 2, axis=0)
    rows = np.arange(length - 2)
    targets = repeated[rows, rows + 1].copy()
    repeated[rows, rows + 1] = tokenizer.mask_token_id
    log_probs = tf.nn.log_softmax(model.predict(repeated)["logits"], axis=-1).numpy()
    return float(log_probs[rows, rows + 1, targets].mean())


sentences = ["the dog sat on the sofa", "sofa the on sat dog the", "unbelievable!"]
results["scores"] = [pseudo_log_likelihood(s) for s in sentences]
results["tokens"] = [tokenizer.tokenize(s) for s in sentences]
with open(sys.argv[2], "w") as f:
    json.dump(results, f)
