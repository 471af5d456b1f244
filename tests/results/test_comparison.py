"""Two files of predictions, or two models' directories, compared; what does not compare refused."""

import json

import pytest

from bert_tf.cli.flag_fields import defaults
from bert_tf.cli.flag_rules import check
from bert_tf.compare import _Settings
from bert_tf.metrics import cells
from bert_tf.results.comparison import compare
from bert_tf.tasks.kinds import KINDS
from bert_tf.tasks.task_file import TaskFile
from tests.finetuning.small_runs import write_task_file

TRUE = ["pos", "neg", "pos", "neg", "pos", "neg"]
FIRST = ["pos", "neg", "neg", "pos", "pos", "neg"]  # 4 of 6
SECOND = ["pos", "neg", "pos", "neg", "neg", "neg"]  # 5 of 6


def write(path, predicted, expected=TRUE, ids=None, text=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["id\tprediction\texpected" + "\ttext" * text]
    for number, (one, other) in enumerate(zip(predicted, expected, strict=True)):
        name = ids[number] if ids else number
        lines.append(f"{name}\t{one}\t{other}" + f"\ttext {name}" * text)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def run_folder(folder, predicted):
    """What a fine-tuning leaves, as far as a comparison reads it."""
    write(folder / "dev" / "dev.tsv", predicted)
    results = {"headline": "recall_pos", "scores": {"dev": {"recall_pos": 0.5}}}
    (folder / "results.json").write_text(json.dumps(results))
    write_task_file(folder, TaskFile("classification", "own", 16))
    return str(folder)


def test_two_directories(tmp_path, capsys):
    folders = run_folder(tmp_path / "a", FIRST), run_folder(tmp_path / "b", SECOND)
    compare(*folders, output=str(tmp_path / "out.tsv"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"A: {tmp_path}/a/dev/dev.tsv" and lines[2] == "6 rows"
    shown = {line.split()[0]: line.split()[1:6] for line in lines[5:9]}
    assert shown["recall_pos"][:3] == ["0.667", "0.667", "0.000"]
    assert shown["accuracy"][:3] == ["0.667", "0.833", "+0.167"]
    assert lines[-4:] == [
        "  id 2: expected 'pos', A 'neg', B 'pos': 'text 2'",
        "  id 3: expected 'neg', A 'pos', B 'neg': 'text 3'",
        "  id 4: expected 'pos', A 'pos', B 'neg': 'text 4'",
        f"Written: {tmp_path}/out.tsv",
    ]
    assert "Right: both in 3 rows, A alone in 1, B alone in 2, neither in 0." in lines
    # Two of three, or one, by a coin: certain.
    assert any(line.startswith("McNemar's exact test of who is right: p = 1,") for line in lines)
    assert (tmp_path / "out.tsv").read_text().splitlines()[:2] == [
        "id\tright\texpected\tA\tB\ttext",
        "2\tB\tpos\tneg\tpos\ttext 2",
    ]
    compare(folders[0], folders[0])
    printed = capsys.readouterr().out
    assert "They answer 0 rows differently.\n" in printed and " is better" not in printed


def test_rows_in_another_order_and_a_clear_difference(tmp_path, capsys):
    true = TRUE * 20
    one = write(tmp_path / "a.tsv", ["neg"] * 120, true)
    ids = [*range(119, -1, -1)]
    other = write(tmp_path / "b.tsv", true[::-1], true[::-1], ids=ids, text=False)
    compare(one, other, kind="classification")
    printed = capsys.readouterr().out
    assert "  B is better\n" in printed and "so uneven a split would be rare" in printed
    assert "A alone in 0, B alone in 60, neither in 0" in printed and "and 50 more" in printed


def test_every_kind_has_its_cells():
    for kind in KINDS.values():
        assert callable(getattr(cells, kind.cells))


def test_cells_of_the_other_kinds():
    one, other = cells.several(["a,b", "", "c"], ["a", "", "c"], [["a", "b"], [], ["c"]])
    assert (one.metrics["micro_f1"](slice(None)), one.right.tolist()) == (0.8, [False, True, True])
    assert other.right.all()
    one, _ = cells.classes(["2", "2", "10", "10"], *[["2", "2", "2", "10"]] * 2)
    assert one.scores(["f1"])["f1"] == pytest.approx(2 / 3)  # of 10, as the training has it
    one, other = cells.numbers(["1", "2.5"], ["1", "2"], ["0", "2.5"])
    assert one.scores(["mean_absolute_error"])["mean_absolute_error"] == 0.25
    one, other = cells.choices(["0", "3"], [0, 2], ["0", "3"])
    assert (one.right.tolist(), other.right.tolist()) == ([True, False], [True, True])
    gold = [["O", "B-PER", "I-PER"], ["O", "O"]]
    one, other = cells.tags(gold, ["O B-PER I-PER", "O B-PER"], [["O", "B-PER", "O"], ["O", "O"]])
    assert one.scores(["f1", "recall_PER"]) == {"f1": pytest.approx(2 / 3), "recall_PER": 1.0}
    one, other = cells.tags([["NOUN", "VERB"]], ["NOUN NOUN"], ["NOUN VERB"])
    assert one.scores(["accuracy"]) == {"accuracy": 0.5} and "f1" not in one.metrics
    one, other = cells.answers([["the cat", "cat"], []], ["cat", "dog"], ["a dog", ""])
    assert one.scores(["exact", "f1"]) == other.scores(["exact", "f1"]) == {"exact": 50, "f1": 50}


def test_conll_columns(tmp_path, capsys):
    for name, tag in (("a", "O"), ("b", "B-PER")):
        (tmp_path / f"{name}.conll").write_text(f"He O O\nsaw O O\nAnn B-PER {tag}\n\nYes O O\n\n")
    compare(str(tmp_path / "a.conll"), str(tmp_path / "b.conll"), kind="tagging")
    printed = capsys.readouterr().out
    assert "id 0: expected 'O O B-PER', A 'O O O', B 'O O B-PER': 'He saw Ann'" in printed
    (tmp_path / "a.conll").write_text("He O\n")
    with pytest.raises(ValueError, match=r"a.conll, line 1: expected a word, its expected and its"):
        compare(str(tmp_path / "a.conll"), str(tmp_path / "b.conll"), kind="tagging")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"expected": ["neg"] * 6}, "different sets: of the id '0' the first expects 'pos', the"),
        ({"predicted": FIRST[:5], "expected": TRUE[:5]}, "different sets, of 6 and of 5 rows: com"),
        ({"ids": [*range(1, 7)]}, "of different sets: their ids differ"),
        ({"ids": [7] * 6}, "of different sets: their ids differ"),
        # Of the id 1, which only the first has, nothing else is said.
        ({"ids": [0, 7, 2, 8, 9, 10]}, "of different sets: their ids differ"),
    ],
)
def test_different_sets_are_refused(tmp_path, changes, sentence):
    one = write(tmp_path / "a.tsv", FIRST)
    other = write(tmp_path / "b.tsv", **{"predicted": SECOND, **changes})
    with pytest.raises(ValueError, match=sentence):
        compare(one, other, kind="classification")


def test_what_does_not_compare(tmp_path):
    one, other = write(tmp_path / "a.tsv", FIRST), write(tmp_path / "b.tsv", SECOND)
    folder = run_folder(tmp_path / "run", FIRST)
    cases = [
        ((one, other), {}, "are in no fine-tuning's directory: give what they predict by --task"),
        ((one, other), {"kind": "regression"}, "A cell is no number: could not convert"),
        ((one, other), {"output": one}, "--output=.*a.tsv is one of the files to compare"),
        ((folder, str(tmp_path)), {}, "holds no fine-tuning that has finished: expected its resu"),
        ((folder, folder), {"set_name": "test"}, "run has no scores of the set test: its sets are"),
        ((one, one), {"set_name": "dev"}, "--set=dev is of directories, and both are files: leave"),
        ((one, str(tmp_path / "a.txt")), {}, "expected a fine-tuning's directory, or a file of pr"),
    ]
    for paths, options, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            compare(*paths, **options)
    with pytest.raises(ValueError, match="--output=a.txt: expected a name that ends in .tsv or"):
        check(_Settings, {**defaults(_Settings), "output": "a.txt"})
    other_set = run_folder(tmp_path / "other", SECOND)
    (tmp_path / "other" / "results.json").write_text('{"scores": {"test": {}}}')
    with pytest.raises(ValueError, match="other/test has no predictions to compare: expected test"):
        compare(other_set, other_set)
    with pytest.raises(ValueError, match="were evaluated on sets of other names, dev and test"):
        compare(folder, other_set)
    write_task_file(tmp_path / "other", TaskFile("regression", "own", 16))
    with pytest.raises(ValueError, match="different tasks, classification and regression: only"):
        compare(f"{folder}/dev/dev.tsv", f"{other_set}/dev/dev.tsv")
    (tmp_path / "other" / "task.json").write_text('{"kind": "poetry"}')
    with pytest.raises(ValueError, match="task.json: kind is 'poetry', expected classification"):
        compare(folder, f"{other_set}/dev/dev.tsv")
    (tmp_path / "a.tsv").write_text("id\texpected\tprediction\n")
    with pytest.raises(ValueError, match="a.tsv has no rows: expected at least one prediction"):
        compare(one, other, kind="classification")
    with pytest.raises(ValueError, match="A sentence has 2 expected tags, and other predicted"):
        cells.tags(["O O"], ["O"], ["O O"])
    (tmp_path / "a.conll").write_text("")
    with pytest.raises(ValueError, match="a.conll has no sentences: expected at least one"):
        compare(str(tmp_path / "a.conll"), other, kind="tagging")
