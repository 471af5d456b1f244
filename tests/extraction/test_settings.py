import dataclasses

import pytest

from bert_tf.extraction.settings import resolve

GIVEN = {"input": ["a.txt"], "model": "bert", "output": "out"}


def test_explicit_defaults_do_not_conflict():
    # The command passes all flags.
    every = dataclasses.asdict(resolve(**GIVEN))
    assert resolve(**{**every, "layers": (-1, 0)}).layers == (-1, 0)


def test_defaults_follow_the_model_and_the_pooling():
    settings = resolve(**GIVEN)
    assert settings.pooling is None and not settings.is_pooled  # the model decides
    settings = settings.with_model_defaults(blocks=12)
    assert settings.layers == (-1, -2, -3, -4) and not settings.is_pooled
    assert resolve(**GIVEN).with_model_defaults(blocks=2).layers == (-1, -2)  # all layers
    settings = resolve(**GIVEN).with_model_defaults(12, "mean", normalize=True)
    assert (settings.pooling, settings.normalize, settings.layers) == ("mean", True, (-1,))
    settings = resolve(**GIVEN, normalize=True)
    assert settings.with_model_defaults(12, "mean").normalize
    with pytest.raises(ValueError, match="^--normalize requires one vector per line"):
        settings.with_model_defaults(12)
    settings = resolve(**GIVEN, pooling="cls").with_model_defaults(12)
    assert settings.layers == (-1,) and settings.is_pooled
    assert resolve(**GIVEN, layers=["2", "-1"]).layers == (2, -1)
    assert dataclasses.asdict(settings)["input"] == ("a.txt",)


NEEDED = "is missing: extract_features needs --model, --input and --output."
NUMBERS = "expected integers separated by commas, such as -1,-2."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": []}, f"--input {NEEDED}"),
        ({"model": None}, f"--model {NEEDED}"),
        ({"output": ""}, f"--output {NEEDED}"),
        ({"normalize": True, "pooling": "none"},
         "--normalize requires one vector per line. Set --pooling to mean, cls, max or last."),
        ({"normalize": True, "layers": ["-1"]},
         "--normalize requires one vector per line. Set --pooling to mean, cls, max or last."),
        ({"layers": ["-1", "top"]}, f"--layers=['-1', 'top']: {NUMBERS}"),
        ({"layers": []}, f"--layers=[]: {NUMBERS}"),
    ],
)  # fmt: skip
def test_invalid_values_are_rejected(changes, message):
    with pytest.raises(ValueError) as error:
        resolve(**{**GIVEN, **changes})
    assert str(error.value) == message
