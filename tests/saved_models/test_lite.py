"""The TF Lite model against the model that it was made of."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.saved_models import lite

from .conftest import CONFIG, make, serve

# Large enough that weights, and not the graph, are most of the file; and that TF Lite quantises.
WIDE = dataclasses.replace(
    CONFIG, vocab_size=1000, hidden_size=64, intermediate_size=128, initializer_range=0.1
)
TOLERANCES = {"none": 1e-5, "float16": 3e-3, "int8": 0.15}


def features_of(batch, length):
    ids = np.random.default_rng(batch).integers(5, 900, (batch, length)).astype(np.int32)
    mask = (np.arange(length) < np.arange(length, length - batch, -1)[:, None]).astype(np.int32)
    return {"input_word_ids": ids * mask, "input_mask": mask, "input_type_ids": 0 * mask}


@pytest.mark.slow
def test_any_batch_and_length_and_smaller_weights(tmp_path):
    model = BertEncoder(WIDE)
    sizes = {}
    for quantize, tolerance in TOLERANCES.items():
        path = tmp_path / f"{quantize}.tflite"
        sizes[quantize] = lite.write_tokens(serve(model), str(path), quantize)
        assert path.stat().st_size == sizes[quantize]
        run = tf.lite.Interpreter(str(path)).get_signature_runner("tokens")
        for shape in ((1, 7), (3, 12)):
            inputs = features_of(*shape)
            outputs, expected = run(**inputs), model(inputs)
            names = {"default", "pooled_output", "encoder_outputs_0", "encoder_outputs_1"}
            assert set(outputs) == names | {"sequence_output"}
            real = inputs["input_mask"].astype(bool)
            difference = np.abs(outputs["sequence_output"] - expected["sequence_output"])[real]
            assert difference.max() < tolerance
            assert quantize == "none" or difference.max() > 1e-5
            pooled = expected["pooled_output"]
            np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=tolerance)
    assert sizes["float16"] < 0.65 * sizes["none"] and sizes["int8"] < 0.45 * sizes["none"]


def test_float32_whatever_the_export_computes_in(tmp_path, monkeypatch):
    reference, converted = make(BertEncoder), []
    monkeypatch.setattr(lite, "_convert", lambda *given: converted.append(given) or b"model")
    path = tmp_path / "tokens.tflite"
    size = lite.write_tokens(serve(make(BertEncoder, dtype="mixed_bfloat16")), str(path), "int8")
    assert path.read_bytes() == b"model" and size == 5
    ((encoder, quantize),) = converted
    inputs = {key: value % 20 for key, value in features_of(2, 5).items()}
    outputs, expected = encoder(inputs)["pooled_output"], reference(inputs)["pooled_output"]
    assert quantize == "int8"
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_refusals(tmp_path):
    served = serve(make(BertEncoder))
    path = tmp_path / "tokens.tflite"
    with pytest.raises(ValueError, match="quantize is 'int4': expected one of none, float16, int8"):
        lite.write_tokens(served, str(path), "int4")
    path.write_text("kept")
    with pytest.raises(ValueError, match=r"tokens\.tflite exists, and is never"):
        lite.write_tokens(served, str(path))
    assert path.read_text() == "kept"
