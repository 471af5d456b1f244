import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.evaluation.squad_predictions import squad_predictions
from bert_tf.pipelines.answers import Answers
from tests.pipelines import question_answering_twin as twin

SIZE = 4


def _answers(seed, questions=40):
    """Answers with quantised logits, some full, some of no span at all."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, SIZE + 1, questions)
    kept = np.arange(SIZE)[None, :] < counts[:, None]
    starts, ends = (
        generator.integers(-4, 5, [2, questions, SIZE]).astype(np.float32) / 4 * kept[None]
    )
    order = np.argsort(np.where(kept, -(starts + ends), 99), axis=1, kind="stable")
    starts, ends = (np.take_along_axis(values, order, 1) for values in (starts, ends))
    texts = np.array([[f"é{place}".encode() for place in range(SIZE)]] * questions, object)
    texts[~kept] = b""
    nulls = generator.integers(-4, 5, [2, questions]).astype(np.float32) / 4
    offsets = np.where(kept, 0, -1)
    return Answers(texts, offsets, offsets, starts, ends, counts.astype(np.int32), *nulls)


def _entries(answers, row):
    """As the twin has them: text, start byte, and the logits."""
    return [
        (answers.texts[row, place].decode(), 0, *logits)
        for place, logits in enumerate(
            zip(answers.start_logits[row].tolist(), answers.end_logits[row].tolist(), strict=True)
        )
        if place < answers.counts[row]
    ]


def _ids(answers):
    return [f"question {row}" for row in range(len(answers.counts))]


def _check_entries(received, wanted):
    assert [entry["text"] for entry in received] == [text for text, _, _ in wanted]
    logits = [(entry["start_logit"], entry["end_logit"]) for entry in received]
    assert logits == [(start, end) for _, start, end in wanted]
    np.testing.assert_allclose(
        [entry["probability"] for entry in received],
        twin.softmax([start + end for _, start, end in wanted]),
        rtol=1e-12,
    )


def test_version_2_equals_googles_loop():
    answers = _answers(0)
    predictions = squad_predictions(_ids(answers), answers, with_null=True)
    decided = predictions.answers(null_threshold=0.25)
    seen = set()
    for row, name in enumerate(_ids(answers)):
        entries = _entries(answers, row)
        null = (float(answers.null_start_logits[row]), float(answers.null_end_logits[row]))
        wanted = twin.with_null(entries, null, SIZE)
        _check_entries(predictions.n_best[name], wanted)
        if not entries:
            assert (predictions.texts[name], decided[name]) == ("", "")
            assert predictions.null_odds[name] == 1e6
            seen.add("no span")
            continue
        odds = sum(null) - entries[0][2] - entries[0][3]
        assert predictions.null_odds[name] == odds
        assert predictions.texts[name] == entries[0][0]
        assert decided[name] == ("" if odds > 0.25 else entries[0][0])
        seen |= {len(wanted), "null first" if not wanted[0][0] else "text first"}
        seen |= {"at the threshold"} if odds == 0.25 else set()
    assert seen >= {"no span", SIZE, SIZE + 1, "null first", "text first", "at the threshold"}


def test_the_answer_is_among_the_best_also_if_one_is_asked_for():
    """No answer scores more than the only span, and less than the threshold asks."""
    one = np.ones([1, 1], np.float32)
    texts, places = np.array([[b"text"]]), np.zeros([1, 1], np.int32)
    null = np.full([1], 1.25, np.float32)
    answers = Answers(texts, places, places + 4, one, one, np.array([1]), null, null)
    found = squad_predictions(["q"], answers, with_null=True)
    assert found.answers(1.0) == {"q": "text"} and 0 < found.probability("q", "text") < 0.5
    assert found.answers(0.25) == {"q": ""} and found.probability("q", "") > 0.5


def test_version_1_equals_googles_loop():
    answers = _answers(1)
    predictions = squad_predictions(_ids(answers), answers, with_null=False)
    assert predictions.null_odds is None
    for row, name in enumerate(_ids(answers)):
        entries = _entries(answers, row)
        _check_entries(
            predictions.n_best[name],
            [(text, start, end) for text, _, start, end in entries] or [("", 0.0, 0.0)],
        )
        assert predictions.answers()[name] == (entries[0][0] if entries else "")


@pytest.mark.parametrize("with_null", [True, False])
def test_never_a_span(tmp_path, with_null):
    answers = _answers(2)._replace(counts=np.zeros(40, np.int32))
    predictions = squad_predictions(_ids(answers), answers, with_null=with_null)
    predictions.write(str(tmp_path))
    assert (tmp_path / "null_odds.json").exists() == with_null
    assert set(json.loads((tmp_path / "predictions.json").read_text()).values()) == {""}
    lists = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert all([entry["probability"] for entry in entries] == [1.0] for entries in lists.values())


def test_files(tmp_path):
    answers = Answers(
        tf.constant([["Zoë", "a"], ["b", ""]]),
        tf.constant([[0, 5], [0, -1]]),
        tf.constant([[4, 6], [1, -1]]),
        tf.constant([[2.0, 1.0], [1.0, 0.0]]),
        tf.constant([[2.0, 1.0], [0.5, 0.0]]),
        tf.constant([2, 1]),
        tf.constant([-1.0, 2.0]),
        tf.constant([-1.0, 1.0]),
    )
    folder = tmp_path / "run" / "eval"
    squad_predictions(["q1", "q2"], answers, with_null=True).write(str(folder))
    read = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert sorted(read) == ["nbest_predictions.json", "null_odds.json", "predictions.json"]
    assert read["predictions.json"] == {"q1": "Zoë", "q2": ""}
    assert read["null_odds.json"] == {"q1": -6.0, "q2": 1.5}
    first, second, null = read["nbest_predictions.json"]["q1"]
    assert list(first) == ["text", "probability", "start_logit", "end_logit"]
    assert (first["text"], first["start_logit"], first["end_logit"]) == ("Zoë", 2.0, 2.0)
    assert (second["text"], null["text"]) == ("a", "")
    assert first["probability"] == pytest.approx(1 / (1 + np.exp(-2) + np.exp(-6)))
    squad_predictions(["q1", "q2"], answers, with_null=True).write(str(folder), 2.0)
    assert json.loads((folder / "predictions.json").read_text()) == {"q1": "Zoë", "q2": "b"}


def test_ids_that_do_not_fit():
    answers = _answers(4, questions=2)
    with pytest.raises(ValueError, match="answers for 1 questions, one row for each id; got 2 row"):
        squad_predictions(["a"], answers, with_null=True)
    with pytest.raises(ValueError, match="Two questions have the id a: expected ids that name one"):
        squad_predictions(["a", "a"], answers, with_null=True)
