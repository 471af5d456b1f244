"""``bert_tf.BatchPredictor``: predictions of an export for distributed data processing."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.io import runtime
from bert_tf.io.messages import listed
from bert_tf.io.paths import absolute_path
from bert_tf.readers.examples import BadRowError, quoted, text
from bert_tf.readers.own_data import text_example
from bert_tf.readers.tables import Row
from bert_tf.tasks.python_data import plain_value

# Output value for invalid rows, by NumPy dtype kind; it is 0 for all other kinds.
_NO_ANSWER = {"O": None, "f": np.nan}
_loading = threading.Lock()
_loaded: dict[str, Any] = {}  # loaded exports by directory


class BatchPredictor:
    """Predicts columns of examples with an export, for Apache Beam, Ray, Spark and others.

    Pickling stores only the arguments. Each process loads the export on its first call, which
    requires TensorFlow and tensorflow-text, but no Keras model. Instances are thread-safe.

    Args:
        export: Versioned directory of an export, such as ``exports/reviews/1``.
        signature: Name of a signature with string inputs.
        outputs: Names of the outputs to return; by default all.
        threads: Number of TensorFlow threads, by default one per core; has no effect if the process
            already uses TensorFlow.
    """

    def __init__(
        self,
        export: str,
        signature: str = "serving_default",
        *,
        outputs: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        # Workers may have different working directories.
        self.export = absolute_path(export)
        self.signature, self.outputs, self.threads = signature, outputs, threads

    def __call__(self, columns: Mapping[str, Iterable[Any]]) -> dict[str, np.ndarray]:
        """Predicts N examples. Pass about a thousand examples per call for speed.

        Args:
            columns: For each input name, N strings; for ``choices`` and ``words``, N lists of
                strings. Other columns are ignored.

        Returns:
            The outputs by name, each of shape ``(N, ...)``, with strings as ``str``; and ``error``,
            of shape ``(N,)``: an error message if the example is invalid, else "". The outputs of
            invalid examples are ``None``, NaN or 0.

        Raises:
            ValueError: If the export, the signature, an output or a column does not exist.
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
        """Returns the function of the signature; loads the export if necessary."""
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

    def _check(self, items: str, needed: Iterable[str], available: Iterable[str]) -> None:
        if missing := sorted(set(needed).difference(available)):
            raise ValueError(
                f"{self.export}, signature {self.signature}: expected {listed(missing)} among the "
                f"{items}, got {listed(sorted(available))}."
            )


def _texts(row: Sequence[Any], are_lists: Mapping[str, bool]) -> list[Any]:
    """Returns a row's strings and lists of strings, after the same checks as ``predict`` makes."""
    values, singles = [plain_value(value) for value in row], {}
    for value, (name, is_list) in zip(values, are_lists.items(), strict=True):
        field = f"column {name!r}"
        if not is_list:
            singles[field] = value
        elif not isinstance(value, list):
            raise BadRowError(f"expected a list of strings in {field}, got {quoted(value)}")
        else:
            for item in value:
                text(item, field)
    if singles:
        text_example(Row(0, [None, *singles.values()]), list(singles))
    return values


def _in_rows(answers: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Returns N rows that contain the answers where ``valid``, a mask of shape (N,), is true."""
    from bert_tf.saved_models.replay import as_text

    if answers.dtype == object:
        answers = np.array(as_text(answers.tolist()), object).reshape(answers.shape)
    nothing = _NO_ANSWER.get(answers.dtype.kind, 0)
    column = np.full((len(valid), *answers.shape[1:]), nothing, answers.dtype)
    column[valid] = answers
    return column
