import gzip
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.corpora import formats as corpus_formats
from bert_tf.pipelines.corpora import sources, text_bytes
from tests.tfds_data import write_texts

BOOK = "# A Book\n\nIt was late. He\nslept.\n\nNobody came.\n"
WIKI = "".join(
    f'<doc id="{i}" url="u" title="T{i}">\nT{i}\n\nThis is {i}. It is so.\nMore.\n\n</doc>\n'
    for i in range(40)
)
GOOGLE = "".join(f"This is {i}.\nIt is so.\nMore.\n\n" for i in range(40))
DOCUMENTS = [[f"This is {i}.", "It is so.", "More."] for i in range(40)]


def documents_of(corpus, in_graph=False):
    read = tf.autograph.experimental.do_not_convert(corpus.read_documents)
    if in_graph:
        blocks = tf.data.Dataset.range(corpus.num_blocks).map(read, 2)
    else:
        blocks = map(read, tf.range(corpus.num_blocks, dtype=tf.int64))
    read = [block.to_list() for block in blocks]
    assert [len(block) for block in read] == corpus.documents_per_block.tolist()
    return [[line.decode() for line in document] for block in read for document in block]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("google", GOOGLE, DOCUMENTS),
        ("wikiextractor", WIKI, DOCUMENTS),
        ("prose", BOOK, [["It was late.", "He slept.", "Nobody came."]]),
    ],
)
def test_open_corpus_reads_every_format_plain_and_gzip(tmp_path, name, text, expected, pack):
    (tmp_path / "text").write_bytes(pack(text.encode()))
    corpus = sources.open_corpus(str(tmp_path / "text"))
    assert corpus.formats == (name,)
    assert documents_of(corpus) == expected
    assert corpus.num_documents == len(expected)
    documents = "1 document" if len(expected) == 1 else f"{len(expected)} documents"
    assert corpus.describe() == f"1 file, {name}, {documents}, 0.0 MB, 1 block"


def test_each_json_line_is_a_document(tmp_path):
    texts = [" ".join(document) for document in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": t}) + "\n" for t in texts[:20]))
    lines = "".join(json.dumps({"body": t}) + "\n" for t in texts[20:])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    corpus = sources.open_corpus(
        f"{tmp_path}/*.jsonl*", text_key="body", cache_dir=str(tmp_path / "cache")
    )
    assert corpus.describe() == "2 files, jsonl, 40 documents, 0.0 MB, 2 blocks"
    assert documents_of(corpus) == DOCUMENTS


CARRIAGE_RETURNS = GOOGLE.replace("\n\n", "\n\r\n", 20)


@pytest.mark.parametrize(
    ("text", "block_bytes"),
    [(GOOGLE, 1), (WIKI, 333), (CARRIAGE_RETURNS, 333), (GOOGLE, 5000)],
    ids=["google", "wikiextractor", "carriage returns", "one block"],
)
def test_blocks_cover_the_file(tmp_path, monkeypatch, text, block_bytes):
    monkeypatch.setattr(corpus_formats, "MAX_DOCUMENT_BYTES", 300)
    (tmp_path / "text.txt").write_bytes(text.encode())
    corpus = sources.open_corpus(str(tmp_path / "text.txt"), block_bytes=block_bytes)
    assert corpus.num_blocks == 40 if block_bytes < 8 else corpus.num_blocks < 20
    assert (corpus.num_blocks > 1) == (block_bytes < len(text))
    offsets, lengths = corpus.blocks.offsets, corpus.blocks.lengths
    assert offsets.tolist() == [0, *np.cumsum(lengths)[:-1]] and lengths.sum() == len(text)
    assert documents_of(corpus, in_graph=True) == DOCUMENTS


def test_error_names_the_original_gzip_file(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_formats, "MAX_DOCUMENT_BYTES", 30)
    bad = gzip.compress(GOOGLE.encode() + b"One \xff.")
    at = f"/bad.gz is not UTF-8: invalid byte 0xff at byte offset {len(GOOGLE) + 4} "
    short = gzip.compress(GOOGLE.encode() * 500)[:-9]  # longer than the head
    ended = (
        "/cut.gz is damaged or incomplete (Compressed file ended before the end-of-stream marker "
        "was reached). Copy the gzip file again."
    )
    for name, content, message in (("bad", bad, at), ("cut", short, ended)):
        (tmp_path / f"{name}.gz").write_bytes(content)
        cache = tmp_path / f"{name}_cache"
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path}{message}")):
            sources.open_corpus(f"{tmp_path}/{name}.gz", block_bytes=30, cache_dir=str(cache))
    assert list(cache.iterdir()) == []


# First line, start of the second line, and compression function.
LONG_LINES = {
    "a.txt": (b"It rains.", b"", bytes),
    "a.md": (b"# Rain", b"", bytes),
    "a.jsonl": (b'{"text": "a"}', b'{"text": "', bytes),
    "doc.txt": (b'<doc id="1">', b"", bytes),
    "a.txt.gz": (b"It rains.", b"", gzip.compress),
}


@pytest.mark.parametrize("name", LONG_LINES)
def test_too_long_line_is_named_in_every_format(tmp_path, monkeypatch, name):
    first, begin, pack = LONG_LINES[name]
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", 1 << 18)
    monkeypatch.setenv("BERT_TF_MAX_LINE_MB", "1")
    path = tmp_path / name
    path.write_bytes(pack(first + b"\n" + begin + b"It is late. " * (1 << 18)))
    expected = f"{path}, line 2: expected at most 1 MiB per line, got more. For longer lines, set "
    with pytest.raises(ValueError, match=re.escape(expected)):
        sources.open_corpus(str(path), cache_dir=str(tmp_path / "cache"))


WRONG_FORMAT = (
    "{} is {} according to its name or first line. Pass --input_format={}, or omit the flag."
)
BAD_INPUTS = {
    "white.txt": ({}, "No documents in {0}/white.txt, read as prose"),
    "bad.txt": ({}, "{0}/bad.txt is not UTF-8: invalid byte 0xe9 at byte offset 8 (invalid continu"
                "ation byte). Convert the file, for example with iconv."),
    "bad.*t": ({"block_bytes": 5}, "bad.txt is not UTF-8: invalid byte 0xe9 at byte offset 8"),
    "bad.gz": ({}, "bad.gz is not UTF-8: invalid byte 0xe9 at byte offset 8"),
    "cut.gz": ({}, "cut.gz is damaged or incomplete"),
    "list.jsonl": ({}, "list.jsonl needs a cache folder, because JSON lines and large gzip files "
                   "are packed into blocks. Pass cache_dir."),
    "white.*": ({"input_format": "wikiextractor"}, "white.txt has no line that starts with '<doc "
                "', as in WikiExtractor's output. Pass its format, one of google, wikiextractor, "
                "prose, jsonl."),
    **{
        f"{file[:-1]}*": ({"input_format": given}, WRONG_FORMAT.format(file, kind, kind))
        for file, given, kind in (
            ("list.jsonl", "prose", "jsonl"), ("array.json.gz", "google", "jsonl"),
            ("objects", "prose", "jsonl"), ("wiki.txt", "prose", "wikiextractor"),
        )
    },
    "white.txt,rows.csv": ({}, "rows.csv: expected plain text, got a .csv file. Write its texts to "
                           "a .jsonl or .txt file, or pass --input_format=prose."),
    "rows.tsv.gz": ({}, "rows.tsv.gz: expected plain text, got a .tsv file."),
    "x": ({"input_format": "xml"},
          "Unknown corpus format 'xml': expected one of google, wikiextractor, prose, jsonl."),
    "y": ({"block_bytes": 0}, "block_bytes=0: expected at least 1."),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_invalid_input_raises_error(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    files = {
        "white.txt": b" \n\n \n",
        "bad.txt": b"One.\n\nTw\xe9.\n",
        "bad.gz": gzip.compress(b"One.\n\nTw\xe9.\n"),
        "cut.gz": gzip.compress(GOOGLE.encode())[:-20],
        "list.jsonl": b'{"title": "x"}\n',
        "array.json.gz": gzip.compress(b'[\n{"text": "x"}\n]\n'),
        "objects": b'{"text": "x"}\n',
        "wiki.txt": WIKI.encode(),
        "rows.csv": b"text,label\nIt rains.,a\n",
        "rows.tsv.gz": gzip.compress(b"text\tlabel\nIt rains.\ta\n"),
    }
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    options, message = BAD_INPUTS[name]
    with pytest.raises(ValueError, match=re.escape(message.format(tmp_path))):
        sources.open_corpus(f"{tmp_path}/{name}", **options)


def test_from_documents_validates_and_strips(tmp_path):
    corpus = sources.from_documents([[" One. ", ""], [], ["\n"], ("Two.",)])
    assert documents_of(corpus) == [["One."], ["Two."]]
    assert sources.copy_documents(corpus, str(tmp_path)) is corpus
    message = r"^documents\[1\]: expected a list of sentences, got a string"
    with pytest.raises(ValueError, match=message):
        sources.from_documents([["One."], "Two."])
    with pytest.raises(
        ValueError, match="Expected lists of sentences, got 2 documents without sentences"
    ):
        sources.from_documents([[], [" "]])


def test_copy_of_held_out_documents_is_written_once(tmp_path, monkeypatch):
    texts = [f"This is {i}.\nIt is so.\n" for i in range(120)]
    texts[80:80] = ["\ufeff" + texts[7]] * 2  # a byte order mark inside a file is preserved
    (tmp_path / "1.txt").write_text("\n".join(texts))
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress(WIKI.encode()))
    corpus = sources.open_corpus(
        f"{tmp_path}/*.txt*", block_bytes=2000, cache_dir=str(tmp_path / "c")
    )
    _, held_out = corpus.split_held_out(0.1)
    cache = str(tmp_path / "cache")
    copy = sources.copy_documents(held_out, cache)
    expected = documents_of(held_out)
    for part in (copy, sources.copy_documents(held_out, cache)):
        assert documents_of(part) == expected
        assert part.documents_per_block.tolist() == held_out.documents_per_block.tolist()
        assert part.fingerprint == held_out.fingerprint
    text = "".join("\n" + "\n".join(lines) + "\n" for lines in expected)
    (name,) = copy.blocks.files
    assert pathlib.Path(name).read_text() == text
    assert copy.blocks.lengths.sum() == len(text.encode())
    # The copy is written once, and again if it was deleted.
    monkeypatch.setattr(sources, "_write_documents", None)
    assert documents_of(sources.copy_documents(held_out, cache)) == expected
    pathlib.Path(name).unlink()
    with pytest.raises(TypeError):
        sources.copy_documents(held_out, cache)


def test_each_tfds_example_is_a_document(tmp_path):
    texts = [f"This is {i}. It is so.\nMore." for i in range(40)]
    folders = {
        "data_dir": write_texts(tmp_path / "data", "toy", texts),
        "cache_dir": str(tmp_path / "cache"),
    }
    corpus = sources.open_tfds("toy:1.0.0", **folders)
    assert corpus.describe() == "1 file, tfds, 40 documents, 0.0 MB, 1 block"
    assert documents_of(corpus) == DOCUMENTS
    assert documents_of(sources.open_tfds("toy", split="train[:25%]", **folders)) == DOCUMENTS[:10]
    packed = [file for file in (tmp_path / "cache").iterdir() if file.suffix != ".npz"]
    written = [file.stat().st_mtime_ns for file in packed]
    assert sources.open_tfds("toy", **folders).fingerprint == corpus.fingerprint
    assert [file.stat().st_mtime_ns for file in packed] == written != []
    folders["data_dir"] = write_texts(tmp_path / "data", "json", ['{"text": "One."}', "Two."])
    json_corpus = sources.open_tfds("json", **folders)  # texts that look like JSON
    assert documents_of(json_corpus) == [['{"text": "One."}'], ["Two."]]
    folders["data_dir"] = str(tmp_path / "data")
    with pytest.raises(ValueError, match="cannot read split 'test' of 'toy'"):
        sources.open_tfds("toy", split="test", **folders)
    with pytest.raises(
        ValueError, match="The dataset 'toy' has no feature 'body'. Use one of id, text."
    ):
        sources.open_tfds("toy", text_key="body", **folders)
    with pytest.raises(ValueError, match="cannot read split 'train' of 'no_such_toy'"):
        sources.open_tfds("no_such_toy", **folders)


def test_unsupported_tfds_file_format_raises_error(tmp_path, monkeypatch):
    data_dir = write_texts(tmp_path / "data", "toy", ["One.", "Two."])
    import tensorflow_datasets as tfds

    def as_dataset(*arguments, **options):
        raise NotImplementedError

    monkeypatch.setattr(tfds.core.DatasetBuilder, "as_dataset", as_dataset)
    message = (
        "^tf.data cannot read toy/1.0.0, which was prepared as tfrecord files. Prepare it with "
        "tfds build --file_format=tfrecord, or use another data folder"
    )
    with pytest.raises(ValueError, match=message):
        sources.open_tfds("toy", data_dir=data_dir, cache_dir=str(tmp_path / "cache"))


def test_tfds_error_names_example_that_is_not_utf8():
    examples = [{"text": "Grüß".encode()}, {"text": b"a\xff"}]
    texts = sources._tfds_texts(examples, "text", "toy")
    assert next(texts) == "Grüß"
    message = "Example 1 of toy is not UTF-8: invalid byte 0xff at byte offset 1 of 'text'."
    with pytest.raises(ValueError, match=message):
        next(texts)


def test_join_concatenates_corpora_of_files(tmp_path):
    """The joined blocks are those of the parts, in order."""
    (tmp_path / "wiki.gz").write_bytes(gzip.compress(WIKI.encode()))
    (tmp_path / "book.md").write_text(BOOK)
    (tmp_path / "lines.jsonl").write_text('{"text": "One. Two."}\n{"text": "Three."}\n')
    parts = [
        sources.open_corpus(str(tmp_path / name), cache_dir=str(tmp_path / "cache"), **sizes)
        for name, sizes in (("wiki.gz", {}), ("book.md", {}), ("lines.jsonl", {"block_bytes": 9}))
    ]
    joined = sources.join(parts)
    assert documents_of(joined) == [document for part in parts for document in documents_of(part)]
    assert (
        joined.describe()
        == "3 files, 1 jsonl, 1 prose, 1 wikiextractor, 43 documents, 0.0 MB, 4 blocks"
    )
    assert sources.join(parts[:1]) is parts[0]
    assert joined.fingerprint != sources.join(parts[::-1]).fingerprint
    for wrong in (sources.from_documents([["One."]]), joined.split_held_out()[0]):
        with pytest.raises(ValueError, match="^Only complete corpora of files can be joined.$"):
            sources.join([wrong, parts[0]])


def test_wikipedia_document_count_matches_regex(data_dir):
    """Compares the documents per block with a count by regular expression."""
    paths = sorted((data_dir / "corpora/enwiki").glob("wiki_0[0-1].gz"))
    corpus = sources.open_corpus([str(path) for path in paths])
    assert corpus.num_blocks == 2
    expected = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            bodies = re.findall(r"(?ms)^<doc [^\n]*\n[^\n]*\n\n(.*?)^</doc>", file.read())
        expected.append(sum(bool(body.strip()) for body in bodies))
    assert corpus.documents_per_block.tolist() == expected
    assert 7000 < sum(1 for _ in corpus.sentences()) / 2 < 9000
