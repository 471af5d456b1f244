"""What the files of a tokenizer say, and the files written."""

import json

import pytest
import tokenizers

from bert_tf.interchange.checkpoint import Tokenization
from bert_tf.interchange.tokenizer_files import read_tokenization, write_tokenization
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.interchange.small_checkpoints import CASED, PIECES, UNCASED

LOWER = [piece.lower() if piece == "Cat" else piece for piece in PIECES if piece != "cat"]
TEXT = "A Cat sat unable. CATs É 中a xyz"


def _write(folder, **files):
    """Files by the first part of their names; text as it is, anything else as JSON."""
    for name, value in files.items():
        if isinstance(value, str):
            (folder / f"{name}.txt").write_text(value)
        else:
            (folder / f"{name}.json").write_text(json.dumps(value))


def _lines(pieces):
    return "".join(f"{piece}\n" for piece in pieces)


def _tokenizer_json(pieces=PIECES, **changes):
    """A tokenizer.json, as Hugging Face writes it."""
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": False,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "added_tokens": [
            {"id": index, "content": token, "special": True}
            for index, token in enumerate(SPECIAL_TOKENS)
        ],
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "vocab": {piece: index for index, piece in enumerate(pieces)},
        },
        **changes,
    }


# === Reading ===


def test_the_vocabulary_and_what_the_caller_knows(tmp_path):
    _write(tmp_path, vocab=_lines(PIECES))
    assert read_tokenization(str(tmp_path), True) == (UNCASED, ())
    assert read_tokenization(str(tmp_path), False) == (CASED, ())


@pytest.mark.parametrize("lower", [True, False])
def test_tokenizer_config_says_the_casing(tmp_path, lower):
    _write(tmp_path, vocab=_lines(PIECES), tokenizer_config={"do_lower_case": lower})
    assert read_tokenization(str(tmp_path)) == (Tokenization(PIECES, lower), ())


def test_tokenizer_json_alone(tmp_path):
    _write(tmp_path, tokenizer=_tokenizer_json())
    assert read_tokenization(str(tmp_path)) == (CASED, ())


def test_tokenizer_config_goes_before_tokenizer_json(tmp_path):
    _write(tmp_path, tokenizer=_tokenizer_json(), tokenizer_config={"do_lower_case": True})
    assert read_tokenization(str(tmp_path)) == (UNCASED, ())


def test_added_tokens_are_pieces(tmp_path):
    added = [{"id": len(PIECES), "content": "[X]"}, {"id": 0, "content": "[PAD]"}]
    _write(tmp_path, tokenizer=_tokenizer_json(added_tokens=added))
    tokenization, _ = read_tokenization(str(tmp_path))
    assert tokenization.vocabulary == (*PIECES, "[X]")


@pytest.mark.parametrize(
    "pieces, lower, what",
    [(LOWER, True, "no capital letters, so it is taken as uncased"),
     (PIECES, False, "capital letters, so it is taken as cased")],
)  # fmt: skip
def test_the_letters_of_the_vocabulary_say_the_casing(tmp_path, pieces, lower, what):
    _write(tmp_path, vocab=_lines(pieces))
    tokenization, notes = read_tokenization(str(tmp_path))
    assert tokenization == Tokenization(tuple(pieces), lower)
    assert notes == (
        f"No file of {tmp_path} says whether text is lower-cased; its vocabulary has {what}.",
    )


def test_no_vocabulary(tmp_path):
    assert read_tokenization(str(tmp_path)) == (
        None,
        (f"No preprocessor is made: {tmp_path} has neither vocab.txt nor tokenizer.json.",),
    )


def _model(**changes):
    return {"model": {**_tokenizer_json()["model"], **changes}}


SWAPPED = {piece: index for index, piece in enumerate(PIECES)} | {"cat": 5}


@pytest.mark.parametrize(
    "changes, note",
    [
        ({"model": {"type": "BPE", "vocab": {}}}, "expected a WordPiece model, got 'BPE'."),
        ({"model": None}, "expected a WordPiece model, got None."),
        (_model(vocab=["a"]), "expected model.vocab to be an object of pieces and their ids"),
        ({"model": {"type": "WordPiece"}}, "expected model.vocab to be an object of pieces"),
        (_model(vocab={"a": "one"}), "expected model.vocab to be an object of pieces and their"),
        ({"added_tokens": 5}, "and added_tokens a list of objects with id and content"),
        ({"added_tokens": [{"id": 1}]}, "and added_tokens a list of objects with id and content"),
        (_model(vocab=SWAPPED), "expected the ids 0 to 14, one for each of its 15 pieces; some"),
        (_model(vocab={"a": 10**12}), "expected the ids 0 to 5, one for each of its 6 pieces; "),
        (
            {"added_tokens": [{"id": 5, "content": "[X]"}]},
            "expected the ids 0 to 15, one for each of its 16 pieces; some are missing or stand",
        ),
        (
            {"added_tokens": [], **_model(vocab={"a": 0})},
            "no line holds [PAD], [UNK], [CLS], [SEP], [MASK]",
        ),
        ({"normalizer": {"type": "NFC"}}, "expected its normalizer to be BertNormalizer, got 'N"),
        ({"normalizer": None}, "expected its normalizer to be BertNormalizer, got None"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "expected its pre_tokenizer to be BertPreTok"),
        (
            {"normalizer": {"type": "BertNormalizer", "lowercase": "no"}},
            "the tokenizer's do_lower_case is 'no', not true or false.",
        ),
        (
            {"normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": True}},
            "has strip_accents=True, and with do_lower_case=False BERT's has strip_accents=False.",
        ),
        (
            {"normalizer": {"type": "BertNormalizer", "handle_chinese_chars": False}},
            "has tokenize_chinese_chars=False, and with do_lower_case=False BERT's has tokenize",
        ),
    ],
)
def test_another_tokenizer_is_not_taken_for_berts(tmp_path, changes, note):
    _write(tmp_path, tokenizer=_tokenizer_json(**changes))
    tokenization, notes = read_tokenization(str(tmp_path))
    assert tokenization is None
    assert notes[-1].startswith("No preprocessor is made: ") and note in notes[-1]


def test_files_that_cannot_be_read(tmp_path):
    _write(tmp_path, vocab="a\na\n")
    tokenization, (note,) = read_tokenization(str(tmp_path))
    assert tokenization is None and "'a' stands on line 1 and again on line 2" in note
    (tmp_path / "vocab.txt").write_text(_lines(PIECES))
    (tmp_path / "tokenizer_config.json").write_text("{")
    tokenization, (note,) = read_tokenization(str(tmp_path))
    assert tokenization is None and "tokenizer_config.json is not JSON" in note


# === Writing ===


@pytest.mark.parametrize("tokenization", [CASED, UNCASED], ids=["cased", "uncased"])
def test_what_is_written_is_read(tmp_path, tokenization):
    write_tokenization(str(tmp_path), tokenization, 512)
    assert read_tokenization(str(tmp_path)) == (tokenization, ())
    (tmp_path / "vocab.txt").unlink()
    assert read_tokenization(str(tmp_path)) == (tokenization, ())
    (tmp_path / "tokenizer_config.json").unlink()
    assert read_tokenization(str(tmp_path)) == (tokenization, ())


@pytest.mark.parametrize("tokenization", [CASED, UNCASED], ids=["cased", "uncased"])
def test_tokenizers_reads_what_was_written(tmp_path, tokenization):
    write_tokenization(str(tmp_path), tokenization, 512)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = BertTokenizer(tokenization.vocabulary, tokenization.do_lower_case)
    expected = [ours.cls_id, *ours.tokenize([TEXT]).to_list()[0], ours.sep_id]
    assert theirs.encode(TEXT).ids == expected
    assert len(set(expected)) > 8
    pair = theirs.encode("cat", "sat")
    assert pair.type_ids == [0, 0, 0, 1, 1]
    assert theirs.encode("a [MASK]").ids[2] == tokenization.vocabulary.index("[MASK]")


def test_a_word_of_more_than_a_hundred_letters(tmp_path):
    write_tokenization(str(tmp_path), CASED, 512)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    word = "a" + "##s".strip("#") * 150
    assert theirs.encode(word).tokens == ["[CLS]", "a", *["##s"] * 150, "[SEP]"]


@pytest.mark.parity
def test_transformers_reads_what_was_written(tmp_path):
    transformers = pytest.importorskip("transformers")
    for tokenization in (CASED, UNCASED):
        write_tokenization(str(tmp_path), tokenization, 512)
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
        ours = BertTokenizer(tokenization.vocabulary, tokenization.do_lower_case)
        assert theirs(TEXT)["input_ids"][1:-1] == ours.tokenize([TEXT]).to_list()[0]
        assert theirs.model_max_length == 512
        assert (theirs.pad_token_id, theirs.mask_token_id) == (0, 4)
