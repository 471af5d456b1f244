import dataclasses
import gzip

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.corpora import corpus, sources

from .test_sources import documents_of


def numbered(n):
    return [[f"Document {i}.", "The end."][: 1 + i % 2] for i in range(n)]


def test_fingerprint_depends_on_text_order_and_blocks():
    base = sources.from_documents(numbered(20), block_bytes=30)
    assert base.fingerprint == sources.from_documents(numbered(20), block_bytes=30).fingerprint
    assert len(base.fingerprint) == 32
    others = [
        sources.from_documents(numbered(20)),
        sources.from_documents(numbered(20)[::-1], block_bytes=30),
        sources.from_documents([*numbered(19), ["Other."]], block_bytes=30),
        *base.split_held_out(0.2),
    ]
    assert len({base.fingerprint, *(corpus.fingerprint for corpus in others)}) == 6


def test_held_out_documents_partition_the_corpus():
    documents = numbered(200)
    documents += documents[:50]  # copies
    corpus = sources.from_documents(documents, block_bytes=300)
    train, held_out = corpus.split_held_out(0.1)
    assert documents_of(corpus) == documents
    kept, held_out_documents = documents_of(train), documents_of(held_out)
    held = {tuple(document) for document in held_out_documents}
    assert kept == [document for document in documents if tuple(document) not in held]
    assert held_out_documents == [document for document in documents if tuple(document) in held]
    assert 15 <= len(held_out_documents) <= 25
    assert held_out.num_blocks < corpus.num_blocks
    assert documents_of(held_out, in_graph=True) == held_out_documents


def test_held_out_documents_do_not_depend_on_order_or_blocks():
    documents = numbered(300)
    shuffled = [documents[i] for i in np.random.default_rng(0).permutation(300)]
    _, first = sources.from_documents(documents).split_held_out(0.05)
    _, second = sources.from_documents(shuffled, block_bytes=50).split_held_out(0.05)
    assert first.num_documents == 15
    assert sorted(documents_of(first)) == sorted(documents_of(second))


@pytest.mark.parametrize(
    ("size", "fraction", "max_documents", "expected"),
    [(2, 0.01, 9, 1), (3, 0.01, 9, 1), (4, 0.01, 9, 2), (1000, 0.1, 9, 9), (10, 0.5, 9, 5)],
)
def test_number_of_held_out_documents(size, fraction, max_documents, expected):
    train, held_out = sources.from_documents(numbered(size)).split_held_out(fraction, max_documents)
    assert (train.num_documents, held_out.num_documents) == (size - expected, expected)


def test_split_can_be_split_again():
    train, held_out = sources.from_documents(numbered(100)).split_held_out(0.2)
    rest, second = train.split_held_out(0.25)
    assert (rest.num_documents, second.num_documents) == (60, 20)
    assert sorted(documents_of(rest) + documents_of(second)) == sorted(documents_of(train))
    assert not {*map(tuple, documents_of(second))} & {*map(tuple, documents_of(held_out))}


def test_texts_with_many_copies_are_not_held_out():
    documents = [["The same."]] * 500 + numbered(4)
    train, held_out = sources.from_documents(documents).split_held_out(0.001)
    assert held_out.num_documents == 2
    assert ["The same."] not in documents_of(held_out)
    # If every text has many copies, the copies of one text are held out.
    documents = [["The same."]] * 50 + [["Another."]] * 30
    train, held_out = sources.from_documents(documents).split_held_out(0.001)
    assert (train.num_documents, held_out.num_documents) == (50, 30)


@pytest.mark.parametrize("documents", [[["One."]], [["One."], ["One."]]])
def test_single_text_is_not_split(documents):
    corpus = sources.from_documents(documents)
    assert corpus.split_held_out() == (corpus, None)


@pytest.mark.parametrize(("fraction", "max_documents"), [(0, 1), (1.0, 1), (0.5, 0)])
def test_invalid_fraction_raises_error(fraction, max_documents):
    corpus = sources.from_documents(numbered(3))
    message = (
        "^Expected a fraction between 0 and 1 and at least one document, got "
        f"fraction={fraction} and max_documents={max_documents}"
    )
    with pytest.raises(ValueError, match=message):
        corpus.split_held_out(fraction, max_documents)


def test_sentences_are_streamed():
    documents = numbered(400)
    corpus = sources.from_documents(documents, block_bytes=100)
    all_lines = [line for document in documents for line in document]
    stream = corpus.sentences()
    assert list(stream) == all_lines == list(stream)  # learning a vocabulary needs two passes
    limited = list(corpus.sentences(limit_bytes=2000))
    size = sum(map(len, limited))
    assert 2000 <= size < 2020
    assert set(limited) < set(all_lines)
    # The lines come from blocks in all parts of the corpus.
    numbers = [int(line.split()[1].strip(".")) for line in limited if line.startswith("Doc")]
    assert np.histogram(numbers, 4, (0, 400))[0].min() > 10


def test_changed_file_raises_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One.\n\nTwo.\n\n")
    corpus = sources.open_corpus(str(path), input_format="google")
    path.write_text("One.\nTwo.\n\n\n")
    message = (
        "^The corpus has changed since it was opened: a block has a different number of "
        "documents. Rerun the command"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        corpus.read_documents(tf.constant(0, tf.int64))


def test_bytes_per_block():
    corpus = sources.from_documents([["12345", "123"], ["1"], ["1234567890"]], block_bytes=8)
    assert corpus.bytes_per_block.tolist() == [8, 11]
    part = dataclasses.replace(corpus, is_member=np.array([False, True, False]))
    # The fraction of the block's bytes that belongs to the document.
    assert part.bytes_per_block.tolist() == [1]


def test_smallest_matches_sorting(monkeypatch):
    """Also if copies fill all candidates."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        prints = rng.integers(rng.integers(1, 300), size=rng.integers(1, 200))
        wanted = int(rng.integers(1, 20))
        found = corpus._smallest(prints, wanted).tolist()
        with monkeypatch.context() as patched:
            patched.setattr(corpus, "_CANDIDATE_FACTOR", 1000)
            assert found == corpus._smallest(prints, wanted).tolist()


def test_graph_size_does_not_depend_on_corpus_size(tmp_path):
    """Checks plain and gzip files, and documents in memory."""
    sizes = []
    for size in (1000, 2000):  # tensors of a hundred elements are constants
        folder = tmp_path / str(size)
        folder.mkdir()
        text = "\n".join(f"Document {i}.\nIt ends.\n" for i in range(size))
        (folder / "1.txt").write_text(text)
        (folder / "2.txt.gz").write_bytes(gzip.compress(text.encode()))
        opened = (
            sources.open_corpus(str(folder), block_bytes=100),
            sources.from_documents(numbered(size), block_bytes=50),
        )
        assert all(each.num_blocks > 200 for each in opened)
        parts = [each.split_held_out(0.2)[0].read_documents for each in opened]
        reads = [tf.function(one, [tf.TensorSpec([], tf.int64)], autograph=False) for one in parts]
        graphs = [one.get_concrete_function().graph.as_graph_def() for one in reads]
        sizes.append([graph.ByteSize() for graph in graphs])
    # The sizes differ only by the digits of numbers.
    np.testing.assert_allclose(*sizes, atol=500)
