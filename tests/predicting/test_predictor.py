"""``bert_tf.Predictor``: inputs, copies, threads and errors."""

import copy
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bert_tf
from bert_tf.evaluation import evaluation
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.predicting import predictor as predictor_module

from .prediction_models import CLASSES, LABELS, TEXTS, VOCAB, approx, text_task, write_model


def test_input_types_give_equal_predictions(classifier):
    predictor = bert_tf.Predictor(classifier[0])
    expected = predictor(TEXTS)
    assert [record["id"] for record in expected] == list("012345")
    assert predictor({"text": TEXTS}) == expected
    assert predictor(TEXTS[0]).keys() == expected[0].keys()
    (kept,) = predictor([{"text": "so", "n": 7, "note": "x"}], keep_columns=True)
    assert list(kept) == ["text", "n", "note", "prediction", "probabilities"]
    bad = predictor(["so", ""])[1]
    assert bad["prediction"] is None and bad["error"].startswith(
        "<data>, row 1: expected non-empty text in column 'text', got ''"
    )
    assert predictor([TEXTS[0], None, 3], skip_bad_rows=True) == [
        approx(expected[0]),  # the batch size can change the last bits
        *(
            {**bad, "id": str(row), "error": f"<data>, row {row}: expected a string, a tuple of "
             f"texts, or a mapping, got {value}."}
            for row, value in ((1, None), (2, 3))
        ),
    ]  # fmt: skip
    (none,) = predictor([None])
    expected_types = "expected a string, a tuple of texts, or a mapping"
    assert none["error"].startswith(f"<data>, row 0: {expected_types}, got None")
    assert predictor([{"said": "so"}], text_columns="said") == predictor(["so"])


def test_default_length_without_a_task_file():
    config = bert_tf.BertConfig.from_preset("bert-tiny", vocab_size=7)
    model = bert_tf.BertClassifier(config, num_classes=2)
    model.preprocessor = bert_tf.BertPreprocessor(VOCAB[:7])
    assert bert_tf.Predictor(model).task.max_seq_length == config.max_position_embeddings == 512
    encoder = bert_tf.BertEncoder(config)
    encoder.preprocessor = model.preprocessor
    encoder.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=32)
    assert bert_tf.Predictor(encoder).task.max_seq_length == 32


def test_activation_of_regressor_is_applied():
    config = bert_tf.BertConfig.from_preset("bert-tiny", vocab_size=len(VOCAB))
    model = bert_tf.BertRegressor(config)
    model.preprocessor = bert_tf.BertPreprocessor(VOCAB, max_seq_length=16)
    number = float(model(model.preprocessor([TEXTS[0]]))[0])
    model.activation = "sigmoid"  # before the first call, which traces the model
    answer = bert_tf.Predictor(model)(TEXTS[0])["prediction"]
    assert answer == pytest.approx(1 / (1 + np.exp(-number)), abs=1e-6) != number


def test_model_is_traced_once(classifier):
    predictor = bert_tf.Predictor(bert_tf.load(classifier[0]), top_k=np.int64(2))
    for data in (TEXTS[0], TEXTS, TEXTS[:3], "so " * 9):
        predictor(data)
    (step,) = predictor._loaded()._traced_steps.values()
    assert predictor(TEXTS[0])["prediction"] in LABELS
    assert [*predictor._loaded()._traced_steps.values()] == [step]


def _pickled(value):
    return pickle.loads(pickle.dumps(value))


def test_batches_are_as_long_as_their_longest_text(classifier, monkeypatch):
    widths = []
    outputs = evaluation.Inference.outputs

    def recorded(self, examples):
        for rows, out in outputs(self, examples):
            widths.append(rows["input_word_ids"].shape[1])
            yield rows, out

    monkeypatch.setattr(evaluation.Inference, "outputs", recorded)
    for multiple, expected in ((1, [3]), (8, [8])):
        monkeypatch.setattr(predictor_module, "prediction_length_multiple", lambda m=multiple: m)
        bert_tf.Predictor(classifier[0])(["so"])
        assert widths == expected
        widths.clear()


@pytest.mark.parametrize("copied", [_pickled, copy.deepcopy])
def test_copies_give_equal_predictions(classifier, copied):
    predictor = bert_tf.Predictor(classifier[0], top_k=2)
    model = copied(predictor._loaded())
    assert (model.labels, model.task) == (LABELS, predictor._loaded().task)
    for answers in (copied(predictor), bert_tf.Predictor(model, top_k=2)):
        assert answers(TEXTS) == [approx(record) for record in predictor(TEXTS)]
    assert copied(predictor).path == predictor.path


def test_concurrent_first_calls_load_and_trace_once(classifier, monkeypatch):
    counts = {"loaded": 0, "traced": 0}
    load, compute = predictor_module.load, evaluation._rows_and_outputs
    start = threading.Barrier(4)

    def slow_load(checkpoint):
        counts["loaded"] += 1
        time.sleep(0.1)
        return copy.copy(load(checkpoint))

    def slow_compute(*arguments):
        counts["traced"] += 1
        time.sleep(0.1)
        return compute(*arguments)

    monkeypatch.setattr(predictor_module, "load", slow_load)
    monkeypatch.setattr(evaluation, "_rows_and_outputs", slow_compute)
    predictor = bert_tf.Predictor(classifier[0])

    def first(text):
        start.wait()
        return predictor(text)["prediction"]

    with ThreadPoolExecutor(4) as threads:
        assert {*threads.map(first, TEXTS[:4])} <= {*LABELS}
    assert counts == {"loaded": 1, "traced": 1}


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("tiny", {"batch_size": 0}, "batch_size=0 is invalid: 0 is not a positive integer"),
        ("tiny", {"batch_size": "x"}, "batch_size='x' is invalid: invalid literal for int"),
        ("tiny", {"top_k": np.int64(0)}, "top_k=.* is invalid: 0 is not a positive integer"),
        ("tiny", {"max_seq_length": 1.5}, "max_seq_length=1.5 is invalid: Expect argument to be a "
         "string or int, found <class 'float'>"),
        (None, {}, "model: expected a path, hf://OWNER/NAME or a bert_tf model, got a NoneType"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_errors(model, given, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        bert_tf.Predictor(model, **given)


def test_invalid_data_raise_errors(classifier, tmp_path):
    predictor = bert_tf.Predictor(classifier[0])
    remedy = "Correct the row, or skip bad rows with --skip_bad_rows."
    for data, message in (
        ([], "data is empty: expected at least one example"),
        ([{"other": "so"}], "data has no text column: expected text, got other"),
        (7, "data has the type int: expected a path, a list of examples or a data frame"),
        (["so", 3], f"<data>, row 1: expected a string, .*, got 3. {remedy}"),
        ([("good", "film")],
         rf"<data>, row 0: expected \(text\), got \('good', 'film'\). {remedy}"),
        ({"text": 3}, r"data\['text'\] is 3: expected a list of values"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            predictor(data)
    write_model(tmp_path, "BertClassifier", CLASSES, text_task("multilabel"), labels=LABELS,
                multi_label=True)  # fmt: skip
    message = "--top_k requires a single-label model, got .* for multilabel"
    with pytest.raises(ValueError, match=message):
        bert_tf.Predictor(tmp_path, top_k=1)
