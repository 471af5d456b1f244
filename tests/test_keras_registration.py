"""``import bert_tf`` makes the models known to Keras, whichever is imported first."""

import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import bert_tf
from bert_tf.interchange import keras_files
from bert_tf.interchange.load import load
from tests.interchange.small_checkpoints import MODELS, make_checkpoint

KERAS = "import sys; print('keras'); assert 'models' not in sys.modules; KNOWN = []\n"
MODELS_MODULE = "import keras; print('models'); keras.KNOWN.append('models')\n"


@pytest.fixture
def run(tmp_path):
    """Runs code with a Keras of three statements, and models as quick to import."""
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text(KERAS)
    (tmp_path / "keras" / "sub.py").write_text("")
    (tmp_path / "models.py").write_text(MODELS_MODULE)
    root = str(pathlib.Path(bert_tf.__file__).parent.parent)

    def execute(code):
        start = f"""
            import sys
            sys.path[:0] = [{str(tmp_path)!r}, {root!r}]
            import bert_tf as registration
            registration._MODELS = "models"
            finders = len(sys.meta_path)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code)],
            capture_output=True,
            text=True,
        )
        return done.stdout.split(), done.stderr

    return execute


def test_nothing_is_imported_before_keras(run):
    assert run("print('keras' in sys.modules, 'models' in sys.modules)") == (["False", "False"], "")


def test_the_models_follow_keras(run):
    out, errors = run("""
        import keras
        print(*keras.KNOWN, len(sys.meta_path) - finders)
        print(type(keras.__loader__).__name__, type(keras.__spec__.loader).__name__)
        import keras.sub, inspect
        print(len(inspect.getsource(keras)))
    """)
    assert out == ["keras", "models", "models", "-1", "SourceFileLoader", "SourceFileLoader",
                   str(len(KERAS))], errors  # fmt: skip


def test_a_part_of_keras_is_imported_first(run):
    assert run("from keras import sub") == (["keras", "models"], "")
    assert run("import keras.sub") == (["keras", "models"], "")


def test_who_only_asks_for_keras_changes_nothing(run):
    out, errors = run("""
        import importlib.util
        for _ in range(2):
            assert importlib.util.find_spec("keras").origin.endswith("__init__.py")
        import keras
        print(*keras.KNOWN)
    """)
    assert out == ["keras", "models", "models"], errors


def test_keras_was_there_first(run):
    out, errors = run("""
        sys.meta_path.pop(0)  # as if bert_tf came later
        import keras
        print("between", len(keras.KNOWN))
        registration._register_with_keras()
        print(*keras.KNOWN)
    """)
    assert out == ["keras", "between", "0", "models", "models"], errors


def test_a_keras_that_fails_once(run, tmp_path):
    (tmp_path / "keras" / "__init__.py").write_text(
        "import os\nif not os.environ.get('MENDED'): raise ImportError('broken')\n" + KERAS
    )
    out, errors = run("""
        import os
        try:
            import keras
        except ImportError as error:
            print(error)
        os.environ["MENDED"] = "yes"
        import keras
        print(*keras.KNOWN)
    """)
    assert out == ["broken", "keras", "models", "models"], errors


def test_no_keras_at_all(run, tmp_path):
    out, errors = run(f"""
        import shutil
        shutil.rmtree({str(tmp_path / "keras")!r})
        sys.path[:] = [path for path in sys.path if "-packages" not in path]
        try:
            import keras
        except ModuleNotFoundError as error:
            print(error)
    """)
    assert out == ["No", "module", "named", "'keras'"], errors


# === With the real one ===

LOAD = """
    import numpy as np
    model = keras.saving.load_model({path!r}, safe_mode=True)
    ids = np.arange(10, dtype="int32").reshape(2, 5)
    outputs = model({{"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids % 3}})
    np.save({path!r} + ".npy", np.array(outputs))
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import bert_tf, keras", "import keras, bert_tf"])
@pytest.mark.parametrize("name", ["classifier", "multiple choice"])
def test_a_fresh_process_opens_a_file(tmp_path, first, name):
    path = str(tmp_path / "m.keras")
    keras_files.write(make_checkpoint(MODELS[name]), path)
    code = LOAD.format(path=path)
    ids = np.arange(10, dtype="int32").reshape(2, 5)
    if name == "multiple choice":
        code, ids = code.replace("reshape(2, 5)", "reshape(1, 2, 5)"), ids[None]
    done = subprocess.run(
        [sys.executable, "-c", f"{first}\n" + textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids % 3}
    expected = np.array(load(path)(inputs))
    np.testing.assert_allclose(np.load(path + ".npy"), expected, atol=1e-6)
