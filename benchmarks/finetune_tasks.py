"""Tasks of ``benchmarks.finetune``, their targets, and the records of a run.

The processes of both libraries import this module, so it imports neither TensorFlow nor torch.
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
    """A task, its training settings and its targets.

    Attributes:
        title: Display name.
        glue: Name of the GLUE task; ``None`` for SQuAD.
        rows: Number of training examples, from the start of the file; 0 for all.
        epochs: Number of training epochs.
        max_seq_length: Maximum number of tokens per sequence.
        metric: Score to compare, in percent.
        points: Maximum difference, in points, by which the mean may be below the peer's.
        speedup: Target ratio of examples per second to the peer; ``None`` for no target.
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
    """Settings of one training run in the process of a library.

    Attributes:
        task: A key of ``COMPARISONS``.
        library: ``OURS`` or ``PEER``.
        precision: ``FLOAT32`` or ``BFLOAT16``.
        seed: Random seed for the new head, dropout and shuffling.
        rows: Number of training examples; 0 for the default of the comparison.
        dev_rows: Number of dev examples; 0 for all.
        stop_after: Number of steps after which to stop, without predictions; 0 trains fully.
        checkpoint: Directory of the initial weights.
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

    start_time: float = 0.0
    first: float = 0.0
    last: float = 0.0
    steps: int = 0

    def start(self) -> None:
        """Starts the stopwatch, before the first step."""
        self.start_time = time.perf_counter()

    def step(self) -> None:
        """Records the end of a step."""
        self.last = time.perf_counter() - self.start_time
        self.first = self.first or self.last
        self.steps += 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Results of a training run.

    Attributes:
        preparation_seconds: Time to load the weights and tokenize; not part of the training.
        first_step_seconds: Time of the first step, including building and tracing.
        seconds: Time of the training, including the first step but no evaluation.
        steps: Number of training steps.
        examples: Number of examples seen in all epochs.
        first_step_examples: Number of examples in the first step.
        tokens: Number of tokens in the training set, including [CLS] and [SEP] but no padding.
        positions: Number of positions in the training batches, including padding.
        device: Device of the training.
        predictions: Class ids or answers for the dev examples; [] if training stopped early.
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
    """Returns the first texts, the second texts if present, and the class ids."""
    second = [item.text_b for item in items if item.text_b is not None]
    return [item.text_a for item in items], second or None, [int(str(item.label)) for item in items]
