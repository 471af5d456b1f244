"""What ``benchmarks.finetune`` compares on: the tasks and their bars, and one run's form.

Both libraries' processes import it, so it loads neither TensorFlow nor torch.
"""

import dataclasses
import time

from bert_tf.readers.examples import TextExample

OURS, PEER = "bert_tf", "transformers"
FLOAT32, BFLOAT16 = "float32", "bfloat16"
BATCH_SIZE = 32
LEARNING_RATE = 1e-4
WARMUP_PROPORTION = 0.1
CLIP_NORM = 1.0
DOC_STRIDE, MAX_QUERY_LENGTH, N_BEST, MAX_ANSWER_LENGTH = 128, 64, 20, 30
EVALUATION_BATCH_SIZE = 64


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A task, how it is trained, and what is wanted.

    Attributes:
        title: for people.
        glue: GLUE's name of it; ``None`` for SQuAD.
        rows: how many of the training examples, from the first; 0 for all.
        epochs: of training.
        max_seq_length: tokens of a row.
        metric: the score that is compared, in points of 100.
        points: so far at most may this library's mean be below the peer's.
        speedup: so many times the peer's examples a second are wanted; ``None`` for no bar.
    """

    title: str
    glue: str | None
    rows: int
    epochs: int
    max_seq_length: int
    metric: str
    points: float
    speedup: float | None


COMPARISONS = {
    "sst2": Comparison("SST-2", "SST-2", 12_000, 1, 128, "accuracy", 1.0, 1.5),
    "mrpc": Comparison("MRPC", "MRPC", 0, 3, 128, "accuracy", 2.0, 1.5),
    "squad": Comparison("SQuAD 1.1, 40 of dev's articles", None, 0, 1, 256, "f1", 2.0, None),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One training: what is asked of a library's process.

    Attributes:
        task: a key of ``COMPARISONS``.
        library: ``OURS`` or ``PEER``.
        precision: ``FLOAT32`` or ``BFLOAT16``.
        seed: of the new head, dropout and the order.
        rows: training examples, from the first; 0 for as many as the comparison has.
        dev_rows: dev examples, from the first; 0 for all.
        stop_after: the steps to stop after, without predictions; 0 to train whole.
        checkpoint: the directory of the weights to start from.
    """

    task: str
    library: str
    precision: str
    seed: int
    rows: int
    dev_rows: int
    stop_after: int
    checkpoint: str


@dataclasses.dataclass
class Stopwatch:
    """Seconds from ``start`` to the end of the first and of the last step."""

    began: float = 0.0
    first: float = 0.0
    last: float = 0.0
    steps: int = 0

    def start(self) -> None:
        """Begins to count, before the first step."""
        self.began = time.perf_counter()

    def step(self) -> None:
        """Notes that a step has ended."""
        self.last = time.perf_counter() - self.began
        self.first = self.first or self.last
        self.steps += 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a library's process answers.

    Attributes:
        preparation_seconds: reading the weights, tokenising; not part of the training.
        first_step_seconds: until the first step's end, building and tracing included.
        seconds: of the whole training, the first step included, no evaluation.
        steps: of the training.
        examples: seen in training, those of each epoch counted again.
        first_step_examples: seen in the first step.
        tokens: of the training set's rows, [CLS] and [SEP] among them, no padding.
        positions: of the training's batches, padding included.
        device: what it ran on.
        predictions: for the dev examples, class ids or answers; [] where training was not whole.
    """

    preparation_seconds: float
    first_step_seconds: float
    seconds: float
    steps: int
    examples: float
    first_step_examples: float
    tokens: int
    positions: int
    device: str
    predictions: list[int] | list[str]


def text_columns(items: list[TextExample]) -> tuple[list[str], list[str] | None, list[int]]:
    """First texts, second texts where there are any, and class ids ("0" and "1" in the files)."""
    second = [item.text_b for item in items if item.text_b is not None]
    return [item.text_a for item in items], second or None, [int(str(item.label)) for item in items]
