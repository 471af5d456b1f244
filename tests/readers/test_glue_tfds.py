"""GLUE by TensorFlow Datasets, from sets prepared by the test (nothing is downloaded)."""

import numpy as np
import pytest

from bert_tf.readers.examples import TextExample
from bert_tf.readers.glue import read_glue_tfds
from tests.tfds_data import write_dataset


@pytest.fixture
def tfds():
    return pytest.importorskip("tensorflow_datasets")


@pytest.fixture
def prepare(tmp_path):
    def write(config, features, splits):
        features = {**features, "idx": np.int32}
        return write_dataset(tmp_path, "glue", "2.0.0", features, splits, config=config)

    return write


def test_single_texts_in_the_order_of_their_ids(tfds, prepare):
    features = {
        "sentence": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["unacceptable", "acceptable"]),
    }
    rows = [{"sentence": f"Ü {i}.", "label": i % 2, "idx": i} for i in (3, 0, 4, 1, 2)]
    unlabelled = [{**row, "label": -1} for row in rows]
    data_dir = prepare("cola", features, {"validation": rows, "test": unlabelled})
    examples = read_glue_tfds("CoLA", "dev", data_dir=data_dir)
    assert examples.items == [TextExample(str(i), f"Ü {i}.", None, str(i % 2)) for i in range(5)]
    assert examples.labels == ("0", "1")
    test = read_glue_tfds("cola", "test", data_dir=data_dir)
    assert test.items == [TextExample(str(i), f"Ü {i}.", None, None) for i in range(5)]
    with pytest.raises(ValueError, match="cannot read split 'train' of 'glue/cola'"):
        read_glue_tfds("cola", "train", data_dir=data_dir)


def test_pairs_whose_classes_are_in_another_order(tfds, prepare):
    features = {
        "premise": tfds.features.Text(),
        "hypothesis": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"]),
    }
    rows = [{"premise": "A.", "hypothesis": f"B{i}.", "label": i, "idx": i} for i in range(3)]
    data_dir = prepare("mnli", features, {"validation_matched": rows})
    examples = read_glue_tfds("MNLI", "dev_matched", data_dir=data_dir)
    assert [item.label for item in examples.items] == ["entailment", "neutral", "contradiction"]
    assert examples.items[2] == TextExample("2", "A.", "B2.", "contradiction")
    assert examples.labels == ("contradiction", "entailment", "neutral")


def test_scores_are_the_files(tfds, prepare):
    features = {
        "sentence1": tfds.features.Text(),
        "sentence2": tfds.features.Text(),
        "label": np.float32,
    }
    row = {"sentence1": "A.", "sentence2": "B.", "label": 3.8, "idx": 0}
    examples = read_glue_tfds(
        "STS-B", "train", data_dir=prepare("stsb", features, {"train": [row]})
    )
    assert examples.items == [TextExample("0", "A.", "B.", 3.8)]


def test_says_which_splits_there_are():
    with pytest.raises(ValueError, match="AX has no split 'dev': expected one of test"):
        read_glue_tfds("AX", "dev")
