"""``export``: a model to a directory that TensorFlow Serving takes, whole or not at all.

An export stands alone: whoever loads it needs TensorFlow and tensorflow-text's operations, and
neither this library nor Keras. This library reads it as a checkpoint, too.

| path                                    | what                                               |
|-----------------------------------------|----------------------------------------------------|
| saved_model.pb, variables/              | the signatures, the endpoints and the weights      |
| batching_params.pbtxt                   | how TensorFlow Serving is to batch requests        |
| assets.extra/tf_serving_warmup_requests | what it asks itself before it serves               |
| assets.extra/model.config               | for a server of several models                     |
| assets.extra/samples/                   | requests with their answers, see ``samples``       |
| assets.extra/model.json                 | the model's class, its arguments, labels, casing   |
| assets.extra/vocab.txt                  | the vocabulary, one piece a line                   |
| assets.extra/bert_config.json           | the model's sizes                                  |
| assets.extra/task.json                  | what fine-tuning says of its task                  |
| assets.extra/README.md                  | the model card                                     |
| assets.extra/sha256.json                | what ``verify`` compares the other files with      |
"""

import contextlib
import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.answering.embeddings import endpoints
from bert_tf.answering.options import ExportOptions
from bert_tf.answering.served import serve
from bert_tf.answering.signatures import Signature
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.model_directory import write_description
from bert_tf.checkpoints.weights import to_checkpoint
from bert_tf.io.files import atomic_directory, check_not_exists, remove_written
from bert_tf.io.runtime import check_backend
from bert_tf.io.untrusted import check_model_name
from bert_tf.io.wording import one_line
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.signatures import model_signatures
from bert_tf.training.precision import preserved_arithmetic, set_rewrite

from . import serving_files
from .samples import Sample, run_samples
from .verification import write_hashes

# Every file of an export, by its name below the directory.
_WRITTEN = re.compile(
    r"saved_model\.pb|fingerprint\.pb|batching_params\.pbtxt|assets/[^/]+"
    r"|variables/variables\.(index|data-\d{5}-of-\d{5})"
    r"|assets\.extra/(tf_serving_warmup_requests|model\.config|vocab\.txt|bert_config\.json"
    r"|README\.md|(sha256|model|task)\.json|samples/\w+\.\d+\.(json|request\.pb|response\.pb))"
)
_DEFAULTS = ExportOptions()


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export that was made."""

    path: str  # the version's directory
    name: str  # the model's in a server
    signatures: Mapping[str, Signature]
    outputs: Mapping[str, tuple[str, ...]]  # by signature, the outputs' names
    samples: tuple[Sample, ...]  # requests to the signatures, and their answers


def export(
    model: BertModel,
    output_dir: str,
    *,
    tokenizer: BertTokenizer | None = None,
    options: ExportOptions = _DEFAULTS,
    name: str = "bert",
    notes: str = "",
) -> Exported:
    """Exports a model: strings in, answers out.

    The signatures are those of ``tasks.signatures``. The weights are copied out of any
    strategy, so that a model trained in bfloat16 or on several devices gives the same export as
    any other.

    Args:
        model: any of the library's models, of any dtype policy.
        output_dir: the version's directory, its last part a number where TensorFlow Serving is to
            find it (``exports/mine/1``); on any TensorFlow file system.
        tokenizer: the one that the model was trained with; by default its preprocessor's.
        options: how it is served.
        name: what a server is to call it.
        notes: a section of the export's card with the warnings issued when the model was loaded.

    Raises:
        ValueError: ``output_dir`` exists, the call is inside a strategy's scope, there is no
            tokenizer, an argument or an option does not fit the model, or the model's answers are
            not finite. Nothing is left of the export then.
    """
    check_backend()
    check_model_name(name)
    check_not_exists(output_dir)
    if tf.distribute.has_strategy():
        raise ValueError(
            "export was called inside strategy.scope(), where variables belong to the strategy: "
            "call it outside."
        )
    if tokenizer is None and model.preprocessor is None:
        raise ValueError(
            f"{model.name} has no preprocessor, and so no vocabulary: pass the tokenizer that it "
            "was trained with."
        )
    tokenizer = tokenizer or model.preprocessor.tokenizer
    served = serve(model, tokenizer, options)
    model_copy = served.model
    signatures = model_signatures(served)
    traced = trace(signatures)
    attributes = endpoints(served)
    with atomic_directory(output_dir) as folder, preserved_arithmetic():
        set_rewrite(False)  # servers do not rewrite graphs
        save(folder, traced, attributes, served.weights, served.resources)
        samples = [
            sample
            for key, signature in signatures.items()
            for sample in run_samples(key, traced[key], signature.inputs, signature.samples)
        ]
        extra = os.path.join(folder, "assets.extra")
        tokenization = Tokenization.from_tokenizer(tokenizer)
        described = dataclasses.replace(to_checkpoint(model_copy), tokenization=tokenization)
        write_description(described, extra)
        serving_files.write_samples(os.path.join(extra, "samples"), samples, name)
        warm_up = os.path.join(extra, "tf_serving_warmup_requests")
        serving_files.write_warm_up(warm_up, samples, name, options.largest_batch)
        texts = {
            "batching_params.pbtxt": serving_files.batching_parameters(signatures, options),
            "assets.extra/model.config": serving_files.MODEL_CONFIG.format(name=name),
            "assets.extra/README.md": model_card.export_card(
                described,
                name,
                [
                    f"{model_copy.count_params():,} parameters; computes in "
                    f"{model_copy.compute_dtype}.",
                    f"Rows have at most {served.max_seq_length} tokens, with [CLS] and [SEP].",
                    serving_files.limits(options),
                    "Runs in TensorFlow Serving 2.14 and later.",
                ],
                signatures,
                traced,
                next(sample for sample in samples if sample.signature == "serving_default"),
                notes,
            ),
        }
        for path, text in texts.items():
            with tf.io.gfile.GFile(os.path.join(folder, path), "w") as file:
                file.write(text)
        write_hashes(folder)
    outputs = {key: tuple(function.structured_outputs) for key, function in traced.items()}
    return Exported(output_dir, name, signatures, outputs, tuple(samples))


def remove_export(path: str) -> None:
    """Removes an earlier export, whole or in parts, from the path of a new one."""
    remaining = remove_written(path, _WRITTEN)
    if remaining:
        raise ValueError(
            f"{path} is where the export is to be, and there is {one_line(remaining[0])}, which no "
            "export wrote: move it away and start again."
        )


def trace(signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Concrete functions that take the inputs by name; one for all names of one signature."""
    traced: dict[int, Any] = {}
    for signature in signatures.values():
        if id(signature) not in traced:
            specs = {
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in signature.inputs.items()
            }
            function = tf.function(signature.function, autograph=False)
            traced[id(signature)] = function.get_concrete_function(**specs)
    return {name: traced[id(signature)] for name, signature in signatures.items()}


def save(
    folder: str,
    signatures: Mapping[str, Any],
    attributes: Mapping[str, Any],
    weights: Mapping[str, tf.Variable],
    resources: Sequence[Any] = (),
) -> None:
    """Saves concrete functions, ``tf.function``s as attributes, and the variables they read."""
    # A bare module holds the variables: a Keras model in its place would write its layers too.
    root = tf.Module()
    traces = [*signatures.values()]
    for name, function in attributes.items():
        setattr(root, name, function)
        traces.append(function.get_concrete_function())
    root.weights = dict(weights)
    root.resources = list(resources)
    # The seeds of dropout.
    saved = {variable.ref() for variable in weights.values()}
    variables = {variable.ref(): variable for trace in traces for variable in trace.graph.variables}
    root.seeds = [variable for reference, variable in variables.items() if reference not in saved]
    with _preserved_logging():
        tf.saved_model.save(root, folder, signatures=dict(signatures))


@contextlib.contextmanager
def _preserved_logging() -> Iterator[None]:
    """Restores the root logger's handlers and absl's level, which TensorFlow's save changes.

    absl configures the root logger with its first message; a ``logging.basicConfig`` that a program
    calls later would do nothing.
    """
    logger, handlers = logging.getLogger("absl"), [*logging.root.handlers]
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
        for handler in [*logging.root.handlers]:
            if handler not in handlers:
                logging.root.removeHandler(handler)
