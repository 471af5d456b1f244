"""What the files of a tokenizer say, and the files written."""

import json

import pytest
import tokenizers

from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tokenizer_files import read_tokenization, write_tokenization
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.checkpoints.small_checkpoints import CASED, PIECES, UNCASED

LOWER = [piece.lower() if piece == "Cat" else piece for piece in PIECES if piece != "cat"]
TEXT = "A Cat sat unable. CATs É 中a xyz"


def _write(folder, **files):
    """Files by the first part of their names; text and bytes as they are, the rest as JSON."""
    for name, value in files.items():
        if isinstance(value, str):
            (folder / f"{name}.txt").write_text(value)
        else:
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            (folder / f"{name}.json").write_bytes(content)


def _lines(pieces):
    return "".join(f"{piece}\n" for piece in pieces)


def _tokenizer_json(pieces=PIECES, **changes):
    """A tokenizer.json, as Hugging Face writes it."""
    vocab = {piece: index for index, piece in enumerate(pieces)}
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": False,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "added_tokens": [{"id": at, "content": token} for at, token in enumerate(SPECIAL_TOKENS)],
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab},
        **changes,
    }


# === Reading ===


@pytest.mark.parametrize("lower", [True, False])
def test_what_says_the_casing(tmp_path, lower):
    """The caller; or tokenizer_config.json, before tokenizer.json."""
    expected = Tokenization(PIECES, lower), ()
    _write(tmp_path, vocab=_lines(PIECES))
    assert read_tokenization(str(tmp_path), lower) == expected
    _write(tmp_path, tokenizer_config={"do_lower_case": lower})
    assert read_tokenization(str(tmp_path)) == expected
    _write(tmp_path, tokenizer=_tokenizer_json())
    assert read_tokenization(str(tmp_path)) == expected
    (tmp_path / "vocab.txt").unlink()
    assert read_tokenization(str(tmp_path)) == expected
    (tmp_path / "tokenizer_config.json").unlink()
    assert read_tokenization(str(tmp_path)) == (CASED, ())


def test_added_tokens_are_pieces(tmp_path):
    added = [{"id": len(PIECES) - 1, "content": "[MASK]"}, {"id": 0, "content": "[PAD]"}]
    pieces = [piece for piece in PIECES if piece != "[MASK]"]
    _write(tmp_path, tokenizer=_tokenizer_json(pieces, added_tokens=added))
    tokenization, _ = read_tokenization(str(tmp_path))
    assert tokenization.vocabulary == (*pieces, "[MASK]")


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


def test_files_that_berts_may_have_beside_the_vocabulary(tmp_path):
    _write(tmp_path, vocab=_lines(PIECES), added_tokens={"[PAD]": 0})
    _write(tmp_path, config={"tokenizer_class": "BertJapaneseTokenizer"})
    values = {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}
    _write(tmp_path, tokenizer_config=values)  # which is asked first
    assert read_tokenization(str(tmp_path)) == (CASED, ())
    _write(tmp_path, added_tokens={"[X]": len(PIECES)})
    assert read_tokenization(str(tmp_path), adds_tokens=True) == (CASED, ())
    # White space as a piece, as the released Chinese vocabulary has it, is stripped by some.
    (tmp_path / "added_tokens.json").unlink()
    _write(tmp_path, vocab=_lines([*PIECES, "\u2028"]), tokenizer=_tokenizer_json([*PIECES, ""]))
    assert read_tokenization(str(tmp_path))[0].vocabulary == (*PIECES, "\u2028")


def _model(**changes):
    return {"model": {**_tokenizer_json()["model"], **changes}}


SWAPPED = {piece: index for index, piece in enumerate(PIECES)} | {"cat": 5}


def _normalizer(**settings):
    return {"normalizer": {"type": "BertNormalizer", **settings}}


PLAIN = {"vocab": _lines(PIECES), "tokenizer_config": {"do_lower_case": False}}
OF_TOKENIZER_JSON = [
    ({"model": {"type": "BPE", "vocab": {}}}, "model.type is 'BPE', and only 'WordPiece' can"),
    ({"model": None}, "expected its model to be a WordPiece, got None."),
    (_model(vocab=["a"]), "expected model.vocab to be an object of pieces and their ids"),
    (_model(vocab=SWAPPED), "expected the ids 0 to 14, one for each of its 15 pieces; some"),
    (_model(unk_token="<unk>"), "unk_token is '<unk>', and only '[UNK]' can be computed"),
    (_model(continuing_subword_prefix=""), "prefix is '', and only '##' can be computed"),
    ({"added_tokens": [{"id": 15, "content": "[X]"}]}, "'[X]' under the id 15: expected no"),
    ({"normalizer": {"type": "NFC"}}, "normalizer.type is 'NFC', and only 'BertNormalizer'"),
    ({"normalizer": None}, "expected its normalizer to be a BertNormalizer, got None"),
    ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer.type is 'Metaspace', and"),
    (_normalizer(clean_text=False), "clean_text is False, and only True can be computed"),
    (_normalizer(lowercase="no"), "the tokenizer's do_lower_case is 'no', not true or false."),
    (_normalizer(lowercase=False, strip_accents=True),
     "has strip_accents=True, and with do_lower_case=False BERT's has strip_accents=False."),
    (_normalizer(handle_chinese_chars=False),
     "has tokenize_chinese_chars=False, and with do_lower_case=False BERT's has tokenize"),
]  # fmt: skip
OF_CONFIG = [
    ({"tokenizer_class": "BertJapaneseTokenizer"}, "class 'BertJapaneseTokenizer'"),
    ({"do_basic_tokenize": False}, "do_basic_tokenize is false, which is not computed"),
    (
        {"word_tokenizer_type": "mecab"},
        "word_tokenizer_type is 'mecab', and only basic is computed",
    ),
    ({"subword_tokenizer_type": "character"}, "subword_tokenizer_type is 'character', and only "),
    ({"added_tokens_decoder": {"15": {"content": "[X]"}}}, "id 15: expected no others"),
]
OF_FILES = [
    ({}, "has neither vocab.txt nor tokenizer.json."),
    # As in the files of Tohoku University's Japanese BERTs.
    ({**PLAIN, "config": {"tokenizer_class": "BertJapaneseTokenizer"}},
     "names the tokenizer_class 'BertJapaneseTokenizer': expected BERT's"),
    ({**PLAIN, "added_tokens": {"[X]": 15}},
     "added_tokens.json adds the token '[X]' under the id 15"),
    ({"vocab": _lines([*PIECES[:-1], "other"]), "tokenizer": _tokenizer_json()},
     "tokenizer.json are of two tokenizers, with 15 and 15 pieces, some of which differ: keep "
     "the one that the model was trained with."),
    ({"vocab": "a\na\n"}, "'a' stands on line 1 and again on line 2"),
    ({**PLAIN, "tokenizer_config": b"{"}, "tokenizer_config.json is not JSON"),
    *(({"tokenizer": _tokenizer_json(**changes)}, note) for changes, note in OF_TOKENIZER_JSON),
    *(
        ({**PLAIN, "tokenizer_config": {"do_lower_case": False, **setting}}, note)
        for setting, note in OF_CONFIG
    ),
]  # fmt: skip


@pytest.mark.parametrize(("files", "note"), OF_FILES)
def test_another_tokenizer_is_not_taken_for_berts(tmp_path, files, note):
    _write(tmp_path, **files)
    tokenization, (*_, last) = read_tokenization(str(tmp_path))
    assert tokenization is None
    assert last.startswith("No preprocessor is made: ") and note in last


def test_files_of_transformers(tmp_path):
    """As transformers 5 writes them for BertTokenizer, and as version 4 did."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    cls, sep = ({"SpecialToken": {"id": f"[{name}]", "type_id": 0}} for name in ("CLS", "SEP"))
    pair = {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    template = {"single": [cls, text, sep], "pair": [cls, text, sep, *pair]}
    values = _tokenizer_json(post_processor={"type": "TemplateProcessing", **template})
    values["model"] |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    config = {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True}
    config |= {f"{name[1:-1].lower()}_token": name for name in SPECIAL_TOKENS}
    new = {"backend": "tokenizers", "tokenizer_class": "BertTokenizer", "model_max_length": 10**30}
    old = {"do_basic_tokenize": True, "never_split": None, "clean_up_tokenization_spaces": True}
    added = {str(index): {"content": name} for index, name in enumerate(SPECIAL_TOKENS)}
    old |= {"added_tokens_decoder": added, "tokenizer_class": "BertTokenizerFast"}
    for more in (new, old):
        _write(tmp_path, tokenizer=values, tokenizer_config={**config, **more})
        assert read_tokenization(str(tmp_path)) == (CASED, ())


# === Writing ===


@pytest.mark.parametrize("tokenization", [CASED, UNCASED], ids=["cased", "uncased"])
def test_what_is_written_is_read_here_and_by_tokenizers(tmp_path, tokenization):
    write_tokenization(str(tmp_path), tokenization, 512)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    keys = ("tokenizer_class", "model_max_length", "pad_token", "mask_token")
    assert [config[key] for key in keys] == ["BertTokenizer", 512, "[PAD]", "[MASK]"]
    assert "model_input_names" not in config
    for file in ("vocab.txt", "tokenizer_config.json", None):
        assert read_tokenization(str(tmp_path)) == (tokenization, ())
        if file:
            (tmp_path / file).unlink()
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = BertTokenizer(tokenization.vocabulary, tokenization.do_lower_case)
    for text in (TEXT, "a" + "s" * 150):  # transformers' own stop at a hundred letters
        expected = [ours.cls_id, *ours.tokenize([text]).to_list()[0], ours.sep_id]
        assert theirs.encode(text).ids == expected and len(expected) > 8
    assert theirs.encode("cat", "sat").type_ids == [0, 0, 0, 1, 1]
    assert theirs.encode("a [MASK]").ids[2] == tokenization.vocabulary.index("[MASK]")
    write_tokenization(str(tmp_path), tokenization, 512, types=1)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["model_input_names"] == ["input_ids", "attention_mask"]


@pytest.mark.parity
@pytest.mark.slow
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
