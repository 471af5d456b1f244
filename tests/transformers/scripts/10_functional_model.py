import json
import sys

import numpy as np
import tensorflow as tf
from transformers import BertTokenizer, TFBertModel

BERT, max_len = sys.argv[1], 24
texts = [
    "Forest fire near the lake, people told to stay inside",
    "I love fruit",
    "Heavy rain and wind broke the bridge",
    "What a beautiful summer day",
    "Police said three people were killed in the fire",
    "no way... I can't eat that!!",
]
labels = np.array([1, 0, 1, 0, 1, 0])

def bert_encode(texts, tokenizer, max_len=512):
    enc = tokenizer.batch_encode_plus(texts, add_special_tokens=True, max_length=max_len,
                                      padding="max_length", truncation=True)
    return [np.array(enc[k]) for k in ("input_ids", "attention_mask", "token_type_ids")]

def build_model(bert_layer, max_len=512):
    input_word_ids = tf.keras.layers.Input(shape=(max_len,), dtype=tf.int32, name="input_word_ids")
    input_mask = tf.keras.layers.Input(shape=(max_len,), dtype=tf.int32, name="input_mask")
    segment_ids = tf.keras.layers.Input(shape=(max_len,), dtype=tf.int32, name="segment_ids")

    sequence_output = bert_layer([input_word_ids, input_mask, segment_ids])[0]
    clf_output = sequence_output[:, 0, :]
    avg_pool = tf.keras.layers.GlobalAveragePooling1D()(sequence_output)
    x = tf.keras.layers.concatenate([clf_output, avg_pool])
    out = tf.keras.layers.Dense(1, activation="sigmoid", name="out")(x)

    model = tf.keras.models.Model(inputs=[input_word_ids, input_mask, segment_ids], outputs=out)
    model.compile(tf.keras.optimizers.Adam(learning_rate=1e-4), loss="binary_crossentropy",
                  metrics=["accuracy"])
    return model

tokenizer = BertTokenizer.from_pretrained(BERT)
train_input = bert_encode(texts, tokenizer, max_len=max_len)
model = build_model(TFBertModel.from_pretrained(BERT), max_len=max_len)
# same start every time
rng = np.random.RandomState(42)
model.get_layer("out").set_weights([rng.normal(0, 0.2, size=(64, 1)), np.zeros(1)])
model.summary()

before = model.predict(train_input)
train_history = model.fit(train_input, labels, epochs=3, batch_size=2, shuffle=False)
test_pred = model.predict(bert_encode(["The river is over the road", "So cute!"], tokenizer, max_len))

with open(sys.argv[2], "w") as f:
    json.dump({
        "params": int(model.count_params()),
        "before": before.ravel().tolist(),
        "loss": [float(v) for v in train_history.history["loss"]],
        "accuracy": [float(v) for v in train_history.history["accuracy"]],
        "after": model.predict(train_input).ravel().tolist(),
        "test": test_pred.round(6).tolist(),
    }, f)
