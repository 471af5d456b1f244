import gzip

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines import corpus_blocks, corpus_scan


def as_lists(documents):
    return [[line.decode() for line in document] for document in documents.to_list()]


@pytest.fixture
def mixed(tmp_path):
    """Blocks of every kind: ranges of a plain file, a gzip file, another format."""
    texts = {
        "google.txt": "Eins.\nZwei.\n\nDrei.\n\nVier.\nFünf.\n\n".encode(),
        "prose.gz": gzip.compress(b"One. Two.\n\nThree."),
        "wiki.txt": b'<doc id="1">\nA\n\nAlpha. Beta.\n</doc>\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)

    def file(name, text_format, is_gzip, ranges):
        return corpus_scan.ScannedFile(
            str(tmp_path / name), len(texts[name]), text_format, is_gzip, ranges
        )

    return corpus_blocks.file_blocks(
        [
            file("google.txt", "google", False, ((0, 13), (13, 7), (20, 14))),
            file("prose.gz", "prose", True, ((0, 17),)),
            file("wiki.txt", "wikiextractor", False, ((0, len(texts["wiki.txt"])),)),
        ]
    )


MIXED = [
    [["Eins.", "Zwei."]],
    [["Drei."]],
    [["Vier.", "Fünf."]],
    [["One.", "Two.", "Three."]],
    [["Alpha.", "Beta."]],
]


def test_reads_ranges_gzip_and_several_formats(mixed):
    assert mixed.num_blocks == 5
    read = [as_lists(mixed.read(tf.constant(i, tf.int64))) for i in range(5)]
    assert read == MIXED


@pytest.mark.parametrize("num_parallel_calls", [None, 1, 4])
def test_reads_in_a_dataset_in_any_order(mixed, num_parallel_calls):
    order = [3, 0, 4, 2, 1, 0, 3] * 5
    dataset = tf.data.Dataset.from_tensor_slices(np.array(order)).map(
        mixed.read, num_parallel_calls
    )
    assert [as_lists(documents) for documents in dataset] == [MIXED[i] for i in order]


def test_files_that_must_be_rewritten_have_no_blocks():
    file = corpus_scan.ScannedFile("a.jsonl", 1, "jsonl", False, None)
    with pytest.raises(ValueError, match=r"a\.jsonl cannot be read in ranges: it has to be"):
        corpus_blocks.file_blocks([file])


@pytest.mark.parametrize("block_bytes", [1, 6, 9, 100])
def test_memory_blocks_hold_all_documents_in_order(block_bytes):
    documents = [[b"One.", b"Two."], [b"Three."], [b"4"], [b"Five.", b"Six.", b"Seven."]]
    blocks = corpus_blocks.memory_blocks(documents, block_bytes)
    read = [blocks.read(tf.constant(i, tf.int64)).to_list() for i in range(blocks.num_blocks)]
    assert [document for block in read for document in block] == documents
    sizes = [sum(len(line) for document in block for line in document) for block in read]
    assert all(size >= block_bytes for size in sizes[:-1])
    # No block could end a document earlier.
    assert all(
        sum(len(line) for document in block[:-1] for line in document) < block_bytes
        for block in read
    )
    mapped = tf.data.Dataset.range(blocks.num_blocks).map(blocks.read, 2)
    assert [block.to_list() for block in mapped] == read
