"""Types that the stages of an export pass on: options, the served model, signatures."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.choices import LONG_TEXTS, PRECISIONS
from bert_tf.modeling.base import TEMPERATURE, BertModel
from bert_tf.pipelines.wordpiece import BertTokenizer

Outputs = dict[str, tf.Tensor]
LARGEST_BATCH = 64


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of serving a model.

    Attributes:
        max_seq_length: the most tokens of a row, [CLS] and [SEP] included; by default those of the
            model's sentence embedding, else all of its positions.
        pair: of a classifier or a regressor: whether ``serving_default`` takes ``text`` and
            ``text_pair``, not ``text`` alone.
        long_text: of a classifier or a regressor: what is read of single texts of more tokens than
            a row, one of ``LONG_TEXTS``.
        normalize: whether embeddings are scaled to the Euclidean length 1.
        doc_stride: of questions: how many tokens after a window of the context the next begins.
        max_query_length: the most tokens of a question.
        n_best: the answers to a question.
        max_answer_length: the most tokens of an answer.
        transformers_signature: whether ``serving_default`` has the inputs and outputs that
            SavedModels of transformers' TFBert classes had; what it has else is ``strings`` then.
        precision: of the arithmetic, one of ``PRECISIONS``.
        max_rows: the most rows of a request, and of a server's batch; ``None``: any number, and 64
            of a batch.
        max_bytes: the most bytes of a row's strings, of each input; ``None``: any number.
        allowed_batch_sizes: the sizes that a server pads its batches to, ascending; (): none is
            padded.

    Raises:
        ValueError: a value is out of its range.

    >>> ExportOptions(n_best=0)
    Traceback (most recent call last):
    ...
    ValueError: n_best is 0: expected 1 or more.
    """

    max_seq_length: int | None = None
    pair: bool = False
    long_text: str = LONG_TEXTS[0]
    normalize: bool = False
    doc_stride: int = 128
    max_query_length: int = 64
    n_best: int = 20
    max_answer_length: int = 30
    transformers_signature: bool = False
    precision: str = "float32"
    max_rows: int | None = None
    max_bytes: int | None = None
    allowed_batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # The ordinary samples have to fit, and are shorter than this.
        for name, least in (("max_rows", 1), ("max_bytes", 256)):
            limit = getattr(self, name)
            if limit is not None and limit < least:
                raise ValueError(f"{name} is {limit}: expected {least} or more.")
        sizes = self.allowed_batch_sizes
        if sizes and (sizes[0] < 1 or any(a >= b for a, b in itertools.pairwise(sizes))):
            raise ValueError(
                f"allowed_batch_sizes is {','.join(map(str, sizes))}: expected whole numbers of 1 "
                "or more, ascending."
            )
        if sizes and self.max_rows is not None and sizes[-1] > self.max_rows:
            raise ValueError(
                f"allowed_batch_sizes has {sizes[-1]}, and max_rows is {self.max_rows}: expected "
                "no batch of more rows than a request may have."
            )
        for name in ("doc_stride", "max_query_length", "n_best", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 or more.")
        choices = {"precision": PRECISIONS, "long_text": LONG_TEXTS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: expected one of {', '.join(known)}."
                )

    @property
    def largest_batch(self) -> int:
        """The most rows of a batch that a server makes of requests."""
        if self.allowed_batch_sizes:
            return self.allowed_batch_sizes[-1]
        return min(LARGEST_BATCH, self.max_rows or LARGEST_BATCH)


@dataclasses.dataclass(frozen=True)
class Served:
    """A model as all signatures of one export share it; each function is traced once.

    Attributes:
        model: the copy that is exported.
        call: features to the model's outputs, at inference.
        encode: features to the encoder's outputs, at inference.
        guess: states (P, H) to the logits of the masked-LM head, (P, V) float32, if there is one.
        weights: the variables, by the paths by which ``checkpoints.exports`` finds them.
        resources: what the traces read besides variables; to be saved with the signatures.
        vectors: of a model of embeddings, states (N, S, H) and mask (N, S) to vectors (N, D).
        quick: the same for ``serving_default``, where speed counts most: states of padding are not
            computed and are 0, and in bfloat16 the matrices of a small encoder are constants.
            ``None`` in ``quick`` itself.
    """

    model: BertModel
    call: Callable[[Mapping[str, tf.Tensor]], Any]
    encode: Callable[[Mapping[str, tf.Tensor]], Any]
    tokenizer: BertTokenizer
    max_seq_length: int
    options: ExportOptions
    weights: Mapping[str, tf.Variable] = dataclasses.field(default_factory=dict)
    resources: tuple[Any, ...] = ()
    guess: Any = None
    vectors: Any = None
    quick: "Served | None" = None

    @property
    def temperature(self) -> float:
        """Divisor of the logits."""
        return self.model.thresholds.get(TEMPERATURE, 1.0)


@dataclasses.dataclass(frozen=True)
class Signature:
    """Signature of a server: ``summary`` says in a sentence what it answers.

    The function's outputs are dense, the request's batch first; ``samples`` are requests, columns
    by input.
    """

    function: Callable[..., Outputs]
    inputs: Mapping[str, tf.TensorSpec]
    samples: tuple[Mapping[str, list[Any]], ...]
    summary: str
