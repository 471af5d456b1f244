# Contextual word vectors from the hidden layers, and what each word attends to
import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizerFast, TFBertModel

tokenizer = BertTokenizerFast.from_pretrained(sys.argv[1])
model = TFBertModel.from_pretrained(sys.argv[1], output_hidden_states=True, output_attentions=True)


def get_hidden_states(encoded, token_ids_word, layers):
    states = model(encoded).hidden_states
    output = tf.reduce_sum(tf.stack([states[i] for i in layers]), axis=0)[0]
    word_tokens_output = tf.gather(output, token_ids_word)
    return tf.reduce_mean(word_tokens_output, axis=0)


def get_word_vector(sent, idx, layers):
    encoded = tokenizer.encode_plus(sent, return_tensors="tf")
    # get all token idxs that belong to the word of interest
    token_ids_word = np.where(np.array(encoded.word_ids()) == idx)[0]
    return get_hidden_states(encoded, token_ids_word, layers).numpy()


def cosine(a, b):
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


money = "she put the money in the bank"
river = "he sat on the bank of the river"
vectors = [get_word_vector(s, s.split().index("bank"), [-2, -1]) for s in (money, river)]
long_word = get_word_vector("an unbelievable story", 1, layers=[-1])

inputs = tokenizer(money, river, return_tensors="tf")
sequence_output, pooled_output, hidden_states, attentions = model(inputs).to_tuple()
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
attention = tf.concat(attentions, axis=0)  # layers, heads, from, to
mean_attention = tf.reduce_mean(attention, axis=[0, 1]).numpy()
most = [[t, tokens[i]] for t, i in zip(tokens, mean_attention.argmax(axis=-1))]
# per call, instead of from_pretrained
plain = TFBertModel.from_pretrained(sys.argv[1])
off = plain(inputs)
on = plain(inputs["input_ids"], token_type_ids=inputs["token_type_ids"], output_hidden_states=True)
words = tf.gather(plain.get_input_embeddings().weight, inputs["input_ids"])
embedded = plain({"inputs_embeds": words, "token_type_ids": inputs["token_type_ids"]},
                 return_dict=False)
with open(sys.argv[2], "w") as f:
    json.dump({
        "similarity": cosine(*vectors), "vector": vectors[0].tolist(), "long": long_word.tolist(),
        "counts": [len(hidden_states), len(attentions), len(off), len(on), len(embedded)],
        "shapes": [list(hidden_states[0].shape), list(attention.shape)],
        "none": off.hidden_states is None and off.attentions is None,
        "first_state": hidden_states[0][0, 1].numpy().tolist(),
        "embedded": embedded[0][0, 1].numpy().tolist(),
        "last_is_output": bool(tf.reduce_all(hidden_states[-1] == sequence_output)),
        "pooled": pooled_output[0].numpy().tolist(), "keys": list(on.keys()),
        "attention": attention[:, :, 7, :8].numpy().tolist(), "most": most,
    }, f)
