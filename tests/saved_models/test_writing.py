"""What is saved in an export's directory loads and answers."""

import numpy as np
import tensorflow as tf

from bert_tf.saved_models import writing


def test_signatures_endpoints_and_the_variables_that_they_read(tmp_path):
    scale, shift = tf.Variable(2.0), tf.Variable(3.0)
    vector = tf.TensorSpec([None], tf.float32, name="x")

    @tf.function(input_signature=[vector], autograph=False)
    def shared(x):
        return x * scale

    @tf.function(input_signature=[vector], autograph=False)
    def endpoint(x):
        return {"states": [shared(x) + shift, x]}

    signature = tf.function(lambda x: {"y": shared(x)}, autograph=False)
    writing.save(
        str(tmp_path),
        {"serving_default": signature.get_concrete_function(x=vector)},
        {"encoder": endpoint},
    )
    loaded = tf.saved_model.load(str(tmp_path))
    x = tf.constant([1.5])
    assert loaded.signatures["serving_default"](x=x)["y"].numpy() == [3.0]
    np.testing.assert_array_equal(loaded.encoder(x)["states"][0], [6.0])
    assert sorted(variable.numpy() for variable in loaded.weights) == [2.0, 3.0]
    # What a layer that is made of the endpoint would train.
    assert all(variable.trainable for variable in loaded.weights)
