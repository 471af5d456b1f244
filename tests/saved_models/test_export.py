"""Exports: alone in a fresh process they answer as the model does; whole or not at all."""

import json
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.saved_models import export, heads, signatures

from .conftest import CONFIG, VOCAB

TEXTS = ["The [MASK] sat, un[MASK]s.", "", "[CLS] the cat [SEP]", "the mat " * 30, "[MASK]"]
FIRST = ["The cat", "", "the mat " * 30, "[MASK]"]
SECOND = ["sat on the mat.", "", "dog", "dog " * 30]
IDS = {
    "input_word_ids": [[2, 5, 7, 3], [2, 8, 3, 0]],
    "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
    "input_type_ids": [[0, 0, 1, 1], [0, 0, 0, 0]],
}

# Only TensorFlow, and tensorflow-text for its operations, as a server has them.
CLIENT = textwrap.dedent(
    """
    import json, sys
    import tensorflow as tf
    import tensorflow_text

    folder, requests = sys.argv[1], json.loads(sys.argv[2])
    model = tf.saved_model.load(folder)
    answers = []
    for name, inputs in requests:
        dtype = tf.int32 if name == "tokens" else tf.string
        outputs = model.signatures[name](
            **{key: tf.constant(value, dtype) for key, value in inputs.items()}
        )
        answers.append({
            key: {
                "dtype": value.dtype.name,
                "shape": value.shape.as_list(),
                "value": [
                    v.decode() if isinstance(v, bytes) else v
                    for v in value.numpy().reshape(-1).tolist()
                ],
            }
            for key, value in outputs.items()
        })
    loaded = [name for name in sys.modules if name.startswith("bert_tf")]
    print(json.dumps({"answers": answers, "loaded": loaded, "names": sorted(model.signatures)}))
    """
)


@pytest.fixture(scope="module")
def trained():
    """A model as training leaves it: mixed precision, variables of a strategy."""
    keras.utils.set_random_seed(11)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        return BertPretrainer(CONFIG, dtype="mixed_bfloat16")


@pytest.fixture(scope="module")
def reference(trained):
    """The same weights in a float32 model."""
    model = BertPretrainer(CONFIG)
    model.set_weights(trained.get_weights())
    return model


@pytest.fixture(scope="module")
def exported(trained, tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("export") / "new" / "1")
    export.export_pretrainer(trained, tokenizer, folder, max_seq_length=16, top_k=3)
    return folder


@pytest.fixture(scope="module")
def answers(exported):
    """What a fresh process is told: whole batches, each row alone, empty batches."""
    singles = [
        *[("serving_default", {"text": [text]}) for text in TEXTS],
        *[("embed", {"text": [text]}) for text in TEXTS],
        *[
            ("next_sentence", {"first": [first], "second": [second]})
            for first, second in zip(FIRST, SECOND, strict=True)
        ],
    ]
    requests = [
        ("serving_default", {"text": TEXTS}),
        ("embed", {"text": TEXTS}),
        ("next_sentence", {"first": FIRST, "second": SECOND}),
        ("tokens", IDS),
        ("serving_default", {"text": []}),
        ("embed", {"text": []}),
        ("next_sentence", {"first": [], "second": []}),
        *singles,
    ]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, exported, json.dumps(requests)],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(exported),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["loaded"] == []
    assert told["names"] == ["embed", "next_sentence", "serving_default", "tokens"]
    return [
        {
            key: np.array(
                output["value"], object if output["dtype"] == "string" else output["dtype"]
            ).reshape(output["shape"])
            for key, output in answer.items()
        }
        for answer in told["answers"]
    ]


def assert_same(answer, expected):
    assert set(answer) == set(expected)
    for key, value in expected.items():
        value = value.numpy()
        assert answer[key].shape == value.shape, key
        if value.dtype == object:
            assert [v.encode() for v in answer[key].reshape(-1)] == value.reshape(-1).tolist()
        elif value.dtype == np.float32:
            np.testing.assert_allclose(answer[key], value, atol=2e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(answer[key], value, err_msg=key)


def test_a_fresh_process_gives_the_models_numbers(answers, reference, tokenizer):
    text = tf.constant(TEXTS)
    keywords = {"max_seq_length": 16}
    assert_same(answers[0], heads.fill_masks(reference, tokenizer, text, top_k=3, **keywords))
    assert_same(answers[1], heads.embed(reference.encoder, tokenizer, text, **keywords))
    assert_same(
        answers[2],
        heads.next_sentence(
            reference, tokenizer, tf.constant(FIRST), tf.constant(SECOND), **keywords
        ),
    )
    ids = {key: tf.constant(value) for key, value in IDS.items()}
    assert_same(answers[3], heads.encode_tokens(reference.encoder, **ids))
    states = reference.encoder(ids)
    np.testing.assert_allclose(answers[3]["sequence_output"], states["sequence_output"], atol=2e-6)


def test_truncation_is_flagged(answers):
    assert answers[0]["truncated"].tolist() == [False, False, False, True, False]
    assert answers[1]["truncated"].tolist() == [False, False, False, True, False]
    assert answers[2]["truncated"].tolist() == [False, False, True, True]


def test_literal_masks_are_of_fill_mask_alone(answers):
    assert answers[0]["counts"].tolist() == [2, 0, 0, 0, 1]
    # As ordinary text [MASK] is three words, and not the word that the mask stands for.
    assert np.abs(answers[1]["mean_output"][4] - answers[1]["mean_output"][1]).max() > 0.01
    assert answers[0]["filled"][2] == TEXTS[2]


def test_empty_batches(answers):
    for full, empty in zip(answers[:3], answers[4:7], strict=True):
        for key, value in full.items():
            assert empty[key].dtype == value.dtype
            assert empty[key].shape[0] == 0 and empty[key].ndim == value.ndim


def test_a_batch_of_one_equals_its_row(answers):
    batches = [answers[0]] * len(TEXTS) + [answers[1]] * len(TEXTS) + [answers[2]] * len(FIRST)
    rows = [*range(len(TEXTS)), *range(len(TEXTS)), *range(len(FIRST))]
    for batch, row, single in zip(batches, rows, answers[7:], strict=True):
        for key, value in single.items():
            expected = batch[key][row]
            if np.ndim(expected) == 2:  # (M, K), and M is the most of the batch
                expected = expected[: value.shape[1]]
            if value.dtype == np.float32:
                np.testing.assert_allclose(value[0], expected, atol=2e-6, err_msg=key)
            else:
                np.testing.assert_array_equal(value[0], expected, err_msg=key)


def test_what_lies_beside_the_graph(exported, trained):
    assert sorted(os.listdir(os.path.dirname(exported))) == ["1"]
    extra = os.path.join(exported, "assets.extra")
    assert sorted(os.listdir(extra)) == ["README.md", "bert_config.json", "vocab.txt"]
    assert load_vocabulary(os.path.join(extra, "vocab.txt")) == VOCAB
    assert BertConfig.from_json(os.path.join(extra, "bert_config.json")) == CONFIG
    with open(os.path.join(extra, "README.md"), encoding="utf-8") as file:
        card = file.read()
    assert f"{trained.count_params():,} parameters: 2 layers, hidden size 16" in card
    assert "Rows have at most 16 tokens" in card and "3 guesses" in card
    assert "- Inputs: `first` (B,) string, `second` (B,) string\n" in card
    assert "`scores` (B, ?, 3) float32" in card and "`sequence_output` (B, ?, 16) float32" in card


def test_every_weight_is_there_once_in_float32(exported, trained):
    reader = tf.train.load_checkpoint(os.path.join(exported, "variables", "variables"))
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    weights = [name for name in shapes if dtypes[name] != tf.string]
    assert sum(np.prod(shapes[name]) for name in weights) == trained.count_params()
    assert {dtypes[name] for name in weights} == {tf.float32}


def test_the_copy_is_under_no_strategy(trained):
    copied = export.float32_copy(trained)
    assert copied.compute_dtype == "float32"
    for new, old in zip(copied.weights, trained.weights, strict=True):
        assert not isinstance(new.value, tf.distribute.DistributedValues)
        assert isinstance(old.value, tf.distribute.DistributedValues)
        np.testing.assert_array_equal(new.numpy(), old.numpy())


def test_the_copy_has_the_same_parts():
    model = BertPretrainer(CONFIG, nsp=False, pooler=True)
    copied = export.float32_copy(model)
    assert [v.path for v in copied.weights] == [v.path for v in model.weights]
    assert copied.next_sentence is None and copied.encoder.pooler is not None


def test_an_existing_directory_is_never_overwritten(model, tokenizer, tmp_path):
    folder = tmp_path / "1"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"/1 exists, and an export never overwrites one"):
        export.export_pretrainer(model, tokenizer, str(folder))
    assert not list(folder.iterdir())


def test_not_inside_a_strategys_scope(model, tokenizer, tmp_path):
    with (
        tf.distribute.MirroredStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match=r"export was called inside strategy\.scope\(\)"),
    ):
        export.export_pretrainer(model, tokenizer, str(tmp_path / "1"))
    assert not list(tmp_path.iterdir())


def add_one():
    function = signatures.signature(lambda x: {"y": x + 1.0}, {"x": tf.TensorSpec([None])})
    return {"serving_default": function}


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_export_leaves_nothing(tmp_path, monkeypatch, error):
    def stop(source, target, overwrite=False):
        # Everything is written but the name.
        assert os.path.exists(os.path.join(source, "saved_model.pb"))
        assert os.path.exists(os.path.join(source, "assets.extra", "a.txt"))
        assert not os.path.exists(target)
        raise error

    monkeypatch.setattr(tf.io.gfile, "rename", stop)
    with pytest.raises(type(error)):
        export.write(str(tmp_path / "1"), add_one(), [], {"a.txt": "a"})
    assert not list(tmp_path.iterdir())


def test_what_a_killed_export_left_is_removed(tmp_path):
    left = tmp_path / "1.partial"
    left.mkdir()
    (left / "old").write_text("old")
    export.write(str(tmp_path / "1") + "/", add_one(), [], {"a.txt": "ä"})
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert not (tmp_path / "1" / "old").exists()
    assert (tmp_path / "1" / "assets.extra" / "a.txt").read_bytes() == "ä".encode()
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    assert loaded.signatures["serving_default"](x=tf.constant([1.5]))["y"].numpy() == [2.5]
