import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.normalization import code_points
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from tests.pipelines import wordpiece_definition as definition

WORDS = ["un", "##aff", "##able", "hello", "world", ",", "!", "##s", "中", "ας", "σ", "x", "##x"]
VOCAB = [*SPECIAL_TOKENS, *WORDS]
UNK, CLS = 1, 2


def make_full_vocabulary():
    """Returns pieces for every normalized character, so that [UNK] does not hide differences.

    Only some of the many similar ideographs and Hangul syllables are included.
    """
    table = code_points()
    kept = [
        chr(code)
        for code in definition.TYPICAL_CODE_POINTS
        if not table.dropped[code] and not table.space[code] and definition.is_assigned(chr(code))
    ]
    pairs = ["ab", "##ab", "##é", "##xx", "##x\u0301"]
    return list(
        dict.fromkeys([*SPECIAL_TOKENS, *kept, *(f"##{character}" for character in kept), *pairs])
    )


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCAB)


@pytest.fixture(scope="module")
def full_tokenizers():
    """Cased and uncased tokenizers with the full vocabulary, and its ids for the definition."""
    vocab = make_full_vocabulary()
    ids = {piece: index for index, piece in enumerate(vocab)}
    return {lower: BertTokenizer(vocab, lower) for lower in (True, False)}, ids


def assert_equal_to_definition(tokenizer, ids, texts):
    tokens = tokenizer.tokenize(texts)
    assert tokens.dtype == tf.int32
    for text, row in zip(texts, tokens.to_list(), strict=True):
        assert row == definition.tokenize(text, ids, tokenizer.do_lower_case), ascii(text)


def test_examples(tokenizer):
    texts = ["UNAFFABLE, hello!", "", "  ", "unaffables", "Helloworld", "中hello中", "ÜN ΑΣ, ΣΑ Σ"]
    assert tokenizer.tokenize(texts).to_list() == [
        [5, 6, 7, 10, 8, 11],
        [],
        [],
        [5, 6, 7, 12],
        [UNK],
        [13, 8, 13],
        [5, 14, 10, UNK, 15],
    ]


def test_attributes_and_vocabulary_file(tokenizer, tmp_path):
    assert tokenizer.vocab == VOCAB and tokenizer.vocab_size == len(VOCAB) == 18
    special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id]
    assert [*special, tokenizer.mask_id] == [0, 1, 2, 3, 4]
    assert tokenizer.continuation.dtype == bool
    assert np.flatnonzero(tokenizer.continuation).tolist() == [6, 7, 12, 17]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB), encoding="utf-8")
    assert BertTokenizer(str(path)).vocab == BertTokenizer(path).vocab == VOCAB


@pytest.mark.parametrize("do_lower_case", [True, False])
@pytest.mark.parametrize(
    ("count", "seed"), [(2000, 2), pytest.param(20000, 10, marks=pytest.mark.slow)]
)
def test_random_texts_match_the_definition(full_tokenizers, do_lower_case, count, seed):
    tokenizers, ids = full_tokenizers
    texts = definition.random_texts(count, seed)
    assert_equal_to_definition(tokenizers[do_lower_case], ids, texts)


@pytest.mark.parametrize(
    "codes",
    [
        definition.TYPICAL_CODE_POINTS,
        pytest.param(definition.CODE_POINTS, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(len(value)),
)
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_every_code_point_matches_the_definition(full_tokenizers, do_lower_case, codes):
    tokenizers, ids = full_tokenizers
    if codes is definition.TYPICAL_CODE_POINTS and not do_lower_case:
        codes = codes[::4]
    characters = filter(definition.is_assigned, map(chr, codes))
    texts = [f"a{character}b {character} x{character}" for character in characters]
    assert_equal_to_definition(tokenizers[do_lower_case], ids, texts)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_fast_and_exact_paths_give_equal_ids_and_offsets(full_tokenizers, do_lower_case):
    tokenizer = full_tokenizers[0][do_lower_case]
    texts = [*definition.random_texts(1500, seed=3), "a–b", "é\u0301\x00 \u0301x", "각각"]
    exact = tokenizer._tokenize_exactly(tf.constant(texts))
    outputs = tokenizer.tokenize_with_offsets(texts)
    for expected, got in zip(exact, outputs, strict=True):
        assert got.to_list() == expected.to_list()
    assert tokenizer.tokenize(texts).to_list() == exact[0].to_list()


def test_word_length_limit_counts_characters_not_bytes():
    vocab = [*SPECIAL_TOKENS, "x", "##x", "ж", "##ж", "ก", "##ก", "😀", "##😀", "##e"]
    ids = {piece: index for index, piece in enumerate(vocab)}
    texts = [
        f"x {letter * length},{letter * length}e x"
        for letter in "xжก😀é"
        for length in (1, 50, 51, 66, 67, 100, 101, 199, 200, 201, 202, 800, 801)
    ]
    tokenizer = BertTokenizer(vocab)
    assert_equal_to_definition(tokenizer, ids, texts)
    assert tokenizer.tokenize(["ж" * 200, "ж" * 201]).row_lengths().numpy().tolist() == [200, 1]


def test_overlong_words_use_the_fast_path(monkeypatch):
    vocab = [*SPECIAL_TOKENS, "x", "##x", "é", "😀"]
    tokenizer = BertTokenizer(vocab, do_lower_case=False)
    texts = [f" {letter * 801}, x" for letter in ("x", "é", "😀", "x\u0301")]
    expected = [output.to_list() for output in tokenizer.tokenize_with_offsets(texts)]
    exact = [output.to_list() for output in tokenizer._tokenize_exactly(tf.constant(texts))]
    assert expected == exact
    assert_equal_to_definition(tokenizer, {piece: i for i, piece in enumerate(vocab)}, texts)
    monkeypatch.setattr(tokenizer, "_replace_ambiguous", None)  # the exact path would call it
    assert tokenizer.tokenize(texts).to_list() == expected[0]


def test_text_never_yields_special_tokens(tokenizer):
    texts = ["[CLS]", "[MASK] [SEP]", "[PAD]", "##[MASK]", "[ MASK ]", "##x [unk]", "cls"]
    found = set(tokenizer.tokenize(texts).flat_values.numpy().tolist())
    assert not found & {0, 2, 3, 4}
    cased = BertTokenizer([*VOCAB, "[", "]", "MASK", "CLS"], do_lower_case=False)
    assert cased.tokenize(["[MASK]"]).to_list() == [[18, 20, 19]]


def test_vocabulary_with_pieces_that_no_text_can_produce():
    odd = ["##", "#", "a b", "É", "\x11", "\x01", "\x02", "[7]", "e.g.", "##.", "z\x00", "\u2028"]
    vocab = [*SPECIAL_TOKENS, *odd, "a", "é", "##,", "x" * 201, "..."]
    ids = {piece: index for index, piece in enumerate(vocab)}
    texts = ["## # ##a", "É\x11a\x01 \x02", "[7] e.g. a. ...", "a b", "z\x00 a\x02", "x" * 201]
    for do_lower_case in (True, False):
        assert_equal_to_definition(BertTokenizer(vocab, do_lower_case), ids, texts)


def test_offsets(tokenizer):
    texts = ["  Ünaffable, hello", "hello\u0301 \x00中\ufeff!", "ΑΣ, " + "é" * 201 + "\u0301 Σ"]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == [[5, 6, 7, 10, 8], [8, 13, 11], [14, 10, UNK, 15]]
    assert starts.dtype == ends.dtype == tf.int64
    covered = [
        [text.encode()[start:end].decode() for start, end in zip(*offsets, strict=True)]
        for text, *offsets in zip(texts, starts.to_list(), ends.to_list(), strict=True)
    ]
    assert covered == [
        ["Ün", "aff", "able", ",", "hello"],
        ["hello\u0301", "中\ufeff", "!"],
        ["ΑΣ", ",", "é" * 201 + "\u0301", "Σ"],
    ]
    # Offsets into invalid UTF-8.
    ids, starts, ends = tokenizer.tokenize_with_offsets([b"\xffhel\xe4\xb8lo \x80", "ΑΣ".encode()])
    assert ids.to_list() == [[8], [14]]
    assert starts.to_list() == [[1], [0]] and ends.to_list() == [[8], [4]]


def test_private_use_characters_are_letters_and_invalid_bytes_are_ignored(full_tokenizers):
    tokenizers, ids = full_tokenizers
    assert_equal_to_definition(tokenizers[True], ids, ["a\ue000b \ue000", "\U00100000,a"])
    texts = [b"a\xffb", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98x", b"\xed\xa0\x80y", b"\xc0\xafz"]
    texts += [text + "Σ".encode() for text in texts]  # for the exact path
    expected = [definition.tokenize(text.decode("utf-8", "ignore"), ids, True) for text in texts]
    assert tokenizers[True].tokenize(texts).to_list() == expected


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""]])
def test_empty_texts(tokenizer, texts):
    outputs = tokenizer.tokenize_with_offsets(texts)
    assert [output.to_list() for output in outputs] == [[[]] * len(texts)] * 3
    assert tokenizer.tokenize(texts).shape == (len(texts), None)


EXPECTED = r"Expected a vector of strings, shape \(N,\)"
RESHAPE = "Reshape it to a vector; put a single string into a list."


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("tokenize", "hello", rf"{EXPECTED}, got shape \(\)\. {RESHAPE}"),
        ("tokenize_with_offsets", [["a", "b"]], rf"{EXPECTED}, got shape \(1, 2\)\. {RESHAPE}"),
        ("tokenize", [1, 2], rf"{EXPECTED}, got \[1, 2\]\.$"),
    ],
)
def test_non_vector_input_raises_error(tokenizer, method, value, message):
    with pytest.raises(ValueError, match=message):
        getattr(tokenizer, method)(value)


def test_too_long_piece_raises_error():
    message = "Piece 5 of the vocabulary, 'กก.*: expected at most 256 bytes, got 300. Remove or"
    with pytest.raises(ValueError, match=message):
        BertTokenizer([*SPECIAL_TOKENS, "ก" * 100])
    with pytest.raises(ValueError, match=r"Piece 5 .*, .##กก.*expected at most 256 bytes, got 258"):
        BertTokenizer([*SPECIAL_TOKENS, "##" + "ก" * 86])
    # Pieces of the maximum length, and a longer one that no text can produce, are accepted.
    BertTokenizer([*SPECIAL_TOKENS, "ก" * 85, "É" * 200])
    with pytest.raises(ValueError, match="given as a list"):
        BertTokenizer(["a", "b"])


def test_golden_tokens(data_dir):
    tokenizer = BertTokenizer(str(data_dir / "vocab" / "bert-base-uncased.txt"))
    stem = data_dir / "golden" / "tokens" / "ggml-vocab-bert-bge.gguf"
    texts = stem.with_suffix(".gguf.inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    lines = stem.with_suffix(".gguf.out").read_text().split("\n")
    expected = [[int(token) for token in line.split()] for line in lines]
    assert len(expected) == 47
    assert tokenizer.tokenize(texts[:47]).to_list() == expected
