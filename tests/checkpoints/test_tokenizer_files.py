"""Reading and writing tokenizer files."""

import dataclasses
import json

import pytest
import tokenizers

from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tokenizer_files import (
    BERT_RULES,
    read_tokenization,
    read_vocabulary,
    write_tokenization,
)
from bert_tf.pipelines.text_rules import AddedToken, TextRules
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from tests.checkpoints.small_checkpoints import CASED, PIECES, UNCASED

LOWER = [piece.lower() if piece == "Cat" else piece for piece in PIECES if piece != "cat"]
TEXT = "A Cat sat unable. CATs É 中a xyz"


def with_bert_rules(tokenization):
    """Applies the rules of BertTokenizer in transformers to a tokenization."""
    return dataclasses.replace(tokenization, rules=BERT_RULES).with_special_tokens(True)


def _write(folder, **files):
    """Writes files by name: strings as .txt, bytes and other values as .json."""
    for name, value in files.items():
        if isinstance(value, str):
            (folder / f"{name}.txt").write_text(value)
        else:
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            (folder / f"{name}.json").write_bytes(content)


def _lines(pieces):
    return "".join(f"{piece}\n" for piece in pieces)


def _tokenizer_json(pieces=PIECES, **changes):
    """Returns the contents of tokenizer.json as written by Hugging Face."""
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
        "added_tokens": [
            {"id": at, "content": token, "special": True} for at, token in enumerate(SPECIAL_TOKENS)
        ],
        "post_processor": {
            "type": "BertProcessing",
            "cls": ["[CLS]", pieces.index("[CLS]")],
            "sep": ["[SEP]", pieces.index("[SEP]")],
        },
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab},
        **changes,
    }


# === Reading ===


@pytest.mark.parametrize("lower", [True, False])
def test_casing_is_set_by_caller_or_config_or_vocabulary(tmp_path, lower):
    expected = Tokenization(PIECES, lower), ()
    _write(tmp_path, vocab=_lines(PIECES))
    assert read_vocabulary(str(tmp_path), lower) == expected
    _write(tmp_path, tokenizer_config={"do_lower_case": lower})
    assert read_vocabulary(str(tmp_path)) == expected
    pieces, casing = (LOWER, "uncased") if lower else (PIECES, "cased")
    (tmp_path / "tokenizer_config.json").unlink()
    _write(tmp_path, vocab=_lines(pieces))
    tokenization, notes = read_vocabulary(str(tmp_path))
    assert tokenization == Tokenization(tuple(pieces), lower)
    assert notes == (
        f"{tmp_path} does not specify do_lower_case. Assumed from the vocabulary: {casing}.",
    )


SWITCHES = "strip_accents and split_ideographs"
EMPTY = "expected 1 to 256 characters without U+0001 to U+0004, got 0"


def test_saved_rules_are_read_and_validated(tmp_path):
    _write(tmp_path, vocab=_lines(PIECES))
    token = AddedToken("cat", PIECES.index("cat"), normalized=True, single_word=True)
    rules = TextRules("tokenizers", 100, False, pair_types=False, added_tokens=(token,))
    read, notes = read_vocabulary(str(tmp_path), True, json.loads(json.dumps(rules.to_json())))
    assert read == Tokenization(PIECES, True, rules) and notes == ()
    keys = "characters, max_word_length, strip_accents, split_ideographs, pair_types, "
    keys += "split_special_tokens, added_tokens"
    for values, reason in (
        ({"characters": "mine"}, "characters='mine'"),
        ({"max_word_length": True}, "invalid value max_word_length=True"),
        ({"max_word_length": 0}, "max_input_chars_per_word=0: expected 1 to 10,000"),
        ({"strip_accents": True}, f"{SWITCHES} need characters='tokenizers'"),
        ({"other": 1}, f"expected an object with {keys}, got {{'other': 1}}"),
        ({"added_tokens": [{"content": "cat", "id": 2}]}, "piece 2 is not 'cat'"),
        ({"added_tokens": [{"content": "", "id": 2}]}, EMPTY),
        ({"added_tokens": [{"content": "cat", "id": "2"}]}, "invalid value id='2'"),
        ({"added_tokens": [{"id": 2}]}, "missing 1 required positional argument"),
        ({"added_tokens": {"cat": 2}}, "added_tokens: expected a list, got {'cat': 2}"),
        ([], f"expected an object with {keys}, got []"),
    ):
        tokenization, (note,) = read_vocabulary(str(tmp_path), True, values)
        assert tokenization is None
        prefix = f"No preprocessor was created: {tmp_path}: invalid tokenization rules: "
        assert note.startswith(prefix) and reason in note


def test_bert_tokenizer_ignores_settings_of_tokenizer_json(tmp_path):
    """Only PreTrainedTokenizerFast applies them."""
    cased = {"do_lower_case": False}
    _write(tmp_path, tokenizer=_tokenizer_json(), tokenizer_config=cased)
    assert read_tokenization(str(tmp_path)) == (with_bert_rules(CASED), ())
    _write(tmp_path, tokenizer_config={})
    tokenization, (note, other) = read_tokenization(str(tmp_path))
    assert tokenization.do_lower_case and "the vocabulary is cased" in note
    assert (
        "as in transformers, tokenizer_class overrides settings in tokenizer.json: lowercase."
    ) in other
    changes = {**_model(max_input_chars_per_word=20), "post_processor": None}
    _write(tmp_path, tokenizer=_tokenizer_json(**changes), tokenizer_config=cased)
    tokenization, (note,) = read_tokenization(str(tmp_path))
    assert tokenization == with_bert_rules(CASED)
    assert (
        "overrides settings in tokenizer.json: max_input_chars_per_word, post_processor."
    ) in note
    _write(tmp_path, tokenizer=_tokenizer_json(), tokenizer_config={})
    assert read_tokenization(str(tmp_path), False)[0] == with_bert_rules(CASED)
    _write(tmp_path, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    tokenization, notes = read_tokenization(str(tmp_path))
    assert not tokenization.do_lower_case and not tokenization.rules.pair_types and not notes
    _write(tmp_path, vocab=_lines(PIECES), tokenizer_config=cased)
    assert read_tokenization(str(tmp_path)) == (with_bert_rules(CASED), ())


def test_added_tokens_are_appended_to_the_vocabulary(tmp_path):
    """They are listed in tokenizer.json, in older files, or as special tokens."""
    added = [{"id": len(PIECES), "content": "NewTok"}, {"id": 3, "content": "[SEP]"}]
    _write(tmp_path, tokenizer=_tokenizer_json(added_tokens=added))
    _write(tmp_path, tokenizer_config={"do_lower_case": False, "image_token": "<x>"})
    tokenization, notes = read_tokenization(str(tmp_path))
    assert tokenization.vocabulary == (*PIECES, "NewTok", "<x>") and notes == ()
    new = AddedToken("NewTok", 15, normalized=True, is_piece=False)
    image = AddedToken("<x>", 16, special=True, is_piece=False)
    assert {new, image} < {*tokenization.rules.added_tokens}
    (tmp_path / "tokenizer.json").unlink()
    _write(tmp_path, vocab=_lines(PIECES), added_tokens={"NewTok": 15})
    _write(tmp_path, special_tokens_map={"additional_special_tokens": ["[Y]"], "bos_token": "[B]"})
    tokenization, notes = read_tokenization(str(tmp_path))
    assert tokenization.vocabulary == (*PIECES, "NewTok", "[B]", "<x>", "[Y]") and notes == ()


def test_tokenizer_config_precedes_model_config(tmp_path):
    _write(tmp_path, vocab=_lines(PIECES), added_tokens={"[PAD]": 0})
    _write(tmp_path, config={"tokenizer_class": "BertJapaneseTokenizer"})
    values = {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}
    _write(tmp_path, tokenizer_config=values)  # takes precedence
    assert read_tokenization(str(tmp_path)) == (with_bert_rules(CASED), ())
    # Some tools strip white-space pieces, which the released Chinese vocabulary contains.
    _write(tmp_path, vocab=_lines([*PIECES, "\u2028"]), tokenizer=_tokenizer_json([*PIECES, ""]))
    assert read_tokenization(str(tmp_path))[0].vocabulary == (*PIECES, "\u2028")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": {"truncation_side": "left"}}, "truncation_side='left': long "
         "texts are truncated on the right"),
        ({"tokenizer_config": {"padding_side": "left"}}, "padding_side='left': padding is added "
         "on the right"),
        ({"tokenizer_config": {"new_key": 1}}, "unknown keys are ignored: 'new_key'"),
        ({"tokenizer": {"truncation": {"direction": "Left", "stride": 0}}},
         "truncation.direction='Left': long texts are truncated on the right."),
    ],
)  # fmt: skip
def test_ignored_settings_add_note(tmp_path, files, message):
    _write(
        tmp_path,
        tokenizer=_tokenizer_json(**files.get("tokenizer", {})),
        tokenizer_config={"do_lower_case": False, **files.get("tokenizer_config", {})},
    )
    tokenization, (note,) = read_tokenization(str(tmp_path))
    assert tokenization == with_bert_rules(CASED) and message in note


def _model(**changes):
    return {"model": {**_tokenizer_json()["model"], **changes}}


SWAPPED = {piece: index for index, piece in enumerate(PIECES)} | {"cat": 5}


def _normalizer(**settings):
    return {"normalizer": {"type": "BertNormalizer", **settings}}


def _template(single="[CLS] A [SEP]", pair="[CLS] A [SEP] B [SEP]", second=1):
    def parts(text, types):
        kinds = {True: "Sequence", False: "SpecialToken"}
        return [
            {kinds[len(part) == 1]: {"id": part, "type_id": kind}}
            for part, kind in zip(text.split(), types, strict=False)
        ]

    known = {token: {"id": token, "ids": [at]} for at, token in enumerate(SPECIAL_TOKENS)}
    types = (0, 0, 0, second, second)
    rows = {"single": parts(single, types), "pair": parts(pair, types)}
    return {"post_processor": {"type": "TemplateProcessing", **rows, "special_tokens": known}}


PLAIN = {"vocab": _lines(PIECES), "tokenizer_config": {"do_lower_case": False}}
MODEL_CASES = [
    ({"model": {"type": "BPE", "vocab": {}}}, "model: expected a WordPiece model, got {'type'"),
    ({"model": None}, "model: expected a WordPiece model, got None."),
    (_model(vocab=["a"]), "model.vocab: expected an object of tokens and ids, got ['a']"),
    (_model(vocab=SWAPPED), "model.vocab: expected each id from 0 to 14 once, for 15 tokens"),
    ({"added_tokens": {}}, "added_tokens: expected a list, got {}"),
    ({"added_tokens": [{"id": "15", "content": "a"}]}, "expected an added token and its id, got "),
    ({"added_tokens": [{"id": 15, "content": "a", "lstrip": 1}]}, "expected an added token, got {"),
    ({"added_tokens": [{"id": 19, "content": "[X]"}]},
     "tokenizer.json: id of the added token '[X]': expected 15 (its id in the vocabulary, or the "
     "next id), got 19"),
    ({"added_tokens": [{"id": 15, "content": " x", "normalized": True}]},
     "expected no white space at the ends and no line breaks, which vocab.txt cannot store"),
    ({"added_tokens": [{"id": 15, "content": "\n"}]}, "added token '\\n': expected no white space "
     "at the ends and no line breaks, which vocab.txt cannot store"),
    ({"added_tokens": [{"id": 15, "content": "\u00ad", "normalized": True}]},
     "is empty once normalized"),
    ({"added_tokens": [{"id": 15 + at, "content": f"{at:0250}"} for at in range(500)]},
     "The added tokens have more than 120,000 bytes"),
]  # fmt: skip
TEMPLATES = ": expected [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."
JSON_CASES = [
    (_model(unk_token="<unk>"), "model.unk_token='<unk>': expected '[UNK]'; only BERT's token is "
     "supported"),
    (_model(continuing_subword_prefix=""), "prefix='': expected '##'; only BERT's prefix is "
     "supported"),
    (_model(max_input_chars_per_word=0), "max_input_chars_per_word=0: expected 1 to 10,000"),
    (_model(max_input_chars_per_word="9"), "max_input_chars_per_word='9': expected an integer."),
    ({"normalizer": {"type": "NFC"}}, "normalizer.type='NFC': expected 'BertNormalizer'"),
    ({"normalizer": None}, "normalizer=None: expected an object."),
    ({"pre_tokenizer": None}, "pre_tokenizer=None: expected an object."),
    ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer.type='Metaspace': expected "
     "'BertPreTokenizer'"),
    (_normalizer(clean_text=False), "clean_text=False: expected True; control characters are "
     "always removed"),
    (_normalizer(lowercase="no"), "lowercase='no': expected true or false."),
    ({"post_processor": None}, "post_processor=None: expected [CLS] A [SEP] and [CLS] A [SEP] B "
     "[SEP]."),
    (_template(single="[CLS] A"), TEMPLATES),
    (_template(pair="[CLS] A [SEP] B"), TEMPLATES),
    (_template(second=2), TEMPLATES),
    ({"post_processor": {"single": [{"SpecialToken": {}}]}}, TEMPLATES),
    ({"post_processor": {"single": 5, "special_tokens": [1]}}, TEMPLATES),
    ({"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 9]}},
     TEMPLATES),
]  # fmt: skip
CONFIG_CASES = [
    ({"tokenizer_class": "BertJapaneseTokenizer"},
     "class='BertJapaneseTokenizer': expected BertTokenizer"),
    ({"tokenizer_class": "TokenizersBackend"},
     "has no tokenizer.json, which tokenizer_class=TokenizersBackend requires."),
    ({"word_tokenizer_type": "mecab"},
     "word_tokenizer_type='mecab': expected 'basic'; only BERT's basic tokenizer is supported"),
    ({"subword_tokenizer_type": "character"},
     "subword_tokenizer_type='character': expected 'wordpiece'"),
    ({"cls_token": "<s>"}, "cls_token='<s>': expected [CLS]."),
    ({"do_lower_case": "no"}, "do_lower_case='no': expected true or false."),
    ({"extra_special_tokens": "xyz"},
     "extra_special_tokens: expected a list or an object of tokens, got 'xyz'"),
    ({"added_tokens_decoder": []}, "added_tokens_decoder: expected an object, got []."),
    ({"added_tokens_decoder": {"16": {"content": "[X]"}}},
     "expected 15 (its id in the vocabulary, or the next id), got 16"),
]  # fmt: skip
RUNS = {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}}
CASES = [
    ({}, "has no vocabulary. Add its vocab.txt."),
    # As in the Japanese BERT models of Tohoku University.
    ({**PLAIN, "config": {"tokenizer_class": "BertJapaneseTokenizer"}},
     "tokenizer_class='BertJapaneseTokenizer': expected BertTokenizer"),
    ({**PLAIN, "added_tokens": {"[X]": 16}},
     "added_tokens.json: id of the added token '[X]': expected 15 (its id in the vocabulary, or "
     "the next id), got 16"),
    ({"vocab": _lines([*PIECES[:-1], "other"]), "tokenizer": _tokenizer_json()},
     "tokenizer.json have different vocabularies (15 and 15 tokens). Remove the one that the "
     "model was not trained with."),
    ({"vocab": "a\na\n"}, "'a' is on line 1 and line 2"),
    ({**PLAIN, "tokenizer_config": b"{"}, "tokenizer_config.json is not JSON"),
    *(({"tokenizer": _tokenizer_json(**changes)}, note) for changes, note in MODEL_CASES),
    *(({**RUNS, "tokenizer": _tokenizer_json(**changes)}, note) for changes, note in JSON_CASES),
    *(
        ({**PLAIN, "tokenizer_config": {"do_lower_case": False, **setting}}, note)
        for setting, note in CONFIG_CASES
    ),
]  # fmt: skip


@pytest.mark.parametrize(("files", "note"), CASES)
def test_unsupported_tokenizer_has_no_preprocessor(tmp_path, files, note):
    _write(tmp_path, **files)
    tokenization, (*_, last) = read_tokenization(str(tmp_path))
    assert tokenization is None
    assert last.startswith("No preprocessor was created: ") and note in last


def test_files_of_transformers_4_and_5_are_read(tmp_path):
    values = _tokenizer_json(**_template())
    values["model"] |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    config = {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True}
    config |= {f"{name[1:-1].lower()}_token": name for name in SPECIAL_TOKENS}
    new = {"backend": "tokenizers", "tokenizer_class": "BertTokenizer", "model_max_length": 10**30}
    old = {"do_basic_tokenize": True, "never_split": None, "clean_up_tokenization_spaces": True}
    added = {
        str(index): {"content": name, "special": True} for index, name in enumerate(SPECIAL_TOKENS)
    }
    old |= {"added_tokens_decoder": added, "tokenizer_class": "BertTokenizerFast"}
    for more in (new, old):
        _write(tmp_path, tokenizer=values, tokenizer_config={**config, **more})
        assert read_tokenization(str(tmp_path)) == (with_bert_rules(CASED), ())


# === Writing ===


NEW = AddedToken("NewTok", len(PIECES), normalized=True, single_word=True, is_piece=False)
WITH_NEW = dataclasses.replace(
    with_bert_rules(UNCASED),
    vocabulary=(*UNCASED.vocabulary, "NewTok"),
    rules=dataclasses.replace(
        with_bert_rules(UNCASED).rules,
        strip_accents=False,
        split_ideographs=False,
        split_special_tokens=True,
        added_tokens=(*with_bert_rules(UNCASED).rules.added_tokens, NEW),
    ),
)
WRITTEN = {
    "google_cased": CASED,
    "google_uncased": UNCASED,
    "cased": with_bert_rules(CASED),
    "uncased": with_bert_rules(UNCASED),
    "added": WITH_NEW,
}
TEXTS = [TEXT, "a" + "s" * 150, "a [SEP] cat [MASK]", "a NEWTOK newtoks É"]


@pytest.mark.parametrize("tokenization", WRITTEN.values(), ids=WRITTEN)
def test_written_files_are_read_by_bert_tf_and_tokenizers(tmp_path, tokenization):
    notes = write_tokenization(str(tmp_path), tokenization, 512)
    is_google = not tokenization.rules.to_json()
    assert len(notes) == is_google  # a note on different character tables
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    class_name = "PreTrainedTokenizerFast" if is_google else "BertTokenizer"
    keys = ("tokenizer_class", "model_max_length", "pad_token", "mask_token")
    assert [config[key] for key in keys] == [class_name, 512, "[PAD]", "[MASK]"]
    assert config.get("split_special_tokens", False) == (is_google or tokenization is WITH_NEW)
    ours = tokenization.to_tokenizer()
    for file in ("vocab.txt", None):
        read, read_notes = read_tokenization(str(tmp_path))
        assert not read_notes and (is_google or read == tokenization)
        again = read.to_tokenizer()
        assert again.tokenize(TEXTS).to_list() == ours.tokenize(TEXTS).to_list()
        if file:
            (tmp_path / file).unlink()
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = config.get("split_special_tokens", False)
    for text in TEXTS:
        expected = [ours.cls_id, *ours.tokenize([text]).to_list()[0], ours.sep_id]
        assert theirs.encode(text).ids == expected, text
    assert theirs.encode("cat", "sat").type_ids == [0, 0, 0, 1, 1]
    write_tokenization(str(tmp_path), tokenization, 512, types=1)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["model_input_names"] == ["input_ids", "attention_mask"]
    notes = write_tokenization(str(tmp_path), tokenization, 512, finds_mask=True)
    assert "split_special_tokens" not in (tmp_path / "tokenizer_config.json").read_text()
    has_mask_note = any("it recognizes [MASK]" in note for note in notes)
    assert has_mask_note == (is_google or tokenization is WITH_NEW)


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("tokenization", WRITTEN.values(), ids=WRITTEN)
def test_written_files_are_read_by_transformers(tmp_path, tokenization):
    transformers = pytest.importorskip("transformers")
    write_tokenization(str(tmp_path), tokenization, 512)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    ours = tokenization.to_tokenizer()
    for text in TEXTS:
        assert theirs(text)["input_ids"][1:-1] == ours.tokenize([text]).to_list()[0]
    assert theirs("cat", "sat")["token_type_ids"] == [0, 0, 0, 1, 1]
    assert theirs.model_max_length == 512
    assert (theirs.pad_token_id, theirs.mask_token_id) == (0, 4)
