"""Scripts for transformers' TFBert classes compute the same after changing one import."""

import re
import runpy

import numpy as np
import pytest
import tensorflow as tf

from tests.transformers import models, record

#: Scripts that take at most two seconds; the others are slow.
QUICK = {"07_question_answering", "08_masked_words"}
#: Scripts that train for a few steps, run without graphs to save time.
EAGER = {"05_regression", "07_question_answering"}
TOLERANCE = 1e-5
#: Scripts with larger differences, and the reasons.
TOLERANCES = {
    # clipnorm clips the fused kernel of query, key and value; transformers clipped three.
    "01_sentence_classification": 1e-3,
    # transformers computed the norm of a row's gradients before summing them.
    "12_gradient_tape": 3e-5,
}
#: Scripts that call float() on an array of size 1, which NumPy 2.4 does not support.
FLOAT_OF_ONE = {"08_masked_words"}
#: Scripts that require the parity extra.
PEERS = {"18_prepare_tf_dataset": "datasets"}


def _marks(name):
    return [pytest.mark.slow] * (name not in QUICK) + [pytest.mark.parity] * (name in PEERS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("successor") / "models"
    models.make(folder)
    return folder


def _with_changed_import(text):
    """Returns the script with imports from bert_tf.transformers."""
    changed = re.sub(
        r"^(from|import) transformers(?= )", r"\1 bert_tf.transformers", text, flags=re.M
    )
    assert not re.search(r"^\s*(from|import) transformers", changed, flags=re.M)
    before, after = text.splitlines(), changed.splitlines()
    lines = [new for old, new in zip(before, after, strict=True) if old != new]
    assert lines and all(
        line.startswith(("from bert_tf.transformers import ", "import bert_tf.transformers as "))
        for line in lines
    )
    return changed


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_marks(name)) for name in record.FOLDERS]
)
def test_script_with_changed_import(name, folders, tmp_path, monkeypatch):
    if name in PEERS:
        pytest.importorskip(PEERS[name])
    if name in FLOAT_OF_ONE and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        pytest.skip("The script calls float() of a vector, which NumPy 2.4 does not support.")
    script = tmp_path / f"{name}.py"
    script.write_text(_with_changed_import((record.SCRIPTS / script.name).read_text()))
    output = tmp_path / "output.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script), str(folders / record.FOLDERS[name]), str(output)])
    tf.config.run_functions_eagerly(name in EAGER)
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        tf.config.run_functions_eagerly(False)

    expected = record.read(record.RECORDED / f"{name}.json")
    wrong = {
        path: difference
        for path, difference in record.differences(record.read(output), expected)
        if not difference <= TOLERANCES.get(name, TOLERANCE)
    }
    assert not wrong


def test_scripts_have_models_and_records():
    names = sorted(record.FOLDERS)
    assert [path.stem for path in sorted(record.SCRIPTS.glob("*.py"))] == names
    assert [path.stem for path in sorted(record.RECORDED.glob("[0-9]*.json"))] == names
