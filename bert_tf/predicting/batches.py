"""``bert_tf.BatchPredictor``: an export that answers columns, for engines of many machines."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.io import runtime
from bert_tf.io.paths import absolute_path
from bert_tf.io.wording import listed
from bert_tf.readers.examples import BadRowError, quoted, text
from bert_tf.readers.own_data import text_example
from bert_tf.readers.tables import Row
from bert_tf.tasks.python_data import plain_value

# What a row without an answer has in its place, by the kind of a NumPy dtype; others have 0.
_NO_ANSWER = {"O": None, "f": np.nan}
_loading = threading.Lock()
_loaded: dict[str, Any] = {}  # this process' exports, by their directories


class BatchPredictor:
    """An export that answers columns of rows, for Apache Beam, Ray, Spark and others.

    It is pickled as its arguments, and loads the export once in a process, on its first call, with
    TensorFlow and tensorflow-text alone: no model is built. Several threads may call it.

    Args:
        export: the directory of an export's version, such as ``exports/reviews/1``.
        signature: one of strings.
        outputs: the names of the outputs to return; by default all.
        threads: those of TensorFlow in a process that has not used it yet; by default one a core.
    """

    def __init__(
        self,
        export: str,
        signature: str = "serving_default",
        *,
        outputs: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        # A worker may have another working directory.
        self.export = absolute_path(export)
        self.signature, self.outputs, self.threads = signature, outputs, threads

    def __call__(self, columns: Mapping[str, Iterable[Any]]) -> dict[str, np.ndarray]:
        """Answers N rows; a thousand at once are quicker than one by one.

        Args:
            columns: by the name of each input N texts, or for ``choices`` and ``words`` N lists of
                texts; what is no input is ignored.

        Returns:
            The outputs, (N, ...) each, whose texts are ``str``; and ``error``, (N,): "", or why a
            row cannot be read, as ``predict`` says it, and the answers are ``None``, NaN and 0.

        Raises:
            ValueError: there is no such export, signature or output, or a column is missing.
        """
        from bert_tf.saved_models import replay

        function = self._function()
        specs = sorted(function.structured_input_signature[1].items())
        self._check("columns", dict(specs), columns)
        are_lists = {name: spec.shape.rank == 2 for name, spec in specs}
        rows, errors = [], []
        for values in zip(*(columns[name] for name in are_lists), strict=True):
            try:
                rows.append(_texts(values, are_lists))
                errors.append("")
            except BadRowError as error:
                errors.append(f"{error}.")
        inputs = {name: [row[index] for row in rows] for index, name in enumerate(are_lists)}
        for name in (name for name, is_list in are_lists.items() if is_list):
            width = max(map(len, inputs[name]), default=0)
            inputs[name] = [texts + [""] * (width - len(texts)) for texts in inputs[name]]
        answers = replay.ask(function, inputs)
        valid = np.array([not error for error in errors], bool)
        outputs = {name: _in_rows(answers[name], valid) for name in self.outputs or answers}
        return {**outputs, "error": np.array(errors, object)}

    def _function(self) -> Any:
        """The export's signature; loads the export where this process has not."""
        import tensorflow as tf

        from bert_tf.saved_models import replay

        runtime.check_fork()
        with _loading:
            if self.export not in _loaded:
                if self.threads is not None:
                    tf.config.threading.set_intra_op_parallelism_threads(self.threads)
                    tf.config.threading.set_inter_op_parallelism_threads(self.threads)
                replay.load_text_operations()
                _loaded[self.export] = replay.load(self.export)
        signatures = _loaded[self.export].signatures
        self._check("signatures", [self.signature], signatures)
        self._check("outputs", self.outputs or (), signatures[self.signature].structured_outputs)
        return signatures[self.signature]

    def _check(self, what: str, needed: Iterable[str], there: Iterable[str]) -> None:
        if missing := sorted(set(needed).difference(there)):
            raise ValueError(
                f"{self.export}, signature {self.signature}: expected {listed(missing)} among the "
                f"{what}, got {listed(sorted(there))}."
            )


def _texts(row: Sequence[Any], are_lists: Mapping[str, bool]) -> list[Any]:
    """The texts of a row, and lists of texts, checked as ``predict`` checks them."""
    values, singles = [plain_value(value) for value in row], {}
    for value, (name, is_list) in zip(values, are_lists.items(), strict=True):
        what = f"column {name!r}"
        if not is_list:
            singles[what] = value
        elif not isinstance(value, list):
            raise BadRowError(f"expected a list of texts in {what}, got {quoted(value)}")
        else:
            for each in value:
                text(each, what)
    if singles:
        text_example(Row(0, [None, *singles.values()]), list(singles))
    return values


def _in_rows(answers: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The answers to the good of N rows, (N,) bool, in their rows; texts are ``str``."""
    from bert_tf.saved_models.replay import as_text

    if answers.dtype == object:
        answers = np.array(as_text(answers.tolist()), object).reshape(answers.shape)
    nothing = _NO_ANSWER.get(answers.dtype.kind, 0)
    column = np.full((len(valid), *answers.shape[1:]), nothing, answers.dtype)
    column[valid] = answers
    return column
