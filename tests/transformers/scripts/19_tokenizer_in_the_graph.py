# An end-to-end model: strings in, probabilities out
import json
import sys
import tempfile

import tensorflow as tf
from transformers import TFAutoModelForSequenceClassification, TFBertTokenizer


class EndToEndModel(tf.keras.Model):
    def __init__(self, checkpoint):
        super().__init__()
        self.tokenizer = TFBertTokenizer.from_pretrained(checkpoint)
        self.model = TFAutoModelForSequenceClassification.from_pretrained(checkpoint)

    def call(self, inputs):
        tokenized = self.tokenizer(inputs)
        return self.model(**tokenized).logits


model = EndToEndModel(sys.argv[1])
texts = tf.constant(["This is a great film!", "I don't think that it was good...",
                     "Café, naïve & co: an unbelievable PRICE of $3.50", ""])
tokens = model.tokenizer(texts)
logits = model(texts)

reviews = ["good fun", "a terrible script", "the best film", "it was so boring"]
dataset = tf.data.Dataset.from_tensor_slices((reviews, [1, 0, 1, 0])).batch(2)
model.compile(
    optimizer=tf.keras.optimizers.Adam(learning_rate=5e-5),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(dataset, epochs=2)


class Service(tf.Module):
    """What goes into the SavedModel: no Python tokenizer is needed where it is served."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def predict(self, text):
        return {"probabilities": tf.nn.softmax(self.model(text), axis=-1)}


export_dir = tempfile.mkdtemp()
service = Service(model)
tf.saved_model.save(service, export_dir, signatures={"serving_default": service.predict})
served = tf.saved_model.load(export_dir).signatures["serving_default"](text=texts)

with open(sys.argv[2], "w") as f:
    json.dump({
        "tokens": {k: v.numpy().tolist() for k, v in tokens.items()},
        "logits": logits.numpy().tolist(),
        "loss": [float(x) for x in history.history["loss"]],
        "served": served["probabilities"].numpy().tolist(),
    }, f)
