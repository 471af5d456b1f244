"""What Keras writes is read bit for bit; what else HDF5 can do is not followed, or refused."""

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import hdf5_files


def write(path, change=lambda file: None):
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.arange(6, dtype="float32").reshape(2, 3)
        change(file)
    return str(path)


def test_keras_weights_are_read_bit_for_bit(tmp_path):
    layers = [keras.layers.Dense(3, dtype="bfloat16"), keras.layers.Dense(2, dtype="float16")]
    model = keras.Sequential(layers)
    model.build((None, 4))
    path = str(tmp_path / "m.weights.h5")
    model.save_weights(path)
    entries = hdf5_files.open_file(path)
    places = [f"layers/{layer}/vars/{number}" for layer in ("dense", "dense_1") for number in "01"]
    assert list(entries) == places
    for (name, entry), weight in zip(entries.items(), model.weights, strict=True):
        dtype = weight.dtype
        assert (entry.name, entry.dtype, entry.shape) == (name, dtype, tuple(weight.shape))
        assert entry.read().dtype == np.dtype(getattr(ml_dtypes, dtype, dtype))
        assert entry.read().tobytes() == np.array(weight.value).tobytes()


def test_other_file_systems_are_read(tmp_path):
    path = write(tmp_path / "a.h5")
    tf.io.gfile.copy(path, "ram://hdf5/a.h5", overwrite=True)
    value = hdf5_files.open_file("ram://hdf5/a.h5")["layers/dense/vars/0"].read()
    np.testing.assert_array_equal(value, [[0, 1, 2], [3, 4, 5]])


def test_no_link_is_followed(tmp_path):
    def link(file):
        file["a"] = h5py.SoftLink("/layers")
        file["layers/a"] = h5py.ExternalLink("/etc/hosts", "/a")
        file["layers/again"] = file["/"]

    assert list(hdf5_files.open_file(write(tmp_path / "a.h5", link))) == ["layers/dense/vars/0"]


def virtual(file):
    layout = h5py.VirtualLayout((2,), "float32")
    layout[:] = h5py.VirtualSource("other.h5", "a", (2,))
    file.create_virtual_dataset("a", layout)


def array(*arguments, **named):
    return lambda file: file.create_dataset("a", *arguments, **named)


ELSEWHERE = r"'a' has [\d,]+ bytes, which do not lie in the file of [\d,]+ as they are: it is comp"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (array((4,), "u1", external=[("/etc/hosts", 0, 4)]), ELSEWHERE),
        (virtual, ELSEWHERE),
        (array((1 << 40,), "float32"), ELSEWHERE),
        (array((1 << 40,), "float32", chunks=(1024,)), ELSEWHERE),
        (array(data=np.zeros(9999, "uint8"), compression="gzip"), ELSEWHERE),
        (array((2,), dtype=h5py.vlen_dtype("float32")),
         r"'a' is of the type dtype\('O'\): expected an array of numbers\."),
        (array(data=h5py.Empty("f4")), "'a' is of the type"),
    ],
    ids=["external", "virtual", "shape alone", "chunks", "compressed", "any length", "nothing"],
)  # fmt: skip
def test_what_keras_never_writes_is_refused(tmp_path, change, sentence):
    path = write(tmp_path / "a.h5", change)
    with pytest.raises(ValueError, match=rf"a\.h5: {sentence}"):
        hdf5_files.open_file(path)
