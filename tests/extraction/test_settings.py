import dataclasses

import pytest

from bert_tf.extraction.settings import resolve

GIVEN = {"input": ["a.txt"], "model": "bert", "output": "out"}


def test_every_flag_at_its_default_beside_one_that_is_given():
    # As the command gives them, which passes all of its flags on.
    every = dataclasses.asdict(resolve(**GIVEN))
    assert resolve(**{**every, "layers": (-1, 0)}).layers == (-1, 0)
    assert resolve(**{**every, "embedding_dims": 8}).embedding_dims == 8
    for own in ({"embedding_dims": 8}, {"embed_as": "query"}):
        with pytest.raises(ValueError, match="is for the model's own sentence embedding"):
            resolve(**{**every, "layers": (-1, 0), **own})


def test_defaults():
    settings = resolve(**GIVEN)
    assert settings.pooling is None and not settings.is_pooled  # the model decides
    settings = settings.decide(blocks=12)
    assert (settings.layers, settings.variant) == ((-1, -2, -3, -4), None)
    assert settings.lines_per_shard == 1000 and not settings.is_pooled
    assert resolve(**GIVEN).decide(blocks=2).layers == (-1, -2)  # all that there are
    settings = resolve(**GIVEN).decide(12, "mean", normalize=True)
    assert (settings.pooling, settings.normalize, settings.layers) == ("mean", True, (-1,))
    assert settings.lines_per_shard == 10_000
    assert resolve(**GIVEN, lines_per_shard=7).decide(12, "mean").lines_per_shard == 7
    settings = resolve(**GIVEN, pooling="cls").decide(12)
    assert settings.layers == (-1,) and settings.lines_per_shard == 10_000 and settings.is_pooled
    settings = resolve(**GIVEN, variant="last", lines_per_shard=7).decide(12)
    assert settings.layers == () and settings.lines_per_shard == 7
    assert resolve(**GIVEN, layers=["2", "-1"]).layers == (2, -1)
    assert dataclasses.asdict(settings)["input"] == ("a.txt",)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"input": []}, "--input is missing: extract_features needs --model, --input an"),
        ({"model": None}, "--model is missing: extract_features needs"),
        ({"output": ""}, "--output is missing: extract_features needs"),
        ({"variant": "last", "layers": ["-1", "2"]}, "--variant and --layers both say which layer"),
        ({"normalize": True}, "--normalize is for one vector a line: give --pooling=mean, cl"),
        ({"layers": ["-1", "top"]}, "--layers=-1,top: expected numbers with commas between them"),
        ({"layers": []}, "--layers=: expected numbers with commas between them"),
    ],
)  # fmt: skip
def test_refused(changes, sentence):
    with pytest.raises(ValueError) as error:
        resolve(**{**GIVEN, **changes})
    assert str(error.value).startswith(sentence)
