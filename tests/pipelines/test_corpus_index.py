import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines import corpus_blocks, corpus_files, corpus_index, corpus_scan


@pytest.fixture
def blocks(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One.\nTwo.\n\nThree.\n\nOne.\nTwo.\n\n\n\nOne. Two.\n")
    scanned = corpus_scan.scan_file(corpus_files.describe_file(str(path)), "google", 20)
    return corpus_blocks.file_blocks([scanned])


def test_counts_what_is_read(blocks):
    shares = []
    table = corpus_index.count_documents(blocks, shares.append)
    assert table.block_splits.tolist() == [0, 2, 3, 4]
    assert table.num_sentences.tolist() == [2, 1, 2, 1]
    first, second, third, fourth = table.fingerprints.tolist()
    assert first == third
    assert len({first, second, fourth}) == 3
    assert shares[-1] == 1.0


def test_fingerprints_stay_the_same_for_ever():
    documents = tf.ragged.constant([["One.", "Zwei."], ["Größe."]])
    assert corpus_index.fingerprint_documents(documents).numpy().tolist() == [
        935866395755577359,
        4312544572758382873,
    ]


def test_is_saved_and_loaded(blocks, tmp_path):
    table = corpus_index.count_documents(blocks)
    path = corpus_index.index_path(str(tmp_path), "parts", 1)
    assert corpus_index.load_index(path) is None
    corpus_index.save_index(path, "google, prose", blocks, table)
    formats, loaded_blocks, loaded_table = corpus_index.load_index(path)
    assert formats == "google, prose"
    for saved, loaded in ((blocks, loaded_blocks), (table, loaded_table)):
        for name, value in vars(saved).items():
            np.testing.assert_array_equal(getattr(loaded, name), value)
            assert type(getattr(loaded, name)) is type(value)
    again = corpus_index.count_documents(loaded_blocks)
    np.testing.assert_array_equal(again.fingerprints, table.fingerprints)


def test_an_index_that_does_not_hold_is_not_used(blocks, tmp_path):
    path = str(tmp_path / "index.npz")
    corpus_index.save_index(path, "google", blocks, corpus_index.count_documents(blocks))
    data = (tmp_path / "index.npz").read_bytes()
    for damaged in (data[:-30], data[:100], b"", b"nonsense"):
        (tmp_path / "index.npz").write_bytes(damaged)
        assert corpus_index.load_index(path) is None
    (tmp_path / "index.npz").write_bytes(data)
    assert corpus_index.load_index(path) is not None
    (tmp_path / "a.txt").write_text("Another size.")
    assert corpus_index.load_index(path) is None
    (tmp_path / "a.txt").unlink()
    assert corpus_index.load_index(path) is None


def test_the_key_depends_on_everything(monkeypatch):
    path = corpus_index.index_path("c", "parts", 1)
    assert path == corpus_index.index_path("c", "parts", 1)
    assert path != corpus_index.index_path("c", "parts", 2)
    monkeypatch.setattr(corpus_index.corpus_formats, "PATTERNS", ("other",))
    assert path != corpus_index.index_path("c", "parts", 1)
