"""Pipelines: equal to single calls and to transformers."""

import dataclasses
import functools

import numpy as np
import pytest

import bert_tf
from bert_tf.transformers import (
    BertConfig,
    BertTokenizerFast,
    TFBertForMaskedLM,
    TFBertForQuestionAnswering,
    TFBertForTokenClassification,
)
from bert_tf.transformers.task_pipelines import pipeline
from tests.transformers import models, record

TEXTS = [
    "Oil prices rose again on Tuesday",
    "The striker scored in the last minute of the long game, and Angela Merkel saw it in Berlin.",
    "John xyzq\u4e2d Smith!",
]
CONTEXT = "My name is Sarah and I live in London. I work at the museum near the old bridge. "
QUESTIONS = [
    {"question": "Where do I live?", "context": CONTEXT * 3},
    {"question": "Who?", "context": CONTEXT},
]


@dataclasses.dataclass(frozen=True)
class Case:
    """Task, folder, texts and options of a call."""

    task: str
    folder: str
    texts: list
    options: dict
    in_peer: bool = True


_NER = ("token-classification", "bert-entities", TEXTS)
_MASKED = ["The [MASK] was cold.", "A [MASK] in the [MASK] of the game, again and again."]
CASES = {
    "classes": Case("text-classification", "bert-news", TEXTS, {"top_k": None}),
    "logits": Case("text-classification", "bert-news", TEXTS, {"function_to_apply": "none"}),
    "several": Case("text-classification", "bert-tags", TEXTS, {"top_k": 2}),
    "number": Case("text-classification", "bert-similarity", TEXTS, {}),
    "tokens": Case(*_NER, {"ignore_labels": []}),
    **{way: Case(*_NER, {"aggregation_strategy": way}) for way in ("simple", "first", "max")},
    "average": Case(*_NER, {"aggregation_strategy": "average", "ignore_labels": ["I-PER"]}),
    "masks": Case("fill-mask", "bert-uncased", _MASKED, {"top_k": 3}),
    "states": Case("feature-extraction", "bert-encoder", TEXTS, {}),
    "answers": Case(
        "question-answering",
        "bert-questions",
        QUESTIONS,
        {"max_seq_len": 32, "doc_stride": 8, "top_k": 3, "handle_impossible_answer": True},
        in_peer=False,  # transformers 5 has no such pipeline
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines") / "models"
    models.make(folder)
    return folder


@pytest.fixture(scope="module")
def ours(folders):
    """Returns the pipeline of a case, with a cached model per folder."""
    loaded = functools.cache(lambda task, folder: pipeline(task, str(folders / folder)))

    def make(case):
        first = loaded(case.task, case.folder)
        return pipeline(case.task, first.model, tokenizer=first.tokenizer, **case.options)

    return make


def _as_lists(found):
    if isinstance(found, dict):
        return {key: _as_lists(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_as_lists(value) for value in found]
    return found.item() if isinstance(found, np.generic) else found


def _greatest_difference(found, expected):
    return max(gap for _, gap in record.differences(_as_lists(found), _as_lists(expected)))


# One case per pipeline is enough, because results are computed per text.
@pytest.mark.parametrize("name", ["classes", "average", "masks", "states", "answers"])
def test_batched_results_equal_single_results(ours, name):
    case = CASES[name]
    answer = ours(case)
    alone = [answer([text]) for text in case.texts]
    if case.task not in ("question-answering", "fill-mask"):
        alone = [found for (found,) in alone]
    for size in (2, 64):
        assert _greatest_difference(answer(case.texts, batch_size=size), alone) < 2e-6


def test_dict_with_missing_or_empty_second_text(ours):
    answer, text = ours(CASES["classes"]), {"text": TEXTS[0]}
    assert [answer(text)] == answer([{**text, "text_pair": ""}]) == answer([TEXTS[0]])


def test_unknown_targets_warn(ours):
    answer = ours(CASES["masks"])
    with pytest.warns(
        bert_tf.DifferenceWarning, match="'coldx' is not a token; 'cold' is used"
    ) as caught:
        found = answer(_MASKED[0], targets=["coldx", "game", ""])
    assert "'' is not a token; ignored" in str(caught[1].message)
    assert {each["token_str"] for each in found} == {"cold", "game"}
    with pytest.raises(ValueError, match=r"targets=\[\]: expected at least one token"):
        answer(_MASKED[0], targets=[])


@pytest.mark.parity
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.in_peer])
def test_results_equal_transformers(folders, ours, name):
    case = CASES[name]
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    folder = str(folders / case.folder)
    tokenizer = transformers.BertTokenizerFast(f"{folder}/vocab.txt", model_max_length=128)
    theirs = transformers.pipeline(case.task, folder, tokenizer=tokenizer)
    expected = theirs(case.texts, **case.options)
    assert _greatest_difference(ours(case)(case.texts), expected) < 1e-5


@pytest.fixture
def small(tmp_path):
    """Returns a config and a tokenizer with two words."""
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join([*models.SPECIAL, "so", "no"]) + "\n")
    sizes = {"vocab_size": 7, "max_position_embeddings": 16, "intermediate_size": 8}
    config = BertConfig(**sizes, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    return config, BertTokenizerFast(str(file))


def test_changed_weights_are_used(small):
    config, tokenizer = small
    model = TFBertForMaskedLM(config)
    unmask = pipeline("fill-mask", model, tokenizer=tokenizer, top_k=1)
    for wanted in (5, 6):
        model.mlm.output_bias.assign(np.eye(7)[wanted] * 50)
        assert unmask("so [MASK]")[0]["token"] == wanted
    unmask.tokenizer.add_tokens(["oh"])
    model.resize_token_embeddings(8)
    model.mlm.output_bias.assign(np.eye(8)[7] * 50)
    assert unmask("so [MASK]")[0]["token_str"] == "oh"


def test_text_without_words_has_no_entities(small, tmp_path):
    config, tokenizer = small
    TFBertForTokenClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    tag = pipeline("ner", tmp_path, ignore_labels=())
    for way in ("none", "simple", "max"):
        blank, words = tag(["  ", "so"], aggregation_strategy=way)
        assert blank == [] and len(words) == 1
    assert tag("") == []
    for older, way in ({}, "simple"), ({"ignore_subwords": True}, "first"):
        assert tag("so", grouped_entities=True, **older) == tag("so", aggregation_strategy=way)


def test_windows_fit_the_model(small):
    config, tokenizer = small
    answer = pipeline("question-answering", TFBertForQuestionAnswering(config), tokenizer=tokenizer)
    found = answer(question=np.str_("so"), context="no " * 30)
    assert found == answer({"question": "so", "context": "no " * 30})
    # With a question of this length, the default stride would be longer than the windows.
    assert "no" in answer(question="so " * 9, context="no " * 30)["answer"]


def test_null_answer_score(small):
    config, tokenizer = small
    model = TFBertForQuestionAnswering(config)
    answer = pipeline("question-answering", model, tokenizer=tokenizer, topk=9)
    found = answer(question="so", context="no so", handle_impossible_answer=True)
    # [CLS] so [SEP] no so [SEP]
    logits = model(**tokenizer(["so"], ["no so"])).to_tuple()
    starts, ends = (np.exp(some.numpy()[0, [0, 3, 4]]) for some in logits)
    scores = np.outer(starts / starts.sum(), ends / ends.sum())
    expected = {"": scores[0, 0], "no": scores[1, 1], "no so": scores[1, 2], "so": scores[2, 2]}
    # transformers adds spans with an end before the start, with score 0.
    best = {one["answer"]: one["score"] for one in reversed(found)}
    assert best == pytest.approx(expected, abs=1e-6)


_DICT = "^Expected a dict with the texts "
_QUESTION_AND_CONTEXT = f"{_DICT}'question' and 'context', got "
ERRORS = {
    "function": (
        *("text-classification", "so", {"function_to_apply": "foo"}),
        r"^function_to_apply='foo': expected one of none, sigmoid, softmax\.$",
    ),
    "lists of words": (
        *("token-classification", "so", {"is_split_into_words": True}),
        "is_split_into_words is not supported. Pass full texts, and truncate long ones",
    ),
    "another key": ("text-classification", {"txt": "so"}, {}, f"{_DICT}'text', got {{'txt'"),
    "nothing": ("text-classification", None, {}, "text: expected strings, .* got NoneType"),
    "number": ("feature-extraction", 3, {}, "text: expected strings, .* got int"),
    "long text": (
        *("text-classification", "so " * 20, {}),
        r"has 22 tokens, but the model supports 16\. Pass max_length=16\.$",
    ),
    "long windows": (
        *("question-answering", {"question": "so", "context": "no " * 30}, {"max_seq_len": 20}),
        r"has 20 tokens, but the model supports 16\. Pass max_seq_len=16\.$",
    ),
    "long question": (
        *("question-answering", {"question": "so " * 13, "context": "no"}, {}),
        "^question='so .*: expected fewer than 13 tokens. Pass a shorter question or a larger "
        "max_seq_len",
    ),
    "no context": ("question-answering", None, {"question": "so"}, _QUESTION_AND_CONTEXT),
    "texts without names": ("question-answering", "so", {}, f"{_QUESTION_AND_CONTEXT}'so'"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(small, case):
    task, texts, options, message = ERRORS[case]
    config, tokenizer = small
    # The model is not called.
    answer = pipeline(task, TFBertForMaskedLM(config), tokenizer=tokenizer)
    with pytest.raises(ValueError, match=message):
        answer(texts, **options)
