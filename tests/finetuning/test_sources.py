import gzip
import json

import keras
import pytest

from bert_tf.finetuning.data import check_tables, read_splits, read_task
from bert_tf.pipelines.wordpiece import BertTokenizer

from .small_runs import VOCAB, parse, settings, write_table


def test_held_out_fraction_without_dev_file_is_reported(inputs, tmp_path):
    task, sets = read_task(settings(inputs, tmp_path, dev_file=None))
    assert task.dev_sets == ("dev",) and task.labels == ("neg", "pos")
    (note,) = sets.notes
    assert note.startswith("No --dev_file: ") and "of 46 examples" in note
    assert sets.fingerprints().keys() == {"train", "dev"}


def test_test_file_with_and_without_labels(inputs, tmp_path):
    unlabelled, _ = read_task(settings(inputs, tmp_path, test_file=inputs / "test.tsv"))
    assert (unlabelled.dev_sets, unlabelled.test_sets) == (("dev",), ("test",))
    flags = {"test_file": inputs / "dev.tsv"}
    labelled, _ = read_task(settings(inputs, tmp_path, **flags))
    assert (labelled.dev_sets, labelled.test_sets) == (("dev", "test"), ())
    assert labelled.deciding_set == "dev"
    test_only, _ = read_task(settings(inputs, tmp_path, **flags, dev_file=None, dev_fraction=0))
    assert (test_only.dev_sets, test_only.deciding_set) == (("test",), None)
    nothing, sets = read_task(settings(inputs, tmp_path, dev_file=None, dev_fraction=0))
    assert nothing.dev_sets == () and nothing.deciding_set is None
    assert sets.notes == ["No dev set: the weights of the last epoch are kept."]


def test_label_column_with_unique_values_is_reported(inputs, tmp_path):
    train = write_table(tmp_path / "train.tsv", [(f"text {n}", f"row{n}") for n in range(30)])
    flags = {"train_file": train, "dev_file": None, "dev_fraction": 0}
    assert read_task(settings(inputs, tmp_path, **flags))[1].notes[-1] == (
        "label has 30 classes in 30 examples. Check --label_column."
    )
    write_table(train, [(f"text {n}", f"row{n % 15}") for n in range(30)])
    assert len(read_task(settings(inputs, tmp_path, **flags))[1].notes) == 1


def shared(count, total, name, other="training", also="also occur"):
    return (
        f"{count} of {total} {name} examples {also} in the {other} set (ignoring case and spaces), "
        f"so the scores on {name} are too high. Remove the duplicates."
    )


def test_examples_shared_by_sets_are_counted(inputs, tmp_path):
    rows = [(f"good {n}", "pos") for n in range(40)]
    flags = {"train_file": write_table(tmp_path / "train.tsv", [*rows, *(("bad", "neg"),) * 9])}
    flags["dev_file"] = write_table(
        tmp_path / "dev.tsv", [(" Good  3", "pos"), *((f"bad {n}", "neg") for n in range(30))]
    )
    flags["test_file"] = write_table(
        tmp_path / "test.tsv", [*rows[:8], ("BAD 4", "neg"), ("goods 4", "pos"), ("new", "neg")]
    )
    assert read_task(settings(inputs, tmp_path, **flags))[1].notes == [
        shared(1, 31, "dev"),
        shared(8, 11, "test"),
        shared(2, 11, "test", "dev"),
    ]
    (tmp_path / "test.tsv").write_text("text\ngood 3\n")  # nothing is scored without labels
    write_table(flags["dev_file"], [("new", "neg"), ("other", "pos")])
    assert read_task(settings(inputs, tmp_path, **flags))[1].notes == []


def test_examples_shared_by_published_files_are_counted(inputs, tmp_path):
    rows = [f"x|{n % 2}||Ann ran {n} miles." for n in range(10)]
    (tmp_path / "train.tsv").write_text("\n".join(rows).replace("|", "\t"))
    (tmp_path / "dev.tsv").write_text("\n".join(rows[:3]).replace("|", "\t"))
    flags = {"train_file": None, "dev_file": None, "text_columns": None, "label_column": None}
    _, sets = read_task(settings(inputs, tmp_path, task="cola", data_dir=tmp_path, **flags))
    assert sets.notes[-1] == shared(3, 3, "dev")


def answered(question, context, *answers):
    spans = [{"text": text, "answer_start": context.index(text)} for text in answers]
    return {"question": question, "context": context, "answers": spans}


def labeled(text, label, **more):
    return {"text": text, "label": label, **more}


SHARED = {
    "classification": ("text", [labeled("a b", "x"), labeled("c", "y")], [labeled("A  b", "x")]),
    "multilabel": ("text", [labeled("a", ["x"]), labeled("b", ["y"])], [labeled("a", ["x"])]),
    "regression": ("text", [labeled("a", 1), labeled("b", 2)], [labeled("a", 1)]),
    "pairs": (
        "text,b",
        [labeled("a", "x", b="b"), labeled("c", "y", b="d")],
        [labeled("b ", "x", b="a"), labeled("a", "x", b="d")],
    ),
    "tagging": (
        "text",
        [labeled(["A", "b"], ["X", "O"]), labeled(["c"], ["O"])],
        [labeled(["a", "b"], ["X", "O"]), labeled(["b", "a"], ["O", "X"])],
    ),
    "similarity": ("text,b", [{"text": "a", "b": "b"}, {"text": "c", "b": "d"}],
                   [{"text": "A", "b": "b"}, {"text": "A", "b": "d"}]),
    "multiple_choice": ("text,b", [labeled("a", 0, b=["x", "y"]), labeled("b", 1, b=["x", "y"])],
                        [labeled("a", 1, b=["y", "x"]), labeled("a", 1, b=["y", "z"])]),
    "squad": ("question,context",
              [answered("Who?", "Ann ran.", "Ann"), answered("Where?", "In Rome.", "Rome")],
              [answered("What did Ann?", "Ann  ran.", "ran"), answered("Who?", "Bob sat.", "Bob")]),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHARED)
def test_shared_examples_are_counted_for_every_task(kind, tmp_path):
    columns, train, dev = SHARED[kind]
    task = "classification" if kind == "pairs" else kind
    label = next((name for name in ("label", "answers") if name in train[0]), None)
    also = "have a context that also occurs" if kind == "squad" else "also occur"
    found = notes_of(tmp_path, task, train, dev, columns, label)
    assert found == [shared(1, len(dev), "dev", also=also)]
    assert notes_of(tmp_path, task, train, dev[1:] or train[:0], columns, label) == []


def notes_of(folder, task, train, dev, columns="question,context", label="answers"):
    flags = [f"--task={task}", f"--model_dir={folder / 'new'}", "--init_checkpoint=tiny"]
    for name, rows in (("train", train), ("dev", dev)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows or train[:0]))
        flags += [f"--{name}_file={path}"] if rows else []
    flags += [] if dev else ["--dev_fraction=0"]
    flags += [f"--text_columns={columns}", *([f"--label_column={label}"] if label else [])]
    notes = read_splits(parse(*flags)).notes
    return [note for note in notes if not note.startswith("No dev set")]


REMEDY = ". Correct the labels."


@pytest.mark.parametrize(
    ("task", "rows", "example"),
    [
        ("classification", [("a  b", "x"), ("a b", "y"), ("A b", "x")], "'a b' ('x', 'y')"),
        ("classification", [("a", "x"), ("a", "x"), ("b", "y")], None),
        ("multilabel", [("a", ["x", "y"]), ("a", ["y", "x"]), ("a", ["y"])],
         "'a' (['x', 'y'], ['y'])"),
        ("multilabel", [("a", ["x", "y"]), ("a", ["y", "x"])], None),
        ("regression", [("a", 1), ("a", 2.5), ("b", 1)], "'a' (1.0, 2.5)"),
        ("tagging", [(["A", "b"], ["X", "O"]), (["A", "b"], ["O", "O"])], "'A b'"),
        ("squad", [("Who?", "Ann ran.", "Ann"), ("Who?", "Ann ran.", "Ann ran")], None),
        ("squad", [("Who?", "Ann ran.", "Ann"), ("Who?", "Ann ran.")],
         "'Who? ||| Ann ran.' ('answer', 'no answer')"),
    ],
)  # fmt: skip
def test_texts_with_different_labels_are_counted(task, rows, example, tmp_path):
    make, *columns = (answered,) if task == "squad" else (labeled, "text", "label")
    expected = (
        [f"Identical texts with different labels: 1, such as {example}{REMEDY}"] if example else []
    )
    assert notes_of(tmp_path, task, [make(*row) for row in rows], [], *columns) == expected


def test_labels_that_differ_between_sets_are_counted(tmp_path):
    sets = ([labeled("a", label, b=["x", "y"])] for label in (0, 1))
    assert notes_of(tmp_path, "multiple_choice", *sets, "text,b", "label") == [
        f"Identical texts with different labels: 1, such as 'a' (0, 1){REMEDY}",
        shared(1, 1, "dev"),
    ]


def test_pairs_with_shared_text_across_sets_are_reported(inputs, tmp_path):
    train = tmp_path / "train.tsv"
    lines = [f"premise {n // 3}\tclaim {n}\t{'yn'[n % 2]}" for n in range(60)]
    train.write_text("\n".join(["a\tb\tlabel", *lines]))
    flags = {"train_file": train, "dev_file": None, "text_columns": "a,b"}
    task, sets = read_task(settings(inputs, tmp_path, **flags))
    trained = {item.text_a for item in task.training_items()}
    assert all(item.text_a in trained for item in sets.dev["dev"].items)
    assert sets.notes[-1] == (
        "6 of 6 held-out pairs share one text with a training pair. Only identical pairs are kept "
        "in the same split."
    )
    train.write_text("\n".join(["a\tb\tlabel", *(f"{n}\t{n}\t{'yn'[n % 2]}" for n in range(60))]))
    assert len(read_task(settings(inputs, tmp_path, **flags))[1].notes) == 1


@pytest.mark.parametrize("flag", ["train_file", "dev_file"])
def test_missing_column_raises_error_before_reading(flag, inputs, tmp_path):
    lacking = tmp_path / "a.tsv"
    lacking.write_text("text\tclass\ngood\tpos\n")
    flags = {flag: lacking, "test_file": inputs / "dev.tsv"}
    new = tmp_path / "new"
    with pytest.raises(ValueError, match=r"a\.tsv, line 1: expected one column 'label', got none"):
        check_tables(settings(inputs, new, **flags))
    check_tables(settings(inputs, new, **flags, skip_bad_rows=True))
    check_tables(settings(inputs, tmp_path, **flags))
    check_tables(settings(inputs, new, test_file=lacking))
    lacking.write_text("")
    with pytest.raises(ValueError, match=r"a\.tsv is empty: expected a header with text, label"):
        check_tables(settings(inputs, new, **flags))


def test_unused_columns_may_be_missing(inputs, tmp_path):
    unlabelled = tmp_path / "unlabelled.tsv"
    unlabelled.write_text("text\na film\n")
    own = tmp_path / "own.tsv"
    own.write_text("id\ttext\tlabel\n1\tgood\tpos\n2\tbad\tneg\n")
    flags = {"train_file": own, "dev_file": own, "id_column": "id"}
    check_tables(settings(inputs, tmp_path / "new", **flags))
    message = r"unlabelled\.tsv, line 1: expected one column 'id', got none"
    with pytest.raises(ValueError, match=message):
        check_tables(settings(inputs, tmp_path / "new", **flags, test_file=unlabelled))
    asked = tmp_path / "asked.tsv"
    asked.write_text("question\tcontext\nWho?\tAnn did.\n")
    answered = tmp_path / "answered.tsv"
    answered.write_text("question\tcontext\tanswers\tat\nWho?\tAnn did.\tAnn\t0\n")
    given = (
        *("--task=squad", "--init_checkpoint=c", f"--model_dir={tmp_path / 'new'}"),
        *(f"--train_file={answered}", "--answer_start_column=at"),
    )
    check_tables(parse(*given, f"--test_file={asked}"))
    message = r"asked\.tsv, line 1: expected one column 'answers', got none"
    with pytest.raises(ValueError, match=message):
        check_tables(parse(*given, f"--dev_file={asked}"))


def test_bad_rows_are_counted_and_listed(inputs, tmp_path):
    train = tmp_path / "train.tsv"
    train.write_text("text\tlabel\ngood film\tpos\nno label\nbad film\tneg\nso\tpos\textra\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 3: expected 2 columns, got 1"):
        read_task(settings(inputs, tmp_path, train_file=train))
    _, sets = read_task(settings(inputs, tmp_path, train_file=train, skip_bad_rows=True))
    assert len(sets.skipped) == 2 and "line 5: expected 2 columns, got 3" in sets.skipped[1]
    assert sets.notes[0].startswith("Bad rows skipped: 2. The first: ")


def test_label_smoothing_and_class_weights_change_loss_or_examples(inputs, tmp_path):
    def loss_of(rows, **flags):
        table = write_table(tmp_path / "own.tsv", rows)
        given = {"train_file": table, "dev_file": None, "dev_fraction": 0, **flags}
        return read_task(settings(inputs, tmp_path, **given))[0].compile_arguments["loss"]

    rows = [("good film", "a"), ("fine film", "a"), ("bad film", "b"), ("so", "a")]
    assert isinstance(loss_of(rows), keras.losses.SparseCategoricalCrossentropy)
    smoothed = loss_of(rows, label_smoothing=0.25)
    assert (smoothed.smoothing, smoothed.class_weights) == (0.25, None)
    rows = [("so", "a,b"), ("so is", "a"), ("a", "a"), ("the", "")]
    several = loss_of(rows, task="multilabel", class_weights="balanced")
    assert several.class_weights == [pytest.approx(1 / 3), 3.0]
    words = {"task": "tagging", "text_columns": "text", "class_weights": "balanced"}
    tags = loss_of([("a b c", "O O X"), ("d", "O")], **words)
    assert tags.class_weights == [pytest.approx(4 / 6), 2.0]
    train = write_table(tmp_path / "train.tsv", [("good", "pos")] * 3 + [("bad", "neg")])
    task, _ = read_task(settings(inputs, tmp_path, train_file=train, class_weights="balanced"))
    examples = task.training_examples(BertTokenizer(list(VOCAB)), 16)
    _, labels, weights = next(examples.sorted_batches(1000)[0])
    by_label = dict(zip(labels.numpy().tolist(), weights.numpy().tolist(), strict=True))
    assert by_label == {0: 2.0, 1: pytest.approx(2 / 3)}


# === Other task types ===


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def source_of(task, path, *more):
    given = [f"--task={task}", f"--train_file={path}", "--init_checkpoint=c", *more]
    task, splits = read_task(parse(*given))
    return task, splits.notes, splits.columns


def test_multilabel_and_regression_tables(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [{"t": f"text {n}", "l": ["x", "y"]} for n in range(5)])
    columns = ("--text_columns=t", "--label_column=l")
    task, _, named = source_of("multilabel", path, *columns)
    assert task.multi_label and task.labels == ("x", "y")
    texts = {"text_columns": ["t"], "label_column": "l", "id_column": None}
    assert named == {**texts, "label_separator": ","}
    path = jsonl(tmp_path / "b.jsonl", [{"t": f"text {n}", "l": n / 2} for n in range(5)])
    assert source_of("regression", path, *columns)[0].labels == ()


def test_tagging_tables_and_columns(tmp_path):
    rows = [{"words": ["Ann", f"saw{n}"], "tags": ["B-PER", "O"]} for n in range(5)]
    task, _, named = source_of("tagging", jsonl(tmp_path / "a.jsonl", rows))
    assert task.labels == ("B-PER", "O")
    assert named == {
        "text_columns": ["words"],
        "label_column": "tags",
        "id_column": None,
        "character_spans": False,
    }
    conll = tmp_path / "train.txt"
    conll.write_bytes(b"Jos\xe9 I-PER\n. O\n\n" * 2 + b"Ann I-PER\n\n")
    task, _, named = source_of("ner", conll, "--encoding=latin-1", "--dev_fraction=0.4")
    assert task.labels == ("O", "B-PER", "I-PER") and named == {}
    assert task.saved_options(task.options) == {"document_context": False}


def test_choice_tables(tmp_path):
    rows = [{"c": f"context {n}", "e": ["one", "two"], "l": 1} for n in range(5)]
    columns = ("--text_columns=c,e", "--label_column=l")
    task, _, named = source_of("multiple_choice", jsonl(tmp_path / "a.jsonl", rows), *columns)
    assert task.dev_sets == ("dev",)
    assert named["text_columns"] == ["c", "e"]
    swag = tmp_path / "swag.csv"
    swag.write_text(
        "sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        + "".join(f"It {n}.,She,a,b,c,d,{n % 4}\n" for n in range(5))
    )
    task, _, _ = source_of("swag", swag, f"--test_file={swag}")
    assert (task.dev_sets, task.test_sets) == (("dev", "test"), ())


def questions(version, impossible):
    entry = {"id": "1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    other = {"id": "2", "question": "Who?", "answers": [{"text": "Bob", "answer_start": 0}]}
    if impossible:
        entry |= {"answers": [], "is_impossible": True}
    articles = [
        {"title": "A", "paragraphs": [{"context": "Ann.", "qas": [entry]}]},
        {"title": "B", "paragraphs": [{"context": "Bob.", "qas": [other]}]},
    ]
    return {"version": version, "data": articles}


def test_squad_files_and_tables(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(questions("1.1", impossible=False)))
    task, notes, named = source_of("squad", path, "--doc_stride=16")
    assert (task.options.with_null, task.options.doc_stride, named) == (False, 16, {})
    assert "1 of 2 examples" in notes[0] and "whole articles" in notes[0]
    zipped = tmp_path / "train.JSON.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    again, _, named = source_of("squad", zipped)
    assert again.training_items() == task.training_items() and named == {}
    rows = [{"question": "Who?", "context": f"Ann {n}.", "answers": []} for n in range(3)]
    task, _, named = source_of("squad", jsonl(tmp_path / "a.jsonl", rows))
    assert task.options.with_null is True
    assert (named["text_columns"], named["label_column"]) == (["question", "context"], "answers")


@pytest.mark.parametrize(
    ("train", "dev", "found"), [(True, None, True), (False, True, True), (False, False, False)]
)
def test_unanswerable_questions_are_detected(tmp_path, train, dev, found):
    path, *given = tmp_path / "train.json", f"--dev_file={tmp_path}/dev.json"
    for name, impossible in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.json").write_text(json.dumps(questions("v2.0", impossible)))
    task, _, _ = source_of("squad", path, *(given if dev is not None else ()))
    assert task.options.with_null is found
    if not found:
        threshold = "--null_score_diff_threshold=0"
        message = "threshold=0 requires unanswerable questions, but every labeled question has an"
        with pytest.raises(ValueError, match=message):
            source_of("squad", path, threshold)


# === GLUE ===


def write_glue(folder):
    mnli = folder / "MNLI"
    mnli.mkdir()
    for split in ("train", "dev_matched", "dev_mismatched"):
        rows = "".join(f"{n}\ta\tb\tneutral\n" for n in range(3))
        (mnli / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tgold_label\n" + rows)
    for path in (mnli / "test_matched.tsv", folder / "AX.tsv"):
        path.write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    return folder


def test_glue_with_diagnostic_set_and_missing_file(tmp_path):
    flags = parse("--task=mnli", f"--data_dir={write_glue(tmp_path)}", "--init_checkpoint=c")
    task, sets = read_task(flags)
    assert task.name == "MNLI"
    assert task.dev_sets == ("dev_matched", "dev_mismatched")
    assert task.test_sets == ("test_matched", "ax")
    missing = "has no file for split test_mismatched, so there are no predictions."
    assert sets.notes[0] == f"{tmp_path} {missing}"
    assert sets.columns["text_columns"] == ["sentence1", "sentence2"]


def test_diagnostic_set_is_in_or_next_to_mnli_directory(tmp_path):
    given = ("--task=mnli", f"--data_dir={write_glue(tmp_path) / 'MNLI'}", "--init_checkpoint=c")
    assert read_task(parse(*given))[0].test_sets == ("test_matched", "ax")
    (tmp_path / "AX.tsv").unlink()
    task, sets = read_task(parse(*given))
    assert task.test_sets == ("test_matched",)
    assert sets.notes[1].endswith(
        "MNLI has no file for the diagnostic set AX, so there are no predictions."
    )
