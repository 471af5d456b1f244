"""Export of models for TensorFlow Serving.

Loading an export requires TensorFlow and the operations of tensorflow-text, but not bert_tf or
Keras. ``bert_tf.load`` can also read it.

| path                                    | contents                                           |
|-----------------------------------------|----------------------------------------------------|
| saved_model.pb, variables/              | signatures, endpoints and weights                  |
| batching_params.pbtxt                   | batching configuration for TensorFlow Serving      |
| assets.extra/tf_serving_warmup_requests | warm-up requests for TensorFlow Serving            |
| assets.extra/model.config               | configuration for a server of several models       |
| assets.extra/samples/                   | sample requests and responses                      |
| assets.extra/model.json                 | class and arguments of the model, labels, casing   |
| assets.extra/vocab.txt                  | vocabulary, one token per line                     |
| assets.extra/bert_config.json           | config of the encoder                              |
| assets.extra/task.json                  | task type, lengths and options of fine-tuning      |
| assets.extra/README.md                  | model card                                         |
| assets.extra/sha256.json                | hashes of the other files, for ``verify``          |
"""

import contextlib
import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from bert_tf.answering.embeddings import endpoints
from bert_tf.answering.export_options import ExportOptions
from bert_tf.answering.served import serve
from bert_tf.answering.signatures import Signature
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.model_directory import write_description
from bert_tf.checkpoints.weights import to_checkpoint
from bert_tf.io.files import atomic_directory, check_not_exists, remove_written
from bert_tf.io.messages import one_line
from bert_tf.io.runtime import check_backend
from bert_tf.io.untrusted import check_model_name
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.signatures import model_signatures
from bert_tf.training.precision import set_rewrite

from . import serving_files
from .serving_files import Sample, run_samples
from .verification import write_hashes

# Relative paths of all files in an export.
_WRITTEN = re.compile(
    r"saved_model\.pb|fingerprint\.pb|batching_params\.pbtxt|assets/[^/]+"
    r"|variables/variables\.(index|data-\d{5}-of-\d{5})"
    r"|assets\.extra/(tf_serving_warmup_requests|model\.config|vocab\.txt|bert_config\.json"
    r"|README\.md|(sha256|model|task)\.json|samples/\w+\.\d+\.(json|request\.pb|response\.pb))"
)
_DEFAULTS = ExportOptions()


@dataclasses.dataclass(frozen=True)
class Exported:
    """Result of ``export``.

    Attributes:
        path: Directory of the version.
        name: Name of the model on a server.
        signatures: Signatures by name.
        outputs: Names of the outputs by signature.
        samples: Sample requests and responses.
    """

    path: str
    name: str
    signatures: Mapping[str, Signature]
    outputs: Mapping[str, tuple[str, ...]]
    samples: tuple[Sample, ...]


def export(
    model: BertModel,
    output_dir: str,
    *,
    tokenizer: BertTokenizer | None = None,
    options: ExportOptions = _DEFAULTS,
    name: str = "bert",
    notes: str = "",
) -> Exported:
    """Exports a model to a SavedModel with strings as inputs.

    The signatures depend on the model's task. The dtype policy and the distribution strategy of
    training do not change the export.

    Args:
        model: Instance of a bert_tf model class, with any dtype policy.
        output_dir: Directory of the version, on any TensorFlow file system. TensorFlow Serving
            requires a number as its name, such as ``exports/mine/1``.
        tokenizer: The model's tokenizer; by default ``model.preprocessor.tokenizer``.
        options: Options for serving.
        name: Name of the model on a server.
        notes: Section of the model card that contains the warnings about loading the model.

    Returns:
        The export: its path, signatures, outputs and samples.

    Raises:
        ValueError: If ``output_dir`` is not empty, if the call is in a strategy's scope, if there
            is no tokenizer, if an option does not match the model, or if outputs are not finite.
    """
    check_backend()
    check_model_name(name)
    check_not_exists(output_dir)
    if tf.distribute.has_strategy():
        raise ValueError(
            "export cannot run in strategy.scope(), where variables belong to the strategy. Call "
            "export outside the scope."
        )
    if tokenizer is None and model.preprocessor is None:
        raise ValueError(
            f"{model.name} has no preprocessor. Pass the tokenizer that the model was trained with."
        )
    tokenizer = tokenizer or model.preprocessor.tokenizer
    with _saving():
        served = serve(model, tokenizer, options)
        model_copy = served.model
        signatures = model_signatures(served)
        traced = trace(signatures)
        attributes = endpoints(served)
    with atomic_directory(output_dir) as folder, ThreadPoolExecutor(1) as pool:
        # TensorFlow optimizes and runs the graphs while Python saves them.
        running = pool.submit(_run_all_samples, signatures, traced)
        save(folder, traced, attributes, served.weights, served.resources)
        samples = running.result()
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
                    f"Rows have at most {served.max_seq_length} tokens, including [CLS] and [SEP].",
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


def _run_all_samples(
    signatures: Mapping[str, Signature], traced: Mapping[str, Any]
) -> list[Sample]:
    set_rewrite(False)  # in this thread, because servers do not rewrite graphs
    return [
        sample
        for key, signature in signatures.items()
        for sample in run_samples(key, traced[key], signature.inputs, signature.samples)
    ]


def remove_export(path: str) -> None:
    """Removes a complete or partial export, so that ``path`` can be used for a new export."""
    remaining = remove_written(path, _WRITTEN)
    if remaining:
        raise ValueError(
            f"{path} contains a file that is not part of an export: {one_line(remaining[0])}. Move "
            "it and rerun."
        )


def trace(signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Traces signatures to concrete functions; a signature with several names is traced once."""
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
    """Saves concrete functions as signatures, functions as attributes, and their variables."""
    # The root is a tf.Module, because a Keras model would also save its layers.
    root = tf.Module()
    traces = [*signatures.values()]
    with _saving():
        for name, function in attributes.items():
            setattr(root, name, function)
            traces.append(function.get_concrete_function())
    root.weights = dict(weights)
    root.resources = list(resources)
    # The remaining variables are dropout seeds.
    saved = {variable.ref() for variable in weights.values()}
    variables = {variable.ref(): variable for trace in traces for variable in trace.graph.variables}
    root.seeds = [variable for reference, variable in variables.items() if reference not in saved]
    with _preserved_logging():
        tf.saved_model.save(root, folder, signatures=dict(signatures))


def _saving() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which functions are traced as by ``tf.saved_model.save``.

    Saving traces functions again that were traced outside, because the policy for variables is
    different, and stores both graphs.
    """
    return save_context.save_context(tf.saved_model.SaveOptions())


@contextlib.contextmanager
def _preserved_logging() -> Iterator[None]:
    """Restores the root logger's handlers and absl's level, which saving changes.

    The first message of absl configures the root logger, after which ``logging.basicConfig`` has no
    effect.
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
