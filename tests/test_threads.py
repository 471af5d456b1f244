"""Eight threads that share an object get the answers of one thread, from the first call on."""

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
# 10,000 texts through every object take about an hour on two cores.
MANY = int(os.environ.get("BERT_TF_THREAD_TEXTS", "1000"))
TINY = os.path.join(os.path.dirname(bert_tf.__file__), "models", "tiny")
WORDS = "The quick brown foxes jumped over lazy dogs, unaffable! [MASK] naïve 中文 a x-ray"
# Each call takes the next ones, so that threads have different options at the same time.
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
    """A classifier as a directory, as an export and in Hugging Face's format."""
    folder = tmp_path_factory.mktemp("classifier")
    model = bert_tf.load(TINY, bert_tf.BertClassifier, num_classes=3, max_seq_length=64)
    model.labels = ("one", "two", "three")
    bert_tf.save(model, folder / "run")
    api.export(model, folder / "1", verbose=False)
    convert(str(folder / "run"), str(folder / "hf"), "huggingface")
    return folder


# === Functions of a call's texts and its number, each with an object of its own ===


def tokenizer(folders):
    shared = BertTokenizerFast.from_pretrained(TINY)
    options = OPTIONS["tokenizer"]
    return lambda texts, at: dict(shared(texts, **options[at % len(options)]))


def model(folders):
    shared = bert_tf.load(folders / "run")
    return lambda texts, at: shared(shared.preprocessor(texts)).numpy()


def predictor(folders):
    shared = bert_tf.Predictor(folders / "run", batch_size=4)
    return lambda texts, at: shared(
        [{"text": text, "n": at} for text in texts], keep_columns=at % 2 == 0
    )


def batch_predictor(folders):
    shared = bert_tf.BatchPredictor(str(folders / "1"))
    return lambda texts, at: shared({"text": [*texts, ""] if at % 2 else texts})


def api_predict(folders):
    loaded = bert_tf.load(folders / "run")
    return lambda texts, at: api.predict(loaded, texts, verbose=True, top_k=1 + at % 3)


def drop_in(folders):
    shared = TFBertForSequenceClassification.from_pretrained(folders / "hf")
    tokenize = BertTokenizerFast.from_pretrained(folders / "hf")

    def answer(texts, at):
        length = (16, 64)[at % 2]
        rows = tokenize(texts, padding=True, truncation=True, max_length=length)
        outputs = shared(
            {name: np.array(ids) for name, ids in rows.items()}, output_hidden_states=at % 3 == 0
        )
        return [outputs.logits.numpy(), len(outputs.hidden_states or ())]

    return answer


def pipelined(folders):
    shared = pipeline("text-classification", model=str(folders / "hf"))
    options = OPTIONS["pipeline"]
    return lambda texts, at: shared(texts, **options[at % len(options)])


OBJECTS = [tokenizer, model, predictor, batch_predictor, api_predict, drop_in, pipelined]


def texts_of(count):
    draw = random.Random(1)
    lengths = (1, 3, 12, 28, 90)
    return [" ".join(draw.choices(WORDS.split(), k=draw.choice(lengths))) for _ in range(count)]


def assert_same(answer, expected):
    """Asserts that texts and numbers are equal, and floats up to their rounding."""
    assert type(answer) is type(expected)
    if isinstance(answer, dict):
        assert answer.keys() == expected.keys()
        answer, expected = [*answer.values()], [*expected.values()]
    is_floats = isinstance(answer, float) or getattr(answer, "dtype", None) == np.float32
    if is_floats:
        np.testing.assert_allclose(answer, expected, rtol=2e-6, atol=2e-6)
    elif isinstance(answer, list | tuple):
        assert len(answer) == len(expected)
        for one, other in zip(answer, expected, strict=True):
            assert_same(one, other)
    else:
        assert np.all(answer == expected)


def check(make, folders, count):
    answer = make(folders)
    texts, calls, draw = texts_of(count), [], random.Random(2)
    while texts:
        size = draw.choice((1, 1, 2, 5))
        calls.append((texts[:size], len(calls)))
        texts = texts[size:]
    with ThreadPoolExecutor(THREADS) as threads:  # first, so that they build what is built once
        together = list(threads.map(lambda call: answer(*call), calls))
    for call, answers in zip(calls, together, strict=True):
        assert_same(answers, answer(*call))


def test_threads_that_share_a_tokenizer_have_their_own_options():
    check(tokenizer, None, 400)


@pytest.mark.slow
@pytest.mark.parametrize("make", OBJECTS)
def test_threads_that_share_an_object_get_the_answers_of_one_thread(make, folders):
    check(make, folders, MANY)
