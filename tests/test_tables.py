"""Facts about a model class or a kind of task are in one table each; no one else has the names."""

import ast
import inspect
import pathlib
import re

import pytest

import bert_tf
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.tasks import KINDS

ROOT = pathlib.Path(bert_tf.__file__).parent.parent
# Who may have a name as a string: the public names, the table, and where something else has the
# same name: the readers of other libraries' files, exports.
SPELLERS = [
    (
        set(MODEL_CLASSES),
        {
            "bert_tf/__init__.py": set(MODEL_CLASSES),
            "bert_tf/modeling/__init__.py": set(MODEL_CLASSES),
            **{
                f"bert_tf/tasks/{name}.py": {kind.model, kind.other_model}
                for name, kind in KINDS.items()
            },
            "bert_tf/checkpoints/keras_hub.py": {"BertClassifier"},
        },
    ),
    (
        set(KINDS),
        {
            # A kind's own file.
            **{f"bert_tf/tasks/{name}.py": {name} for name in KINDS},
            "bert_tf/checkpoints/hugging_face_config.py": {"regression"},
            "bert_tf/checkpoints/model_garden.py": {"classification"},
            # A signature and its output.
            "saved_models/embeddings.py": {"similarity"},
        },
    ),
]


def _spelled(path, names):
    """Those of some names that a module has as strings."""
    text = path.read_text()
    if not any(re.search(rf"[\"']{name}[\"']", text) for name in names):
        return set()  # which is sooner known than parsed
    nodes = ast.walk(ast.parse(text))
    return names & {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.skipif(not (ROOT / "pipelines").is_dir(), reason="the checkout is missing")
@pytest.mark.parametrize(("names", "may_spell"), SPELLERS, ids=["model classes", "kinds"])
def test_no_other_module_has_a_name_of_the_table(names, may_spell):
    for folder in ("bert_tf", "pipelines", "saved_models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            assert _spelled(path, names) <= may_spell.get(module, set()), module


@pytest.mark.parametrize("model_class", MODEL_CLASSES.values())
def test_a_class_checks_its_constructors_arguments(model_class):
    parameters = inspect.signature(model_class.__init__).parameters
    shared = {"self", "config", "name", "dtype", "kwargs"}
    assert model_class.argument_checks.keys() == parameters.keys() - shared
    for argument, is_good in model_class.argument_checks.items():
        default = parameters[argument].default
        assert is_good(3 if default is inspect.Parameter.empty else default), argument
        assert not is_good("x") and not is_good([1])
    # Whether there is a pooler is said twice, here and to whoever reads the signature.
    if "pooler" in parameters:
        default = parameters["pooler"].default
        assert default is None or default == model_class.pooler_by_default
