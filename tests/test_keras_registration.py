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
from bert_tf.modeling import BertClassifier
from bert_tf.training.optimizers import create_optimizer, weight_decay_exclusions
from bert_tf.training.schedules import WarmupLinearDecay
from tests.interchange.small_checkpoints import MODELS, SMALL, make_checkpoint

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


FAILS_ONCE = "import os\nif not os.environ.get('MENDED'): raise ImportError('broken')\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print('keras' in sys.modules, 'models' in sys.modules)", "False False"),
        ("from keras import sub", "keras models"),
        ("import keras.sub", "keras models"),
        (
            """
            import keras
            print(*keras.KNOWN, len(sys.meta_path) - finders)
            print(type(keras.__loader__).__name__, type(keras.__spec__.loader).__name__)
            import keras.sub, inspect
            print(len(inspect.getsource(keras)))
            """,
            f"keras models models -1 SourceFileLoader SourceFileLoader {len(KERAS)}",
        ),
        (
            """
            import importlib.util
            for _ in range(2):
                assert importlib.util.find_spec("keras").origin.endswith("__init__.py")
            import keras
            print(*keras.KNOWN)
            """,
            "keras models models",
        ),
        (
            """
            sys.meta_path.pop(0)  # as if bert_tf came later
            import keras
            print("between", len(keras.KNOWN))
            registration._register_with_keras()
            print(*keras.KNOWN)
            """,
            "keras between 0 models models",
        ),
        (
            """
            import os
            for _ in range(2):
                try:
                    import keras
                except ImportError as error:
                    print(error)
                os.environ["MENDED"] = "yes"
            print(*keras.KNOWN)
            """,
            "broken keras models models",
        ),
        (
            """
            sys.path[:] = [path for path in sys.path if "-packages" not in path][1:]
            try:
                import keras
            except ModuleNotFoundError as error:
                print(error)
            """,
            "No module named 'keras'",
        ),
    ],
    ids=[
        *("nothing before keras", "a part of it", "a part by its name", "the models follow"),
        *("who only asks", "keras was first", "a keras that fails once", "no keras at all"),
    ],
)
def test_the_models_are_known_when_keras_is(run, tmp_path, code, printed):
    if "MENDED" in code:
        (tmp_path / "keras" / "__init__.py").write_text(FAILS_ONCE + KERAS)
    out, errors = run(code)
    assert out == printed.split(), errors


# === With the real one ===

LOAD = """
    import numpy as np
    model = keras.saving.load_model({path!r}, safe_mode=True)
    ids = np.arange(10, dtype="int32").reshape(2, 5)
    outputs = model({{"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids % 3}})
    np.save({path!r} + ".npy", np.array(outputs))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "name"),
    [("import bert_tf, keras", "classifier"), ("import keras, bert_tf", "multiple choice")],
)
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


@pytest.mark.slow
def test_a_fresh_process_trains_a_compiled_model_on(tmp_path):
    """With the rate's schedule, and the same variables decayed."""
    path = str(tmp_path / "m.keras")
    model = BertClassifier(SMALL, num_classes=2)
    rate = WarmupLinearDecay(1e-3, 1, 9)
    model.compile(create_optimizer("adamw", rate, model.trainable_variables), "mse")
    model.save(path)
    code = f"""
        import bert_tf, keras
        model = keras.saving.load_model({path!r})
        print(*model.optimizer.get_config()["undecayed"], model.optimizer.learning_rate)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    undecayed = [v.path for v in weight_decay_exclusions(model.trainable_variables)]
    assert done.stdout.split()[: len(undecayed)] == undecayed != [], done.stderr
