"""The page, the table and the picture that a person looks at."""

import functools
import xml.etree.ElementTree

import numpy as np
import pytest

from bert_tf.metrics.calibration import of_classes
from bert_tf.metrics.judging import judge_classes
from bert_tf.reports.confusion import confusion_svg
from bert_tf.reports.reliability import reliability_svg
from bert_tf.results.explanation import Explanation, Word
from bert_tf.results.report import write_report
from bert_tf.tasks.evaluation import Evaluation, Mistake

from .pages import Page

SVG = "{http://www.w3.org/2000/svg}"
BAD = "<script>alert('\"&')</script>"


def texts_of(svg):
    """The drawn texts, and the tooltips."""
    root = xml.etree.ElementTree.fromstring(svg)
    return (
        [element.text for element in root.iter(f"{SVG}text")],
        [element.text for element in root.iter(f"{SVG}title")],
    )


def evaluation(**changes):
    mistakes = [
        Mistake("7", {"A": f"A text {BAD}", "B": "and its pair"}, BAD, "neg", 3.25, (0.039, 0.96)),
        Mistake("<9>", {"": "word " * 400}, "neg", "pos", 0.5),
    ]
    values = {
        "scores": {"macro_f1": 0.5, "exact": 92.25},
        "constant": False,
        "mistakes": mistakes,
        "confusion": np.array([[3, 1], [0, 4]]),
        "thresholds": {"null": -1.25},
        **changes,
    }
    return Evaluation(**values)


def test_words_of_the_first_errors_are_coloured(tmp_path):
    words = [Word(0, 2, 6, -0.5), Word(1, 4, 7, 1.0)]
    why = Explanation("7", (f"A text {BAD}", "and its pair"), "neg", 1.0, 0.0, words)
    write_report(str(tmp_path), evaluation(), ["neg", BAD], "t", explanations=[why])
    text = (tmp_path / "worst_errors.html").read_text()
    page = Page(text)
    assert "and its pair" in page.text and "A text <script>" in page.text
    assert "In the first 1, words on blue" in page.text and "script" not in page.tags
    assert "<span class='against' style='--share:0.33' title='-0.500'>text</span>" in text
    assert "<span class='for' style='--share:0.65' title='+1.000'>its</span>" in text


def test_the_page_shows_everything_and_runs_nothing(tmp_path):
    folder = tmp_path / "new"
    paths = write_report(str(folder), evaluation(), [BAD, "neg"], f"dev of {BAD}")
    names = ["worst_errors.html", "worst_errors.tsv", "confusion_matrix.svg"]
    assert paths == [str(folder / name) for name in names]
    content = (folder / names[0]).read_text()
    page = Page(content)
    assert "script" not in page.tags and page.links == []
    for shown in (
        f"dev of {BAD}", "macro f1", "0.50", "92.25", "null", "-1.25", "7 of 8 right (87.5%)",
        f"AA text {BAD}Band its pair", "neg96.0%", f"{BAD}3.9%", "loss 3.25 · id 7", "id <9>",
        "2 errors, the greatest", "word " * 400,
    ):  # fmt: skip
        assert shown in page.text.replace(" … more", ""), shown
    assert page.text.index("loss 3.25") < page.text.index("loss 0.5 ")
    assert "Collapsed" not in page.text
    assert "To beat: always saying “" + BAD + "”, the most frequent, is right in 50.0% (4 of 8" in (
        page.text
    )
    assert page.tags.count("details") == 1 and page.tags.count("svg") == 1
    # The picture inside is the file's.
    assert (folder / names[2]).read_text() in content
    rows = [line.split("\t") for line in (folder / names[1]).read_text().splitlines()]
    assert rows[0] == ["loss", "expected", "predicted", "id", "text"] and len(rows) == 3
    assert rows[1] == ["3.25", BAD, "neg", "7", f"A text {BAD} and its pair"]


def test_probabilities_and_classes_are_shown(tmp_path):
    logits, labels = np.array([[4.0, 0], [0, 3], [2, 0], [0, 1]]), np.array([0, 1, 1, 1])
    judged = judge_classes(labels, logits.argmax(1), [BAD, "neg"])
    calibrate = functools.partial(of_classes, logits, labels, 2.0)
    found = evaluation(thresholds={"temperature": 2.0}, judged=judged, calibrate=calibrate)
    write_report(str(tmp_path), found, [BAD, "neg"], "dev", {"macro_f1": [0.25, 0.75]})
    page = Page((tmp_path / "worst_errors.html").read_text())
    shown = [
        "macro f1: 95% of resampled sets are between 0.25 and 0.75.",
        f"{BAD}0.5001.0000.66712",  # precision, recall, F1, true, predicted
        "temperature2",
        "4 decisions, grouped by probability",
        "raw: 2 at 0.967, 1.000 so",
    ]
    for text in shown:
        assert text in page.text, text
    assert "script" not in page.tags and "Thresholds" not in page.text
    assert page.tags.count("svg") == 2
    texts_of(reliability_svg(calibrate()))  # is well-formed


def test_without_classes_and_errors_and_with_one(tmp_path):
    found = evaluation(mistakes=[], confusion=None, thresholds={}, constant=True)
    paths = write_report(str(tmp_path), found, (), "dev")
    assert [path.rpartition("/")[2] for path in paths] == ["worst_errors.html", "worst_errors.tsv"]
    page = Page((tmp_path / "worst_errors.html").read_text())
    assert "every prediction is the same" in page.text and "everything is right" in page.text
    assert "svg" not in page.tags and "Thresholds" not in page.text
    assert (tmp_path / "worst_errors.tsv").read_text() == ""
    found = evaluation(mistakes=[Mistake("1", {"": "a"}, "a", "b", 1.0)])
    why = "the training loss did not fall (0.7 to 0.7)"
    write_report(str(tmp_path), found, "ab", "dev", collapsed=why)
    shown = Page((tmp_path / "worst_errors.html").read_text()).text
    assert "The one error, the greatest" in shown and f"Collapsed: {why}. Try another seed" in shown


def test_rows_are_counted_and_tags_are_told_apart(tmp_path):
    judged = judge_classes(np.array([0, 0, 1]), np.array([0, 1, 1]), ["a", "b"])
    for confusion, shown in (
        (np.array([[1, 1], [0, 1]]), "3 rows were judged. To beat: always saying “a”, the most "
         "frequent, is right in 66.7% (2 of 3)."),
        (np.array([[2, 1], [0, 6]]), "3 rows were judged. To beat: always saying “b”, the most "
         "frequent, is right in 66.7% (6 of 9 tags)."),
    ):  # fmt: skip
        found = evaluation(judged=judged, confusion=confusion)
        write_report(str(tmp_path), found, ["a", "b"], "dev")
        assert shown in Page((tmp_path / "worst_errors.html").read_text()).text


def test_more_classes_than_can_be_drawn(tmp_path):
    labels = [f"class {n}" for n in range(151)]
    confusion = np.diag(np.full(151, 9))
    confusion[3, 150], confusion[150, 0] = 2, 5
    paths = write_report(str(tmp_path), evaluation(confusion=confusion), labels, "dev")
    assert not (tmp_path / "confusion_matrix.svg").exists()
    assert str(tmp_path / "confusions.tsv") in paths
    assert (tmp_path / "confusions.tsv").read_text().splitlines() == [
        "expected\tpredicted\tcount",
        "class 150\tclass 0\t5",
        "class 3\tclass 150\t2",
    ]
    assert "svg" not in Page((tmp_path / "worst_errors.html").read_text()).tags


# === The picture ===


def test_the_picture_is_well_formed_whatever_the_names():
    hostile = "".join(map(chr, (*range(1, 33), 0x7F, 0x9B, 0x202E, 0xD800, 0xFFFE, 0xFFFF)))
    drawn = confusion_svg(np.array([[1, 1], [3, 9]]), [hostile, "x" * 10**6], hostile)
    texts, tooltips = texts_of(drawn)  # parsed as XML
    assert texts[0].startswith("\\x01\\x02") and len(drawn) < 10**4
    assert not any(set(text) & set(hostile) - {" "} for text in (*texts, *tooltips))


def test_counts_and_shares_of_rows():
    texts, tooltips = texts_of(confusion_svg(np.array([[1200, 1], [3, 9]]), ["a", BAD], "title"))
    assert texts[:2] == ["title", "1,209 of 1,213 right (99.7%)"]
    for shown in ("predicted", "expected", "a", "1,200", "100%", "<1%", "3", "25%", "9", "75%"):
        assert shown in texts
    # Recall of the rows, precision of the columns.
    assert texts[-12:] == [
        *("all", "recall", "all", "precision"),
        *("1,201", "100%", "1,203", "100%", "12", "75%", "10", "90%"),
    ]
    assert f"{BAD} → a: 3 of 12 (25.0%)" in tooltips


def test_the_colour_says_right_or_wrong_and_how_often():
    svg = confusion_svg(np.array([[4, 0, 4], [0, 0, 0], [1, 7, 0]]), ["a", "b", "c"], "")
    root = xml.etree.ElementTree.fromstring(svg)
    cells = [
        (group.find(f"{SVG}title").text, group.find(f"{SVG}rect"))
        for group in root.iter(f"{SVG}g")
        if group.find(f"{SVG}rect") is not None
    ]
    colors = {
        text.split(":")[0]: [int(rect.get("fill")[at : at + 2], 16) for at in (1, 3, 5)]
        for text, rect in cells
    }
    assert len(cells) == 9
    assert colors["a → b"] == colors["b → b"] == [255, 255, 255]  # b never occurs
    assert colors["a → a"][2] > colors["a → a"][0]  # blue
    assert colors["a → c"][0] > colors["a → c"][2]  # orange
    assert sum(colors["c → b"]) < sum(colors["a → c"]) < sum(colors["c → a"])
    # Dark numbers stay legible on the darkest.
    assert min(sum(color) for color in colors.values()) > 480


@pytest.mark.parametrize("size", [2, 3, 17, 40])
def test_everything_is_inside_the_picture(size):
    labels = [f"class_{number}_" + "long" * (number % 12) for number in range(size)]
    svg = confusion_svg(np.full([size, size], 123456), labels, "dev")
    root = xml.etree.ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter(f"{SVG}rect"):
        right = float(element.get("x", 0)) + float(element.get("width"))
        bottom = float(element.get("y", 0)) + float(element.get("height"))
        assert 0 <= right <= width and 0 <= bottom <= height
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.get("x")) <= width and 0 < float(element.get("y")) <= height
        assert float(element.get("font-size")) >= 9
    # Names are drawn in a row and in a column each, whole ones in their tooltips.
    texts, tooltips = texts_of(svg)
    assert texts.count("class_0_") == 2 and all(tooltips.count(label) == 2 for label in labels)


def test_large_counts_are_shortened_where_there_is_no_room():
    texts, tooltips = texts_of(confusion_svg(np.full([17, 17], 123456), ["a"] * 17, ""))
    assert texts.count("123k") == 17 * 17
    assert "a → a: 123,456 of 2,098,752 (5.9%)" in tooltips


@pytest.mark.parametrize(("shape", "labels"), [((2, 3), ["a", "b"]), ((2, 2), ["a"]), ((0, 0), [])])
def test_refusals(shape, labels):
    with pytest.raises(ValueError, match=rf"of {len(labels)} labels is .*, got \({shape[0]}, "):
        confusion_svg(np.zeros(shape), labels, "")
