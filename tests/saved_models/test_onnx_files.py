"""``export --onnx``: ONNX Runtime against Keras and NumPy; the card's code as users run it."""

import dataclasses
import json
import os

import numpy as np
import pytest

import bert_tf
from bert_tf import export as command
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.saved_models import onnx_files, replay, verification
from bert_tf.saved_models.served import ExportOptions
from tests.anew import run_main
from tests.finetuning import small_runs

from .conftest import make

LABELS = ("bad", "good")
TEXTS = ["A fine film.", "I would not see it again, even for free."]


def ask(folder, inputs):
    """ONNX Runtime's answers by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def ids(batch, length):
    random = np.random.default_rng(length)
    mask = np.ones((batch, length), np.int32)
    mask[-1, 3:] = 0
    kinds = random.integers(0, 2, mask.shape, np.int32)
    words = random.integers(5, len(small_runs.VOCAB), mask.shape, np.int32)
    return {
        "input_word_ids": words * mask,
        "input_mask": mask,
        "input_type_ids": kinds * mask,
    }


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A checkpoint with a temperature, its labels' logits far from each other, and its export."""
    for package in ("onnxruntime", "tf2onnx"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("onnx")
    small_runs.write_model(
        folder / "model", "BertClassifier", {"num_classes": 2}, labels=LABELS,
        thresholds={"temperature": 1.5},
    )  # fmt: skip
    run_main(command, f"--model={folder}/model", f"--output={folder}/out", "--onnx=float32")
    return folder


@pytest.mark.slow
def test_the_cards_code_answers_as_the_model_does(classifier, monkeypatch, capsys):
    card = (classifier / "out" / "README.md").read_text()
    monkeypatch.chdir(classifier / "out")
    space = {}
    exec(card.split("```python\n")[1].split("```")[0], space)
    model = bert_tf.load(str(classifier / "model"))
    np.testing.assert_allclose(
        space["session"].run(None, space["inputs"])[0], model(model.preprocessor(TEXTS)), atol=1e-5
    )
    assert "{'logits': array(" in capsys.readouterr().out
    assert json.loads((classifier / "out" / "answers.json").read_text()) == {
        "model": "BertClassifier",
        "labels": ["bad", "good"],
        "multi_label": False,
        "thresholds": {"temperature": 1.5},
        "max_seq_length": 32,
        "do_lower_case": True,
    }
    assert "- Classes: `bad`, `good`.\n" in card and "- Computes in float32.\n" in card


@pytest.mark.slow
def test_verify_asks_onnx_runtime(classifier, tmp_path):
    import onnxruntime

    found = verification.verify(str(classifier / "out"))
    assert found.runtime == f"ONNX Runtime {onnxruntime.__version__}"
    assert [(row.name, row.samples, row.problems) for row in found.signatures] == [
        ("tokens", 2, ())
    ]
    # The recorded answers are Keras', not those of the file itself.
    assert 0 < found.signatures[0].largest_difference < 1e-5
    sample = classifier / "out" / "assets.extra" / "samples" / "tokens.0.json"
    recorded = json.loads(sample.read_text())
    model = bert_tf.load(str(classifier / "model"))
    asked = {key: np.array(rows) for key, rows in recorded["request"]["inputs"].items()}
    np.testing.assert_allclose(recorded["response"]["outputs"], model(asked), atol=1e-6)


@pytest.mark.slow
def test_int8_embeddings(tmp_path):
    """Of options that only embeddings have; int8 is of the encoder's matrices, and is near."""
    for package in ("onnxruntime", "tf2onnx"):
        pytest.importorskip(package)
    onnx = pytest.importorskip("onnx")
    model = small_runs.write_model(tmp_path / "model", "BertEncoder", {"pooler": True})
    folder = tmp_path / "out"
    run_main(
        command, f"--model={tmp_path}/model", f"--output={folder}", "--onnx=int8",
        "--normalize", "--layers=0", "--name=mine",
    )  # fmt: skip
    for shape in ((2, 7), (3, 5)):
        inputs = ids(*shape)
        expected = {key: np.array(value) for key, value in model(inputs).items() if key[-1] == "t"}
        states, weights = expected["sequence_output"], inputs["input_mask"][:, :, None]
        means = (states * weights).sum(1) / weights.sum(1)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        answers = ask(folder, inputs)
        assert sorted(answers) == [
            *("cls_output", "layer_cls_outputs", "layer_mean_outputs", "mean_output"),
            *("pooled_output", "sequence_output"),
        ]
        assert ((answers["mean_output"] * means).sum(1) > 0.99).all()
        assert np.abs(answers["mean_output"] - means).max() > 1e-5  # it is rounded
        # The model has one block.
        np.testing.assert_allclose(answers["layer_mean_outputs"][:, 0], answers["mean_output"])
        np.testing.assert_allclose(answers["pooled_output"], expected["pooled_output"], atol=0.05)
    operations = [node.op_type for node in onnx.load(str(folder / "model.onnx")).graph.node]
    # Queries with keys and values, the attention's output, the two of the feed-forward network,
    # the pooler's; attention multiplies activations twice.
    assert (operations.count("MatMulInteger"), operations.count("MatMul")) == (5, 2)
    assert (folder / "README.md").read_text().startswith("# mine\n")
    # What ONNX Runtime answered is recorded: nothing else is reproducible to 1e-4.
    (row,) = replay.replay(str(folder))
    assert (row["largest_difference"], row["problems"]) == (0.0, [])


@pytest.mark.slow
def test_sentence_embeddings(tmp_path):
    for package in ("onnxruntime", "tf2onnx"):
        pytest.importorskip(package)
    embedding = SentenceEmbedding("mean", True, 16, "query: ")
    small_runs.write_model(
        tmp_path / "model", "BertEncoder", {"pooler": False, "dense_size": 6},
        sentence_embedding=embedding,
    )  # fmt: skip
    folder = tmp_path / "out"
    run_main(command, f"--model={tmp_path}/model", f"--output={folder}", "--onnx=float32")
    inputs = ids(3, 5)
    expected = np.array(bert_tf.load(str(tmp_path / "model")).embed(inputs))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(ask(folder, inputs)["sentence_embedding"], expected, atol=1e-5)
    answers = json.loads((folder / "answers.json").read_text())
    assert (answers["query_prefix"], answers["document_prefix"]) == ("query: ", "")
    assert "prefixes of queries and of documents: `query: `, " in (folder / "README.md").read_text()


NORMAL = np.random.default_rng(7)


def written(folder, class_name, arguments, precision="float32", config=small_runs.TINY):
    """A model whose answers differ from row to row, which the command has exported."""
    for package in ("onnxruntime", "tf2onnx"):
        pytest.importorskip(package)
    model = small_runs.write_model(folder / "model", class_name, arguments, config=config)
    model.set_weights([NORMAL.normal(0, 0.5, weight.shape) for weight in model.weights])
    small_runs.save_weights(folder / "model", model, step=1)
    run_main(command, f"--model={folder}/model", f"--output={folder}/out",
             f"--onnx={precision}")  # fmt: skip
    return model


@pytest.mark.slow
def test_the_heads_of_a_pretrained_model(tmp_path, monkeypatch, capsys):
    model = written(tmp_path, "BertPretrainer", {})
    for batch, length, count in ((2, 7, 3), (3, 5, 0), (1, 4, 1)):
        positions = NORMAL.integers(0, length, (batch, count), np.int32)
        inputs = {**ids(batch, length), "masked_lm_positions": positions}
        answers = ask(tmp_path / "out", inputs)
        for name, logits in model(inputs).items():
            np.testing.assert_allclose(answers[name], logits, atol=1e-5, strict=True)
    monkeypatch.chdir(tmp_path / "out")
    capsys.readouterr()
    exec((tmp_path / "out/README.md").read_text().split("```")[1].lstrip("python"), space := {})
    # [CLS] a fine [MASK] ..., [CLS] [UNK] [UNK] [MASK] ...
    assert space["inputs"]["masked_lm_positions"].tolist() == [[3], [3]]
    best = np.argmax(model(space["inputs"])["masked_lm_logits"], -1)[:, 0]
    assert capsys.readouterr().out == f"{[small_runs.VOCAB[piece] for piece in best]}\n"


@pytest.mark.slow
def test_a_masked_lm_head_in_int8(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = written(tmp_path, "BertPretrainer", {"nsp": False}, "int8")
    inputs = {**ids(2, 7), "masked_lm_positions": np.int32([[2, 1], [0, 0]])}
    (logits,) = model(inputs).values()
    difference = np.abs(ask(tmp_path / "out", inputs)["masked_lm_logits"] - logits)
    assert 1e-4 < difference.max() < 0.1 * np.abs(logits).max()
    # Of the word embeddings, for the products with them.
    weights = onnx.load(str(tmp_path / "out" / "model.onnx")).graph.initializer
    found = [w.data_type for w in weights if w.dims == [16, len(small_runs.VOCAB)]]
    assert found == [onnx.TensorProto.INT8]


@pytest.mark.slow
def test_a_causal_models_vectors(tmp_path):
    """Its last token's state where others have [CLS]'s; its head of next tokens is left out."""
    config = dataclasses.replace(small_runs.TINY, is_decoder=True)
    model = written(tmp_path, "BertPretrainer", {"nsp": False}, config=config)
    inputs = ids(3, 6)
    answers = ask(tmp_path / "out", inputs)
    assert sorted(answers) == ["last_output", "mean_output", "sequence_output"]
    states = np.array(model.encoder(inputs)["sequence_output"])
    last = inputs["input_mask"].sum(1) - 1
    np.testing.assert_allclose(answers["last_output"], states[range(3), last], atol=1e-5)
    # What is behind a token changes nothing of its state.
    changed = {**inputs, "input_word_ids": inputs["input_word_ids"].copy()}
    changed["input_word_ids"][:, 2:] = 5
    again = ask(tmp_path / "out", changed)["sequence_output"]
    np.testing.assert_allclose(again[:, :2], answers["sequence_output"][:, :2], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("class_name", "arguments"),
    [
        ("BertTokenClassifier", {"num_classes": 3}),
        ("BertMultipleChoice", {}),
        ("BertSpanPredictor", {}),
    ],
)
def test_heads_with_loops_groups_and_two_outputs(class_name, arguments, tmp_path):
    model = written(tmp_path, class_name, arguments)
    for shape in ((2, 7), (4, 5)):
        inputs = ids(*shape)
        if class_name == "BertMultipleChoice":  # one example, whose last choice is padding
            inputs = {key: np.append(rows, 0 * rows[:1], 0)[None] for key, rows in inputs.items()}
        answers, expected = ask(tmp_path / "out", inputs), model(inputs)
        expected = expected if isinstance(expected, dict) else {"logits": expected}
        assert answers.keys() == expected.keys()
        for name, logits in expected.items():
            np.testing.assert_allclose(answers[name], logits, atol=1e-5)


def test_the_card_says_what_of_long_texts_is_read():
    assert onnx_files._long_texts(ExportOptions()) == ""
    assert onnx_files._long_texts(ExportOptions(long_text="windows")).startswith(
        "It was trained with `--long_text=windows` of bert_tf.finetune; the"
    )


# === Refusals ===


def refused(sentence, *arguments, output="out"):
    with pytest.raises(ValueError, match=sentence):
        run_main(command, "--model=hf://owner/name", f"--output={output}", *arguments)


def test_flags_that_onnx_has_no_place_for(monkeypatch):
    for flag in ("--pair", "--tflite=int8", "--precision=bfloat16", "--weights=int8", "--top_k=3"):
        name = flag.split("=")[0]
        refused(rf"^{name} means nothing with --onnx, whose file takes ids", flag, "--onnx=int8")
    monkeypatch.setattr(
        onnx_files.importlib.util, "find_spec", lambda name: None if "2" in name else True
    )
    refused(
        r"^ONNX files are .* and tf2onnx is not installed: pip install 'bert_tf\[onnx\]'\.$",
        "--onnx=float32",
    )


def test_a_model_that_the_format_cannot_hold(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(onnx_files, "check_installed", lambda: None)
    model = make(BertEncoder)
    given = {"tokenizer": tokenizer, "options": ExportOptions()}
    with pytest.raises(ValueError, match="^precision is 'int4': expected one of float32, int8"):
        onnx_files.write_onnx(model, str(tmp_path), precision="int4", **given)
    monkeypatch.setattr(replay, "MOST_ONNX_BYTES", 4 * model.count_params() - 1)
    with pytest.raises(ValueError, match=r"^The model has [\d,]+ parameters, and an ONNX file ho"):
        onnx_files.write_onnx(model, str(tmp_path), **given)
    assert os.listdir(tmp_path) == []


@pytest.mark.parity
def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    small_runs.write_model(tmp_path / "model", "BertEncoder")

    def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(onnx_files, "check_installed", lambda: None)
    monkeypatch.setattr(onnx_files, "_convert", fail)
    with pytest.raises(ZeroDivisionError):
        run_main(command, f"--model={tmp_path}/model", f"--output={tmp_path}/out", "--onnx=int8")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parity
def test_files_that_cannot_be_asked(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    assert "cannot be loaded by ONNX Runtime" in replay.report(str(tmp_path))["error"]
    monkeypatch.setattr(replay, "MOST_ONNX_BYTES", 7)
    sentence = r"model\.onnx has more than the 7 bytes of ONNX files"
    with pytest.raises(replay.ReplayError, match=sentence):
        replay.load(str(tmp_path))
    monkeypatch.setattr(replay.importlib.util, "find_spec", lambda name: None)
    assert replay.report(str(tmp_path))["error"].endswith(
        "has no onnxruntime, which runs model.onnx: pip install onnxruntime."
    )


def test_the_memory_of_a_file_is_bounded(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    (tmp_path / "model.onnx").write_bytes(b"0123456789")
    limits = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: limits.append(limit))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    replay.bound_memory(str(tmp_path))
    ((which, (soft, hard)),) = limits
    assert which == resource.RLIMIT_DATA and soft == hard
    threads = (os.cpu_count() or 1) * (16 << 20)
    used = soft - (4 << 30) - 80 - threads
    assert 0 < used < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 13
    # A SavedModel's graph and weights count in the same way; whoever has less keeps that.
    saved = tmp_path / "saved"
    (saved / "variables").mkdir(parents=True)
    (saved / "saved_model.pb").write_bytes(b"01234")
    (saved / "variables" / "variables.index").write_bytes(b"56789")
    replay.bound_memory(str(saved))
    assert abs(limits.pop()[1][0] - soft) < 1 << 30
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1 << 30, 2 << 30))
    replay.bound_memory(str(saved))
    assert limits.pop() == (resource.RLIMIT_DATA, (1 << 30, 1 << 30))


@pytest.mark.slow
def test_a_small_graph_that_asks_for_much(tmp_path):
    """4 GiB more than there is for it, of a size that only the request tells."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    count = onnx.numpy_helper.from_array(np.int64([1 << 30]), "count")
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")
    nodes = [
        onnx.helper.make_node("Shape", ["input_word_ids"], ["shape"]),
        onnx.helper.make_node("Mul", ["shape", "count"], ["size"]),
        onnx.helper.make_node("Expand", ["one", "size"], ["many"]),
        onnx.helper.make_node("ReduceSum", ["many"], ["logits"]),
    ]
    given = onnx.helper.make_tensor_value_info("input_word_ids", onnx.TensorProto.INT32, [None])
    found = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "g", [given], [found], [one, count])
    opset = [onnx.helper.make_opsetid("", 15)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    samples = tmp_path / "assets.extra" / "samples"
    samples.mkdir(parents=True)
    (samples / "tokens.0.json").write_text(
        json.dumps({
            "signature_name": "tokens",
            "request": {"inputs": {"input_word_ids": [1, 2]}},
            "response": {"outputs": [2.0]},
        })
    )  # fmt: skip
    (problem,) = verification.verify(str(tmp_path)).problems
    assert "Failed to allocate memory for requested buffer of size 8589934592" in problem


def test_an_output_of_another_shape_is_no_list_first():
    class Large(np.ndarray):
        def tolist(self):
            raise MemoryError

    found = replay.compare([1.0], {"logits": np.ones([4, 2], np.float32).view(Large)}, 0.1)
    assert found == (0.0, ["output logits has the shape (4, 2), and (1,) was recorded"])


def test_a_pipe_is_no_export(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"model\.onnx is no file: expected what was exported"):
        verification.verify(str(tmp_path))


@pytest.mark.parity
def test_a_strangers_file_reads_no_other(tmp_path, monkeypatch):
    """Weights of a path that the file names, as large models have them."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(np.float32([3, 4]).tobytes())
    weight = onnx.TensorProto(
        name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL
    )
    for location in ("secret", str(tmp_path / "secret")):
        del weight.external_data[:]
        for key, value in (("location", location), ("length", "8")):
            weight.external_data.add(key=key, value=value)
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "w"], ["y"])],  # which is not computed at once
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [2])],
            [onnx.helper.make_tensor_value_info("y", 1, [2])],
            [weight],
        )
        opset = [onnx.helper.make_opsetid("", 15)]
        model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(
            replay.ReplayError, match="loaded by ONNX Runtime.*(xternal|model_path)"
        ):
            replay.load(str(tmp_path))
