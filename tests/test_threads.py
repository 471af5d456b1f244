"""Objects shared by eight threads give the results of a single thread."""

import os
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bert_tf
from bert_tf import api
from bert_tf.checkpoints.conversion import convert
from bert_tf.transformers import (
    BertTokenizerFast,
    TFBertForSequenceClassification,
    pipeline,
)

THREADS = 8
# Calling all objects with 10,000 texts takes about an hour on two cores.
MANY = int(os.environ.get("BERT_TF_THREAD_TEXTS", "1000"))
TINY = os.path.join(os.path.dirname(bert_tf.__file__), "models", "tiny")
WORDS = "The quick brown foxes jumped over lazy dogs, unaffable! [MASK] naïve 中文 a x-ray"
# Consecutive calls use different options, so that threads use them at the same time.
OPTIONS = {
    "tokenizer": [
        {"padding": "max_length", "truncation": True, "max_length": 16},
        {"truncation": "only_first", "max_length": 32, "stride": 4}
        | {"return_overflowing_tokens": True},
        {},
        {"padding": True, "padding_side": "left", "pad_to_multiple_of": 8},
        {"add_special_tokens": False, "return_offsets_mapping": True},
        {"split_special_tokens": True, "truncation": True, "max_length": 5},
    ],
    "pipeline": [
        {"truncation": True, "max_length": 64, "top_k": None},
        {"truncation": True, "max_length": 9},
        {"truncation": True, "max_length": 32, "function_to_apply": "none", "top_k": 2},
    ],
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Returns a folder with a classifier, its export and a copy in Hugging Face's format."""
    folder = tmp_path_factory.mktemp("classifier")
    model = bert_tf.load(TINY, bert_tf.BertClassifier, num_classes=3, max_seq_length=64)
    model.labels = ("one", "two", "three")
    bert_tf.save(model, folder / "run")
    api.export(model, folder / "1", verbose=False)
    convert(str(folder / "run"), str(folder / "hf"), "huggingface")
    return folder


# === Each function returns a function of the texts and the index of a call ===


def tokenizer(folders):
    shared = BertTokenizerFast.from_pretrained(TINY)
    options = OPTIONS["tokenizer"]
    return lambda texts, index: dict(shared(texts, **options[index % len(options)]))


def model(folders):
    shared = bert_tf.load(folders / "run")
    return lambda texts, index: shared(shared.preprocessor(texts)).numpy()


def predictor(folders):
    shared = bert_tf.Predictor(folders / "run", batch_size=4)
    return lambda texts, index: shared(
        [{"text": text, "n": index} for text in texts], keep_columns=index % 2 == 0
    )


def batch_predictor(folders):
    shared = bert_tf.BatchPredictor(str(folders / "1"))
    return lambda texts, index: shared({"text": [*texts, ""] if index % 2 else texts})


def api_predict(folders):
    loaded = bert_tf.load(folders / "run")
    return lambda texts, index: api.predict(loaded, texts, verbose=True, top_k=1 + index % 3)


def drop_in(folders):
    shared = TFBertForSequenceClassification.from_pretrained(folders / "hf")
    tokenize = BertTokenizerFast.from_pretrained(folders / "hf")

    def call(texts, index):
        length = (16, 64)[index % 2]
        rows = tokenize(texts, padding=True, truncation=True, max_length=length)
        outputs = shared(
            {name: np.array(ids) for name, ids in rows.items()}, output_hidden_states=index % 3 == 0
        )
        return [outputs.logits.numpy(), len(outputs.hidden_states or ())]

    return call


def pipelined(folders):
    shared = pipeline("text-classification", model=str(folders / "hf"))
    options = OPTIONS["pipeline"]
    return lambda texts, index: shared(texts, **options[index % len(options)])


OBJECTS = [tokenizer, model, predictor, batch_predictor, api_predict, drop_in, pipelined]


def texts_of(count):
    draw = random.Random(1)
    lengths = (1, 3, 12, 28, 90)
    return [" ".join(draw.choices(WORDS.split(), k=draw.choice(lengths))) for _ in range(count)]


def assert_same(actual, expected):
    """Asserts that floats are equal up to rounding, and other values exactly."""
    assert type(actual) is type(expected)
    if isinstance(actual, dict):
        assert actual.keys() == expected.keys()
        actual, expected = [*actual.values()], [*expected.values()]
    is_floats = isinstance(actual, float) or getattr(actual, "dtype", None) == np.float32
    if is_floats:
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)
    elif isinstance(actual, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    else:
        assert np.all(actual == expected)


def check_parallel_calls(make, folders, count):
    call_object = make(folders)
    texts, calls, draw = texts_of(count), [], random.Random(2)
    while texts:
        size = draw.choice((1, 1, 2, 5))
        calls.append((texts[:size], len(calls)))
        texts = texts[size:]
    # The parallel calls are first, so that the threads share the initialization.
    with ThreadPoolExecutor(THREADS) as threads:
        parallel = list(threads.map(lambda call: call_object(*call), calls))
    for call, answers in zip(calls, parallel, strict=True):
        assert_same(answers, call_object(*call))


def test_threads_can_use_different_tokenizer_options():
    check_parallel_calls(tokenizer, None, 400)


@pytest.mark.slow
@pytest.mark.parametrize("make", OBJECTS)
def test_parallel_calls_equal_sequential_calls(make, folders):
    check_parallel_calls(make, folders, MANY)
