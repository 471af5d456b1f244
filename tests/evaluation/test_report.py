"""HTML report and table of the worst errors."""

import functools
import html.parser

import numpy as np

from bert_tf.evaluation.calibration import calibrate_classes
from bert_tf.evaluation.evaluation import Evaluation, Mistake
from bert_tf.evaluation.metrics import Confusion, compare_classes
from bert_tf.evaluation.report import write_report

BAD = "<script>alert('\"&')</script>"


class Page(html.parser.HTMLParser):
    """Parses the text and elements of a page, and checks that elements are closed in order."""

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


def sparse(matrix):
    """Returns the nonzero counts of a matrix."""
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
        "confusion": sparse([[3, 1], [0, 4]]),
        "thresholds": {"null": -1.25},
        **changes,
    }
    return Evaluation(**values)


def page_of(folder, found, labels, title="dev", collapsed=None):
    """Returns the parsed page and its source."""
    write_report(str(folder), found, labels, title, collapsed)
    content = (folder / "worst_errors.html").read_text()
    return Page(content), content


def test_page_shows_all_results_without_scripts(tmp_path):
    page, _ = page_of(tmp_path / "new", evaluation(), [BAD, "neg"], f"dev of {BAD}")
    assert "script" not in page.tags and not page.links and not page.handlers
    for expected in (
        f"dev of {BAD}", "macro f1", "0.50", "92.25", "0.00012", "null", "-1.25",
        "7 of 8 correct (87.5%)", f"AA text {BAD}Band its pair", "neg96.0%", f"{BAD}3.9%",
        "neg<0.1%", "pos>99.9%", "loss 3.25 · id 7", "id <9>", "2 errors, the largest",
        "word " * 400,
        f"Baseline: always predicting “{BAD}”, the most frequent class, is correct for 50.0% (4 of "
        "8",
    ):  # fmt: skip
        assert expected in page.text, expected
    assert page.text.index("loss 3.25") < page.text.index("loss 0.5 ")
    assert "Collapsed" not in page.text
    rows = (tmp_path / "new" / "worst_errors.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in rows]
    assert rows[0] == ["loss", "expected", "predicted", "id", "text"] and len(rows) == 3
    assert rows[1] == ["3.25", BAD, "neg", "7", f"A text {BAD} ||| and its pair"]


def test_confusion_matrix_has_counts_fractions_and_colors(tmp_path):
    counts = np.array([[1200, 1, 0], [3, 9, 0], [0, 0, 0]])
    page, content = page_of(tmp_path, evaluation(confusion=sparse(counts)), ["a", BAD, "c"])
    assert "1,209 of 1,213 correct (99.7%)" in page.text
    # Counts and fractions of the row; total of the row and its recall.
    for expected in (
        f"a1,200100%1<1%1,201100%{BAD}325%975%1275%c0–",
        "all1,203100precision100%90%–",
    ):
        assert expected in page.text, expected
    assert "3 of 12 (25.0%)" in content
    # Correct cells are blue, others orange; the intensity is the fraction of the row.
    assert "<td class='is' style='--share:1.00'" in content
    assert "<td class='not' style='--share:0.44'" in content
    many = [f"class {number}" for number in range(11)]
    page, content = page_of(tmp_path, evaluation(confusion=sparse(np.full([11, 11], 7))), many)
    assert page.tags.count("small") == 0 and "9.1%" in content and "turned" in content
    many = [f"class {number}" for number in range(151)]
    counts = np.diag([9] * 151)
    counts[3, 150], counts[7, 2] = 2, 5
    page, _ = page_of(tmp_path, evaluation(confusion=sparse(counts)), many)
    assert page.tags.count("table") == 1 and "The most frequent of 2 pairs" in page.text
    assert "class 7class 25class 3class 1502" in page.text


def test_control_characters_and_long_names_are_not_written(tmp_path):
    hostile = "".join(map(chr, (*range(1, 33), 0x7F, 0x9B, 0x202E, 0xFFFE, 0xFFFF)))
    _, content = page_of(tmp_path, evaluation(mistakes=[]), [hostile, "x" * 10**6], hostile)
    assert not set(content) & set(hostile) - {" ", "\n"} and len(content) < 4 * 10**6 + 20_000


def test_page_shows_probabilities_and_classes(tmp_path):
    logits, labels = np.array([[4.0, 0], [0, 3], [2, 0], [0, 1]]), np.array([0, 1, 1, 1])
    comparison = compare_classes(labels, logits.argmax(1), [BAD, "neg"])
    calibrate = functools.partial(calibrate_classes, logits, labels, 2.0)
    found = evaluation(thresholds={"temperature": 2.0}, comparison=comparison, calibrate=calibrate)
    page, content = page_of(tmp_path, found, [BAD, "neg"])
    for expected in (
        f"{BAD}0.5001.0000.66712",  # precision, recall, F1, true, predicted
        "temperature2", "4 decisions, grouped by probability",
        "0.6 to 0.711.000", "0.9 to 1.021.000",
    ):  # fmt: skip
        assert expected in page.text, expected
    assert "title='mean probability 0.967, fraction true 1.000'" in content
    assert "script" not in page.tags and "Thresholds" not in page.text


def test_page_without_errors_and_with_one_error(tmp_path):
    found = evaluation(mistakes=[], confusion=None, thresholds={}, constant=True)
    page, _ = page_of(tmp_path, found, ())
    assert "every prediction is the same" in page.text
    assert "None: all predictions are correct." in page.text
    assert "table" not in page.tags and "Thresholds" not in page.text
    assert (tmp_path / "worst_errors.tsv").read_text() == ""
    found = evaluation(mistakes=[Mistake("1", {"": "a"}, "a", "b", 1.0)])
    reason = "the training loss did not fall (0.7 to 0.7)"
    text = page_of(tmp_path, found, "ab", collapsed=reason)[0].text
    assert "One error, the largest" in text and f"Collapsed: {reason}. Try another seed" in text


def test_page_counts_examples_and_tags(tmp_path):
    comparison = compare_classes(np.array([0, 0, 1]), np.array([0, 1, 1]), ["a", "b"])
    for confusion, expected in (
        (sparse([[1, 1], [0, 1]]), "3 examples were evaluated. Baseline: always predicting “a”, "
         "the most frequent class, is correct for 66.7% (2 of 3)."),
        (sparse([[2, 1], [0, 6]]), "3 examples were evaluated. Baseline: always predicting “b”, "
         "the most frequent class, is correct for 66.7% (6 of 9 tags)."),
    ):  # fmt: skip
        found = evaluation(comparison=comparison, confusion=confusion)
        assert expected in page_of(tmp_path, found, ["a", "b"])[0].text
