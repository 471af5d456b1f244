"""Vocabularies: files and warnings."""

import pytest

from bert_tf.pipelines import vocabulary
from bert_tf.pipelines.corpora.sources import from_documents
from bert_tf.pipelines.pretraining.dataset import RowOptions, describe_rows
from bert_tf.pipelines.vocabulary_warnings import marks_note, markup_note, unknown_note
from bert_tf.pipelines.wordpiece import BertTokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize(
    ("name", "size", "cls_id", "line", "piece"),
    [
        ("bert-base-uncased", 30522, 101, 30521, "##～"),
        ("bert-base-cased", 28996, 101, 28995, "##："),
        ("bert-base-multilingual-cased", 119547, 101, 119546, "##𩾌"),
        ("bert-base-chinese", 21128, 101, 343, "\u2028"),
    ],
)
def test_released_vocabularies(data_dir, name, size, cls_id, line, piece):
    vocab = vocabulary.load_vocabulary(str(data_dir / "vocab" / f"{name}.txt"))
    assert len(vocab) == len(set(vocab)) == size
    assert vocab.index("[CLS]") == cls_id
    assert vocab[line] == piece


def write(tmp_path, content: bytes) -> str:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    return str(path)


def test_ids_are_line_numbers_for_all_line_endings(tmp_path):
    pieces = [*SPECIALS, "a", "\u2028", "##\u2028", "\x85", "é"]
    for end in (b"\n", b"\r\n", b" \n"):
        content = end.join(piece.encode() for piece in pieces)
        for tail in (b"", end, end + end):
            assert vocabulary.load_vocabulary(write(tmp_path, content + tail)) == pieces
    marked = b"\xef\xbb\xbf" + "\n".join(pieces).encode()
    assert vocabulary.load_vocabulary(write(tmp_path, marked)) == pieces


def test_save_and_load(tmp_path):
    path = str(tmp_path / "new" / "vocab.txt")
    for last in ("z", "y"):
        vocabulary.save_vocabulary(path, [*SPECIALS, "\u2028", "##é", last])
        assert vocabulary.load_vocabulary(path) == [*SPECIALS, "\u2028", "##é", last]


@pytest.mark.parametrize("piece", ["a b\n", " a", "a\r"])
def test_save_rejects_whitespace_in_pieces(tmp_path, piece):
    message = "for line 6 has whitespace that the file cannot store. Remove it"
    with pytest.raises(ValueError, match=message):
        vocabulary.save_vocabulary(str(tmp_path / "vocab.txt"), [*SPECIALS, piece])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n", "expected one piece per line"),
        (b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\n", "line 3 is empty"),
        (b"[PAD]\n[CLS]\na\n[SEP]\n", r"lacks \[UNK\], \[MASK\]: expected .* 4 lines"),
        (b"[PAD]\n[UNK]\nthe\n[CLS]\n[SEP]\n[MASK]\nthe\n", "'the' is on line 3 and line 7"),
        (b"[PAD]\n[UNK]\nab\xff\n", r"line 3 is not UTF-8 \(byte 14 of the file\)"),
    ],
)
def test_invalid_vocabulary_file_raises_error(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=f"{path}.* {message}"):
        vocabulary.load_vocabulary(path)
    for missing in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(ValueError, match=r"No such vocabulary file: '.*one piece per line"):
            vocabulary.load_vocabulary(str(missing))


# === Learning ===


@pytest.mark.parametrize(
    ("kind", "template"),
    [("SentencePiece's", "▁{}"), ("byte-level BPE's", "Ġ{}"), ("BPE's", "{}</w>")],
)
def test_non_wordpiece_vocabulary_raises_error(kind, template):
    pieces = [*vocabulary.SPECIAL_TOKENS, *map(template.format, "abc"), *"abc"]
    message = (
        f"Vocabulary m: expected WordPiece, got 3 of 11 pieces that are {kind}, such as .*. Use "
        "the model's own tokenizer, and pass its ids to the model"
    )
    with pytest.raises(ValueError, match=message):
        vocabulary.check_is_wordpiece(pieces, "m")
    # Some Maltese words start this way, and multilingual vocabularies contain the marks.
    vocabulary.check_is_wordpiece([*pieces, "##a", "##b", "##c"], "m")


# === Warnings ===

LETTERS = [*"abcdeghilmnoprstuy.", *(f"##{letter}" for letter in "abcdeghilmnoprstuy")]
UNCASED = BertTokenizer([*SPECIALS, *LETTERS])
CASED = BertTokenizer([*SPECIALS, *LETTERS], do_lower_case=False)


@pytest.mark.parametrize(
    "text, examples",
    [
        ("私はごはんを食べながら、がくせいの本を読む。", r"(が, ご, べ)"),
        ("나는 학교에 간다.", r"(나, 는, 학, 교, 에)"),
        ("यह पुस्तक बहुत अच्छी थी।", r"(ु, ्)"),
        ("แม่กำลังทำอาหาร", r"(่, ั)"),
        ("我每天在学校学习汉语。", None),
        ("L'été à la plage était très agréable.", None),
        ("Tôi học tiếng Việt ở trường. Đó là がく.", None),
        ("Мой ёж ещё спит.", None),
    ],
)
def test_note_about_stripped_marks_in_caseless_text(text, examples):
    note = marks_note(from_documents([[text]]))
    assert (note is None) if examples is None else (examples in note)
    assert examples is None or note.endswith("pass --do_lower_case=false.")


@pytest.mark.parametrize(
    "texts, tokenizer, expected",
    [
        (["A plain test. " * 10, "Ünaccented"], UNCASED, None),
        (["a b " * 49 + "z"], UNCASED, None),  # one of 99 words
        (["a " * 40 + "zoo zebra jazz"], UNCASED,
         "7.0% of the words in a sample become [UNK], such as zoo, zebra, jazz: "
         "the vocabulary lacks z, j."),
        (["a Big Big Dog"], CASED,
         "75.0% of the words in a sample become [UNK], such as Big, Dog: the "
         "vocabulary lacks the capitals B, D, and do_lower_case is false."),
        (["a " + "b" * 201], CASED,
         f"such as {'b' * 28}...{'b' * 29}: these words are too long or have no matching pieces."),
        (["a 猫 狗"], UNCASED, "such as 猫, 狗: the vocabulary lacks 猫, 狗."),
    ],
)  # fmt: skip
def test_note_about_unknown_words_states_likely_cause(texts, tokenizer, expected):
    note = unknown_note(texts, tokenizer)
    assert (note is None) if expected is None else (expected in note)


def _lines(documents, **rows):
    return describe_rows(from_documents(documents), UNCASED, RowOptions(**rows))[1:]


def test_notes_about_single_sentences_and_chinese_whole_words():
    single = [[f"the letter {letter}"] for letter in "abcdeghi"]
    (line,) = _lines(single)
    assert line == (
        "In 100% of the pairs, the second text is from another document, because most documents "
        "have one short sentence. Pass --pairs=false to pretrain."
    )
    assert _lines(single, pairs=False) == []
    assert _lines([["a b c. "] * 20] * 4, masking="whole_word") == []
    chinese, _ = _lines([["我每天在学校学习汉语。"] * 20] * 4, masking="whole_word")
    assert chinese.startswith("Whole-word masking has no effect on Chinese text")


def test_note_about_duplicate_documents():
    documents = [[f"a {letter} {other}."] * 9 for letter in "abcd" for other in "abcde"]
    assert not [line for line in _lines(documents) if "copies" in line]
    assert _lines(documents + documents[:4])[0] == (
        "4 of 24 documents (17%) are copies, so training repeats them. Remove the copies unless "
        "this is intended."
    )
    assert not [line for line in _lines(documents + documents[:2]) if "copies" in line]
    assert not [line for line in _lines(documents[:1] * 19) if "copies" in line]


@pytest.mark.parametrize(
    ("marked", "expected"),
    [("<p class='x'>a</p>", "<p class='x'>"), ("a &amp; b", "&amp;"), ("a <b", ""), ("AT&T;", "")],
)
def test_note_about_html_markup(marked, expected):
    note = markup_note([marked] * 3 + ["plain"] * 97)
    assert (
        (note is None) if not expected else (f"such as {expected}, which is read as text" in note)
    )
    assert markup_note([marked] * 2 + ["plain"] * 98) is None


def test_note_about_cased_vocabulary_on_lower_cased_text():
    cased = BertTokenizer([*SPECIALS, *LETTERS, "The"])
    lines = describe_rows(from_documents([["the top."] * 20] * 4), cased, RowOptions())
    assert lines[1] == (
        "The vocabulary seems to be cased: 1 pieces have capitals, such as 'The', but the text is "
        "lower-cased. To preserve the case, pass --do_lower_case=false."
    )
