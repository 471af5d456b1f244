"""Writes small datasets in the format of TensorFlow Datasets, without downloads."""

import numpy as np
import pytest


def write_dataset(data_dir, name, version, features, splits, *, config=None, rows_per_shard=2):
    """Writes a dataset to ``data_dir`` and returns this path as a string."""
    tfds = pytest.importorskip("tensorflow_datasets")
    folder = data_dir.joinpath(*filter(None, (name, config, version)))
    folder.mkdir(parents=True)
    identity = tfds.core.DatasetIdentity(
        name=name,
        version=tfds.core.Version(version),
        data_dir=str(folder),
        module_name=name,
        config_name=config,
    )
    info = tfds.core.DatasetInfo(builder=identity, features=tfds.features.FeaturesDict(features))
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=rows_per_shard)
    writer.initialize_splits(list(splits))
    writer.add_examples(splits)
    writer.close_all()
    return str(data_dir)


def write_texts(data_dir, name, texts):
    """Writes a dataset of texts, version 1.0.0, in several shards; see ``write_dataset``.

    Several shards show whether the order of the examples is kept.
    """
    tfds = pytest.importorskip("tensorflow_datasets")
    features = {"text": tfds.features.Text(), "id": np.int64}
    rows = [{"text": text, "id": number} for number, text in enumerate(texts)]
    return write_dataset(data_dir, name, "1.0.0", features, {"train": rows}, rows_per_shard=15)
