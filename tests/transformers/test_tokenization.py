"""Tokenizers compared with literals and with the tokenizer in the graph."""

import json

import numpy as np
import pytest

from bert_tf.pipelines.wordpiece import BertTokenizer as InGraph
from bert_tf.transformers.tokenization import BertTokenizerFast

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat"),
    *("##s", "!", ".", "a"),
]


@pytest.fixture
def file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return str(tmp_path / "vocab.txt")


def test_padding_and_truncation_of_pairs(file):
    tokenizer = BertTokenizerFast(file)
    rows = tokenizer(["The cats", "a"], ["sat on!", "mat"], padding=True)
    assert dict(rows) == {
        "input_ids": [[2, 5, 6, 10, 3, 7, 8, 11, 3], [2, 13, 3, 9, 3, 0, 0, 0, 0]],
        "token_type_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0, 0]],
        "attention_mask": [[1] * 9, [1, 1, 1, 1, 1, 0, 0, 0, 0]],
    }
    assert rows.word_ids(0) == [None, 0, 1, 1, None, 0, 1, 2, None]
    cut = tokenizer("the cat sat on the mat", max_length=4, truncation=True)
    assert cut["input_ids"] == [2, 5, 6, 3]
    assert tokenizer("the cat", padding="max_length", max_length=6).input_ids[-2:] == [0, 0]
    assert tokenizer.decode(cut["input_ids"], skip_special_tokens=True) == "the cat"


def test_numpy_strings_and_arrays(file):
    tokenizer = BertTokenizerFast(file)
    for one in (np.str_("the cat"), np.array("the cat")):
        assert tokenizer(one)["input_ids"] == [2, 5, 6, 3]
        assert tokenizer.tokenize(one) == ["the", "cat"]
        assert tokenizer.encode("a", one) == [2, 13, 3, 5, 6, 3]
    assert tokenizer(np.array(["the cat", "a"]))["input_ids"] == [[2, 5, 6, 3], [2, 13, 3]]


def test_ids_equal_graph_tokenizer(file):
    texts = ["The CATS sat!", "öther Mats.", "", "[MASK] a  the\tcat 中"]
    own = InGraph(file).tokenize(texts).to_list()
    fast = BertTokenizerFast(file)
    # As in transformers, a literal [MASK] is a token.
    assert fast(texts[:3], add_special_tokens=False)["input_ids"] == own[:3]
    assert fast.encode(texts[3], add_special_tokens=False)[0] == 4


def test_empty_second_text(file):
    tokenizer = BertTokenizerFast(file)
    assert tokenizer("a", "")["input_ids"] == tokenizer.encode("a", "") == [2, 13, 3]
    assert tokenizer(["a"], [""])["input_ids"] == [[2, 13, 3, 3]]


def test_pair_truncation_equals_transformers(file):
    tokenizer = BertTokenizerFast(file)
    row = tokenizer("the cat " * 5, "mat on " * 5, truncation=True, max_length=16)
    assert row["token_type_ids"] == [0] * 8 + [1] * 8  # 6 and 7 tokens of the texts


def test_special_token_options(file, tmp_path):
    how = {"cls_token": "a", "sep_token": "[END]", "unk_token": "mat", "eos_token": "on"}
    tokenizer = BertTokenizerFast(file, **how, model_input_names=["input_ids"])
    assert dict(tokenizer("the xy on", padding=True)) == {
        "input_ids": [13, 5, 9, 8, 14],
        "attention_mask": [1] * 5,
    }
    tokenizer.save_pretrained(tmp_path)
    again = BertTokenizerFast.from_pretrained(tmp_path)
    assert dict(again("the xy on")) == dict(tokenizer("the xy on"))
    split = BertTokenizerFast(file)("[SEP]", split_special_tokens=True)["input_ids"]
    assert split == [2, 1, 1, 1, 3]


@pytest.mark.parametrize("lower", [True, False])
def test_casing_of_directory(file, tmp_path, lower):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    for _ in range(2):  # from vocab.txt, and from tokenizer.json
        tokenizer = BertTokenizerFast.from_pretrained(tmp_path, do_lower_case=None)
        assert tokenizer.do_lower_case is lower
        assert tokenizer.tokenize("The") == (["the"] if lower else ["[UNK]"])
        tokenizer.save_pretrained(tmp_path)


def test_added_tokens_decoder(file, tmp_path):
    how = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    contents = [(0, "[PAD]"), (10, "##s"), (14, "[X]"), (15, "covid")]
    listed = {str(at): {"content": text, "special": text[0] == "[", **how} for at, text in contents}
    values = {"do_lower_case": True, "added_tokens_decoder": listed}
    values["additional_special_tokens"] = ["[X]"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[X]": 14, "covid": 15}))
    for _ in range(2):  # the first file is sufficient
        tokenizer = BertTokenizerFast.from_pretrained(tmp_path)
        assert tokenizer.tokenize("The [X] covid ##s") == ["the", "[X]", "covid", "##s"]
        assert tokenizer.decode([5, 14, 15], skip_special_tokens=True) == "the covid"
        (tmp_path / "added_tokens.json").unlink(missing_ok=True)
    for listed in ({"16": {"content": "a b"}}, {"x": {"content": "a"}}, {"14": "a"}):
        values["added_tokens_decoder"] = listed
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
        with pytest.raises(ValueError, match=r"config\.json: .*expected (an added token|14)"):
            BertTokenizerFast.from_pretrained(tmp_path)


def test_directory_without_tokenizer_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"has no vocabulary\. .*\(for a pipeline, tokenizer=\)"):
        BertTokenizerFast.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"return_tensors": "pt"}, "return_tensors='pt': expected 'tf', 'np' or None"),
        ({"return_tensors": "np"}, "Rows have different lengths. Pass padding=True"),
        (
            {"padding": "longst"},
            "padding='longst': expected True, False, 'longest', 'max_length'",
        ),
        (
            {"truncation": "first", "max_length": 3},
            "truncation='first': expected True, False, 'longest_first', 'only_first', "
            "'only_second'",
        ),
        (
            {"truncation": True, "padding": True, "max_length": 9, "pad_to_multiple_of": 4},
            "max_length=9: expected a multiple of pad_to_multiple_of=4",
        ),
        ({"text_pair": ["a"]}, "text_pair: expected 2 texts, as in text, got 1"),
        (
            {"text_pair": "on"},
            "text_pair: expected 2 texts, as in text, got 1",
        ),  # not a list of characters
        ({"text_pair": ["a", None]}, "text: expected strings, .* got NoneType"),
    ],
)
def test_errors(file, options, message):
    with pytest.raises(ValueError, match=message):
        BertTokenizerFast(file)(["the cat", "a"], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_side": "up"}, "padding_side='up': expected 'right' or 'left'"),
        ({"unk_token": "[NEW]"}, r"unk_token='\[NEW\]': expected a piece of the vocabulary"),
        ({"mask_token": None}, "mask_token=None: expected a string"),
    ],
)
def test_invalid_settings_are_rejected(file, options, message):
    with pytest.raises(ValueError, match=message):
        BertTokenizerFast(file, **options)
    message = "save_pretrained does not support push_to_hub. Upload the directory with huggingface"
    with pytest.raises(ValueError, match=message):
        BertTokenizerFast(file).save_pretrained("unwritten", push_to_hub=True)
