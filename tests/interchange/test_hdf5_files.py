"""What Keras writes is read bit for bit; whatever else HDF5 can do is refused with a sentence."""

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.interchange import hdf5_files


def write(path, change=lambda file: None):
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.arange(6, dtype="float32").reshape(2, 3)
        change(file)
    return str(path)


def test_keras_weights_are_read_bit_for_bit(tmp_path):
    layers = [keras.layers.Dense(3, dtype="bfloat16"), keras.layers.Dense(2, dtype="float16")]
    model = keras.Sequential(layers)
    model.build((None, 4))
    keras.utils.set_random_seed(0)
    for weight in model.weights:
        weight.assign(keras.random.normal(weight.shape, dtype="float32"))
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


# === What a stranger may write ===


def virtual(file):
    layout = h5py.VirtualLayout((2,), "float32")
    layout[:] = h5py.VirtualSource("other.h5", "a", (2,))
    file.create_virtual_dataset("a", layout)


NOISE = np.random.default_rng(0).integers(256, size=9999, dtype="uint8")


def compact(file):
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.COMPACT)
    kind, space = h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((2,))
    h5py.h5d.create(file.id, b"a", kind, space, dcpl=layout)


def link(target, name="a"):
    return lambda file: file.__setitem__(name, target(file) if callable(target) else target)


def array(*arguments, **named):
    return lambda file: file.create_dataset("a", *arguments, **named)


HOSTILE = {
    "soft link": (
        link(h5py.SoftLink("/b")),
        "'a' is a link of the kind SoftLink, which may lead an",
    ),
    "external link": (link(h5py.ExternalLink("/etc/hosts", "/a"), "layers/a"),
        "'layers/a' is a link of the kind ExternalLink, which may lead anywhere"),
    "group in itself": (link(lambda file: file["/"], "layers/again"),
        "'layers/again' stands in the file twice, or within itself"),
    "array twice": (link(lambda file: file["layers/dense/vars/0"]),
        r"'layers(/dense/vars/0)?' stands in the file twice"),
    "external storage": (
        array((4,), "u1", external=[("/etc/hosts", 0, 4)]),
        "'a' is kept in other files",
    ),
    "virtual dataset": (virtual, "'a' is kept in other files"),
    "variable length": (array((2,), dtype=h5py.vlen_dtype("float32")),
        r"'a' is of the type dtype\('O'\): expected an array of numbers\."),
    "references": (array((1,), dtype=h5py.ref_dtype), r"'a' is of the type dtype\('O'\)"),
    "structures": (array(data=np.zeros(2, [("b", "float32")])), "'a' is of the type dtype"),
    "opaque": (array(data=np.zeros(2, "V2")), "'a' is of the type"),
    "nothing": (array(data=h5py.Empty("f4")), "'a' is of the type"),
    "a shape alone": (
        array((1 << 40,), "float32"),
        r"'a' is 4,398,046,511,104 bytes large, of which the file of [\d,]+ bytes holds 0 from by",
    ),
    "chunks": (array((1 << 40,), "float32", chunks=(1024,)),
        "'a' is compressed or in chunks: Keras writes no such array; write the file again without"),
    # As large in the file as its shape says.
    "compressed": (array(data=NOISE, compression="gzip"), "'a' is compressed or in chunks"),
    "compact": (compact, "'a' is compressed or in chunks"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_keras_never_writes_is_refused(tmp_path, case):
    change, sentence = HOSTILE[case]
    path = write(tmp_path / "a.h5", change)
    with pytest.raises(ValueError, match=rf"a\.h5: {sentence}"):
        hdf5_files.open_file(path)


def test_arrays_that_share_their_bytes_are_refused(tmp_path):
    """A small file would make a model of any size."""
    path = tmp_path / "a.h5"
    write(path, lambda file: file.create_dataset("a", data=np.zeros((2, 3), "float32")))
    with h5py.File(path) as file:
        places = [file[name].id.get_offset() for name in ("layers/dense/vars/0", "a")]
    old, new = (place.to_bytes(8, "little") for place in places)
    content = path.read_bytes()
    assert content.count(new) == 1
    path.write_bytes(content.replace(new, old))
    with pytest.raises(ValueError, match=r"a\.h5: 'a' and 'layers/dense/vars/0' share their bytes"):
        hdf5_files.open_file(str(path))


def test_more_arrays_than_any_model_has(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_files, "_MAX_OBJECTS", 3)
    with pytest.raises(ValueError, match=r"a\.h5 holds more than 3 groups and arrays, which no mo"):
        hdf5_files.open_file(write(tmp_path / "a.h5"))


def test_groups_may_lie_deeper_than_python_recurses(tmp_path):
    path = write(tmp_path / "a.h5", lambda file: file.create_group("/".join("g" * 1500)))
    assert list(hdf5_files.open_file(path)) == ["layers/dense/vars/0"]
