"""The page and the table that a person looks at."""

import functools
import html.parser

import numpy as np

from bert_tf.evaluation.calibration import calibrate_classes
from bert_tf.evaluation.evaluation import Evaluation, Mistake
from bert_tf.evaluation.report import write_report
from bert_tf.evaluation.scores import Confusion, compare_classes

BAD = "<script>alert('\"&')</script>"


class Page(html.parser.HTMLParser):
    """A page's text and elements, checked to be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.links, self._open = "", [], [], []
        self.handlers = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def counted(matrix):
    """The counts of a matrix that are not 0."""
    counts = np.array(matrix)
    true, predicted = np.nonzero(counts)
    return Confusion(true, predicted, counts[true, predicted])


def evaluation(**changes):
    mistakes = [
        Mistake("7", {"A": f"A text {BAD}", "B": "and its pair"}, BAD, "neg", 3.25, (0.039, 0.96)),
        Mistake("<9>", {"": "word " * 400}, "neg", "pos", 0.5, (0.0001, 0.9999)),
    ]
    values = {
        "scores": {"macro_f1": 0.5, "exact": 92.25, "loss": 0.00012},
        "constant": False,
        "mistakes": mistakes,
        "confusion": counted([[3, 1], [0, 4]]),
        "thresholds": {"null": -1.25},
        **changes,
    }
    return Evaluation(**values)


def page_of(folder, found, labels, title="dev", collapsed=None):
    """The page, read, and its text as it is written."""
    write_report(str(folder), found, labels, title, collapsed)
    content = (folder / "worst_errors.html").read_text()
    return Page(content), content


def test_the_page_shows_everything_and_runs_nothing(tmp_path):
    page, _ = page_of(tmp_path / "new", evaluation(), [BAD, "neg"], f"dev of {BAD}")
    assert "script" not in page.tags and not page.links and not page.handlers
    for shown in (
        f"dev of {BAD}", "macro f1", "0.50", "92.25", "0.00012", "null", "-1.25",
        "7 of 8 right (87.5%)", f"AA text {BAD}Band its pair", "neg96.0%", f"{BAD}3.9%",
        "neg<0.1%", "pos>99.9%", "loss 3.25 · id 7", "id <9>", "2 errors, the largest",
        "word " * 400,
        f"Baseline: always predicting “{BAD}”, the most frequent class, is correct for 50.0% (4 of "
        "8",
    ):  # fmt: skip
        assert shown in page.text, shown
    assert page.text.index("loss 3.25") < page.text.index("loss 0.5 ")
    assert "Collapsed" not in page.text
    rows = (tmp_path / "new" / "worst_errors.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in rows]
    assert rows[0] == ["loss", "expected", "predicted", "id", "text"] and len(rows) == 3
    assert rows[1] == ["3.25", BAD, "neg", "7", f"A text {BAD} ||| and its pair"]


def test_the_matrix_has_counts_shares_and_colours(tmp_path):
    counts = np.array([[1200, 1, 0], [3, 9, 0], [0, 0, 0]])
    page, content = page_of(tmp_path, evaluation(confusion=counted(counts)), ["a", BAD, "c"])
    assert "1,209 of 1,213 right (99.7%)" in page.text
    # Counts and shares of the row; all of the row and its recall.
    for shown in (f"a1,200100%1<1%1,201100%{BAD}325%975%1275%c0–", "all1,203100precision100%90%–"):
        assert shown in page.text, shown
    assert "3 of 12 (25.0%)" in content
    # Blue where it is right, orange where not, stronger with the share of the row.
    assert "<td class='is' style='--share:1.00'" in content
    assert "<td class='not' style='--share:0.44'" in content
    many = [f"class {number}" for number in range(11)]
    page, content = page_of(tmp_path, evaluation(confusion=counted(np.full([11, 11], 7))), many)
    assert page.tags.count("small") == 0 and "9.1%" in content and "turned" in content
    many = [f"class {number}" for number in range(151)]
    counts = np.diag([9] * 151)
    counts[3, 150], counts[7, 2] = 2, 5
    page, _ = page_of(tmp_path, evaluation(confusion=counted(counts)), many)
    assert page.tags.count("table") == 1 and "The most frequent of 2 pairs" in page.text
    assert "class 7class 25class 3class 1502" in page.text


def test_names_that_nobody_should_see_as_they_are(tmp_path):
    hostile = "".join(map(chr, (*range(1, 33), 0x7F, 0x9B, 0x202E, 0xFFFE, 0xFFFF)))
    _, content = page_of(tmp_path, evaluation(mistakes=[]), [hostile, "x" * 10**6], hostile)
    assert not set(content) & set(hostile) - {" ", "\n"} and len(content) < 4 * 10**6 + 20_000


def test_probabilities_and_classes_are_shown(tmp_path):
    logits, labels = np.array([[4.0, 0], [0, 3], [2, 0], [0, 1]]), np.array([0, 1, 1, 1])
    comparison = compare_classes(labels, logits.argmax(1), [BAD, "neg"])
    calibrate = functools.partial(calibrate_classes, logits, labels, 2.0)
    found = evaluation(thresholds={"temperature": 2.0}, comparison=comparison, calibrate=calibrate)
    page, content = page_of(tmp_path, found, [BAD, "neg"])
    for shown in (
        f"{BAD}0.5001.0000.66712",  # precision, recall, F1, true, predicted
        "temperature2", "4 decisions, grouped by probability",
        "0.6 to 0.711.000", "0.9 to 1.021.000",
    ):  # fmt: skip
        assert shown in page.text, shown
    assert "title='mean probability 0.967, fraction true 1.000'" in content
    assert "script" not in page.tags and "Thresholds" not in page.text


def test_without_classes_and_errors_and_with_one(tmp_path):
    found = evaluation(mistakes=[], confusion=None, thresholds={}, constant=True)
    page, _ = page_of(tmp_path, found, ())
    assert "every prediction is the same" in page.text
    assert "None: all predictions are correct." in page.text
    assert "table" not in page.tags and "Thresholds" not in page.text
    assert (tmp_path / "worst_errors.tsv").read_text() == ""
    found = evaluation(mistakes=[Mistake("1", {"": "a"}, "a", "b", 1.0)])
    why = "the training loss did not fall (0.7 to 0.7)"
    shown = page_of(tmp_path, found, "ab", collapsed=why)[0].text
    assert "One error, the largest" in shown and f"Collapsed: {why}. Try another seed" in shown


def test_rows_are_counted_and_tags_are_told_apart(tmp_path):
    judged = compare_classes(np.array([0, 0, 1]), np.array([0, 1, 1]), ["a", "b"])
    for confusion, shown in (
        (counted([[1, 1], [0, 1]]), "3 examples were evaluated. Baseline: always predicting “a”, "
         "the most frequent class, is correct for 66.7% (2 of 3)."),
        (counted([[2, 1], [0, 6]]), "3 examples were evaluated. Baseline: always predicting “b”, "
         "the most frequent class, is correct for 66.7% (6 of 9 tags)."),
    ):  # fmt: skip
        found = evaluation(comparison=judged, confusion=confusion)
        assert shown in page_of(tmp_path, found, ["a", "b"])[0].text
