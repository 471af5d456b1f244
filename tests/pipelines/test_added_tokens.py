"""Rules and added tokens of Hugging Face tokenizers, compared with the package ``tokenizers``."""

import dataclasses
import gzip
import itertools
import pathlib
import random

import pytest
import tensorflow as tf
import tokenizers

from bert_tf.pipelines.normalization import WordSplitter
from bert_tf.pipelines.text_rules import AS_GOOGLE, TOKENIZERS, AddedToken, TextRules
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS, load_vocabulary
from bert_tf.pipelines.wordpiece import BertTokenizer

WORDS = [*"abcxyz09[]<>#.,-'é中文가", "new", "##a", "##b", "##c", "##x", "##y", "##é", "ab", "##中"]
PIECES = [*SPECIAL_TOKENS, *WORDS]
SPECIAL = tuple(AddedToken(token, at, special=True) for at, token in enumerate(SPECIAL_TOKENS))
AS_TOKENIZERS = TextRules(TOKENIZERS, max_word_length=100, added_tokens=SPECIAL)
FLAGS = ("special", "normalized", "single_word", "lstrip", "rstrip")


def make_hf_tokenizer(vocab, lower, rules):
    """Creates the tokenizer of ``tokenizers`` with the same rules."""
    added = {token.content for token in rules.added_tokens if not token.is_piece}
    pieces = {piece: at for at, piece in enumerate(vocab) if piece not in added}
    max_length = rules.max_word_length
    peer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=max_length)
    )
    peer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=lower,
        strip_accents=rules.strip_accents,
        handle_chinese_chars=rules.split_ideographs,
    )
    peer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    for token in rules.added_tokens:
        how = {flag: getattr(token, flag) for flag in FLAGS}
        peer.add_tokens([tokenizers.AddedToken(token.content, **how)])
        assert peer.token_to_id(token.content) == token.id
    peer.encode_special_tokens = rules.split_special_tokens
    return peer


def assert_equals_hf(vocab, lower, rules, texts):
    peer, ours = make_hf_tokenizer(vocab, lower, rules), BertTokenizer(vocab, lower, rules)
    theirs = [row.ids for row in peer.encode_batch(texts, add_special_tokens=False)]
    for text, row, expected in zip(texts, ours.tokenize(texts).to_list(), theirs, strict=True):
        assert row == expected, (ascii(text), lower, rules)


def random_rules(rng):
    """Draws a vocabulary with added tokens, and rules with random flags."""
    letters = "aAbxé[]<>.- 中文가\u0301"
    contents = ["".join(rng.choices(letters, k=rng.randrange(1, 5))) for _ in range(3)]
    contents += rng.sample(["new", "New York", "[X]", "##a", "ab", "É", "中", "x-y", "[SEP]b"], 4)
    rules = TextRules(
        characters=TOKENIZERS,
        max_word_length=rng.choice([3, 100]),
        strip_accents=rng.choice([None, True, False]),
        split_ideographs=rng.random() < 0.7,
        split_special_tokens=rng.random() < 0.3,
    )
    vocab, tokens, seen = [*PIECES], [], {""}
    for content in contents:
        # If two tokens have equal normalized text, the peer may match either one.
        key = "".join(content.split()).casefold().translate({0x301: "", ord("é"): "e"})
        if key in seen or content in SPECIAL_TOKENS:
            continue
        seen.add(key)
        if is_new := content not in vocab:
            vocab.append(content)
        flags = {flag: rng.random() < 0.5 for flag in FLAGS}
        flags["normalized"] &= content == content.strip()
        tokens.append(AddedToken(content, vocab.index(content), **flags, is_piece=not is_new))
    return vocab, dataclasses.replace(rules, added_tokens=(*SPECIAL, *tokens))


def random_texts(rng, vocab, count):
    """Draws texts in which tokens are words, adjoin letters or contain each other."""
    parts = [*vocab, *"aAbx  .-é中文É_\u0301\u200b\x01\x03\ue000", "NEW", "new york", "[sep]"]
    return ["".join(rng.choices(parts, k=rng.randrange(9))) for _ in range(count)]


@pytest.mark.parametrize("count", [3, pytest.param(400, marks=pytest.mark.slow)])
def test_random_added_tokens_match_hf_tokenizers(count):
    rng = random.Random(count)
    for _ in range(count):
        vocab, rules = random_rules(rng)
        assert_equals_hf(vocab, rng.random() < 0.5, rules, random_texts(rng, vocab, 150))


@pytest.mark.parametrize(
    ("step", "lower", "strip", "splits"),
    [
        (37, True, None, True),
        (111, True, False, False),
        *(
            pytest.param(1, *values, marks=pytest.mark.slow)
            for values in itertools.product((True, False), (None, True, False), (True, False))
        ),
    ],
)
def test_every_character_matches_hf_tokenizers(step, lower, strip, splits):
    """Compares all characters in the tables, and a sample of the others."""
    rules = dataclasses.replace(AS_TOKENIZERS, strip_accents=strip, split_ideographs=splits)
    codes = [
        code
        for code in (*range(1, 0x40000, step), *range(0xE0000, 0x110000, 61 * step))
        if not 0xD800 <= code < 0xE000
    ]
    texts = [f"a{chr(code)}b {chr(code)}\u302e\u1b44" for code in codes]
    peer = make_hf_tokenizer(PIECES, lower, rules)
    splitter = WordSplitter(lower, rules)
    for at in range(0, len(texts), 1 << 16):
        some = texts[at : at + (1 << 16)]
        words = splitter(tf.constant(some)).words.to_list()
        for text, found in zip(some, words, strict=True):
            normalized_text = peer.normalizer.normalize_str(text)
            expected = peer.pre_tokenizer.pre_tokenize_str(normalized_text)
            assert [word.decode() for word in found] == [word for word, _ in expected], ascii(text)
        vocab = list(dict.fromkeys([*PIECES, *(w.decode() for row in words for w in row)]))
        ours = BertTokenizer(vocab, lower, rules)
        exact = ours._tokenize_exactly(tf.constant(some))
        for got, expected in zip(ours.tokenize_with_offsets(some), exact, strict=True):
            assert got.to_list() == expected.to_list()


@pytest.fixture(scope="module")
def tokenizer_with_added_tokens():
    """Uncased tokenizer with an added word, a two-word token and the special tokens."""
    added = [
        AddedToken("NewTok", len(PIECES), normalized=True, single_word=True, is_piece=False),
        AddedToken("x y", len(PIECES) + 1, lstrip=True, is_piece=False),
        AddedToken("[SEP]b", len(PIECES) + 2, normalized=True, is_piece=False),
    ]
    rules = dataclasses.replace(AS_TOKENIZERS, added_tokens=(*SPECIAL, *added))
    return BertTokenizer([*PIECES, "NewTok", "x y", "[SEP]b"], True, rules)


NEW, TWO, SEP, A, B = len(PIECES), len(PIECES) + 1, 3, PIECES.index("a"), PIECES.index("b")
X, Y = PIECES.index("x"), PIECES.index("y")
# Text, token ids and byte offsets.
EXAMPLES = [
    ("a newtók b", [A, NEW, B], [(0, 1), (2, 9), (10, 11)]),
    ("newtok-[SEP][SEP]x y", [NEW, PIECES.index("-"), SEP, SEP, TWO],
     [(0, 6), (6, 7), (7, 12), (12, 17), (17, 20)]),
    ("newtoks", [1], [(0, 7)]),
    ("é  x y X Y", [1, TWO, X, Y],
     [(0, 2), (4, 7), (8, 9), (10, 11)]),
    ("[sep]b[SEP]b", [len(PIECES) + 2, SEP, B], [(0, 6), (6, 11), (11, 12)]),
    ("", [], []),
    ("a\u200b [PAD]", [A, 0], [(0, 4), (5, 10)]),
    ("\x01\x02 a \x03\x04", [A], [(3, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(
    "form", ["eagerly", "in a dataset", pytest.param("saved", marks=pytest.mark.slow)]
)
def test_offsets(tokenizer_with_added_tokens, tmp_path, form, caplog):
    texts, ids, offsets = zip(*EXAMPLES, strict=True)
    if form == "eagerly":
        found = tokenizer_with_added_tokens.tokenize_with_offsets([*texts])
    elif form == "saved":
        module = tf.Module()
        specification = [tf.TensorSpec([None], tf.string)]
        module.tokenize = tf.function(
            tokenizer_with_added_tokens.tokenize_with_offsets, specification
        )
        tf.saved_model.save(module, str(tmp_path))
        found = tf.saved_model.load(str(tmp_path)).tokenize(tf.constant(texts))
    else:
        rows = tf.data.Dataset.from_tensors([*texts]).map(
            tokenizer_with_added_tokens.tokenize_with_offsets
        )
        found = next(iter(rows))
    assert found[0].to_list() == [*ids]
    spans = zip(found[1].to_list(), found[2].to_list(), strict=True)
    assert [[*zip(*row, strict=True)] for row in spans] == [*offsets]
    assert "AutoGraph" not in caplog.text


def test_texts_without_added_tokens_skip_the_exact_path(tokenizer_with_added_tokens, monkeypatch):
    def fail_if_called(self, strings):
        raise AssertionError(strings)

    monkeypatch.setattr(BertTokenizer, "_tokenize_exactly", fail_if_called)
    lengths = tokenizer_with_added_tokens.tokenize(["a b", "new tok x-y newto"]).row_lengths()
    assert lengths.numpy().tolist() == [2, 6]
    with pytest.raises(AssertionError, match="NewTok"):
        tokenizer_with_added_tokens.tokenize(["a b", "a NewTok"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"content": "x" * 257},
         r"expected 1 to 256 characters without U\+0001 to U\+0004, got 257"),
        ({"content": "a\x01"}, r"characters without U\+0001 to U\+0004"),
        ({"content": " a", "normalized": True},
         "^Added token ' a': whitespace at the ends is not supported with normalized=True"),
    ],
)  # fmt: skip
def test_unmatchable_added_token_raises_error(fields, message):
    with pytest.raises(ValueError, match=message):
        AddedToken(**{"id": 3, **fields})


def test_added_token_empty_after_normalization_raises_error():
    accent = AddedToken("\u0301", len(PIECES), normalized=True, is_piece=False)
    rules = dataclasses.replace(AS_TOKENIZERS, added_tokens=(accent,))
    with pytest.raises(ValueError, match="is empty once normalized"):
        BertTokenizer([*PIECES, "\u0301"], True, rules)
    cased = BertTokenizer([*PIECES, "\u0301"], False, rules)
    assert cased.tokenize(["a\u0301"]).to_list() == [[A, len(PIECES)]]


def test_with_special_tokens_recognizes_or_splits_them():
    unchanged = AS_GOOGLE.with_special_tokens(PIECES, None)
    assert (
        unchanged is AS_GOOGLE and AS_TOKENIZERS.with_special_tokens(PIECES, None) == AS_TOKENIZERS
    )
    for rules, found in ((AS_GOOGLE, True), (AS_TOKENIZERS, False)):
        changed = rules.with_special_tokens(PIECES, found)
        ids = BertTokenizer(PIECES, True, changed).tokenize(["a [SEP]"]).to_list()
        assert ids == [[A, SEP]] if found else len(ids[0]) == 4
        back = changed.with_special_tokens(PIECES, not found)
        assert len(BertTokenizer(PIECES, True, back).tokenize(["a [SEP]"])[0]) == (
            4 if found else 2
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
def test_real_text_matches_hf_tokenizers(data_dir, name):
    lower = "uncased" in name or "chinese" in name
    vocab = load_vocabulary(str(data_dir / "vocab" / f"{name}.txt"))
    texts = []
    for path in sorted((data_dir / "corpora").rglob("*"))[:8]:
        if path.is_file():
            opened = gzip.open if path.suffix == ".gz" else pathlib.Path.open
            with opened(path, "rt", encoding="utf-8") as file:
                texts += [line.strip() for line, _ in zip(file, range(3000), strict=False)]
    ids = map(vocab.index, SPECIAL_TOKENS)
    special = tuple(
        AddedToken(t, at, special=True) for t, at in zip(SPECIAL_TOKENS, ids, strict=True)
    )
    rules = dataclasses.replace(AS_TOKENIZERS, added_tokens=special)
    assert_equals_hf(vocab, lower, rules, texts)
