# A custom head on BERT: the pooled output, a hidden layer, a classifier
import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers
from transformers import BertConfig, BertTokenizer, TFBertModel

config = BertConfig.from_pretrained(sys.argv[1])
config.output_hidden_states = False
tokenizer = BertTokenizer.from_pretrained(sys.argv[1])


class TextClassifier(tf.keras.Model):
    def __init__(self, bert, num_classes, units=16, **kwargs):
        super().__init__(**kwargs)
        self.bert = bert
        self.hidden = layers.Dense(units, activation="relu")
        self.dropout = layers.Dropout(config.hidden_dropout_prob)
        self.classifier = layers.Dense(num_classes)

    def call(self, inputs, training=False):
        outputs = self.bert(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            token_type_ids=inputs["token_type_ids"],
            training=training,
        )
        pooled_output = outputs[1]
        x = self.dropout(self.hidden(pooled_output), training=training)
        return self.classifier(x)


texts = ["the pizza was delicious", "where is the train station", "it will snow tomorrow",
         "i would like a cup of tea", "how far is the hotel", "the sun is out, what a hot day",
         "two eggs and some bread please", "which bus goes to the beach?"]
labels = [0, 1, 2, 0, 1, 2, 0, 1]  # food, travel, weather

encodings = tokenizer(texts, padding=True, truncation=True, return_tensors="tf")
dataset = tf.data.Dataset.from_tensor_slices((dict(encodings), labels)).batch(2).prefetch(1)

model = TextClassifier(TFBertModel.from_pretrained(sys.argv[1], config=config), num_classes=3)
model(next(iter(dataset))[0])  # builds the weights
rng = np.random.default_rng(0)
for dense in (model.hidden, model.classifier):
    kernel, bias = dense.get_weights()
    dense.set_weights([0.3 * rng.standard_normal(kernel.shape), bias])

model.compile(
    optimizer=tf.keras.optimizers.Adam(learning_rate=2e-4),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
history = model.fit(dataset, epochs=2)
loss, acc = model.evaluate(dataset)
result = {"history": {k: np.array(v).tolist() for k, v in history.history.items()},
          "evaluation": [float(loss), float(acc)], "logits": model.predict(dataset).tolist(),
          "weights": int(sum(np.prod(w.shape) for w in model.trainable_weights))}
json.dump(result, open(sys.argv[2], "w"))
