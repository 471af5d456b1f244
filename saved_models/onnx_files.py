"""A model on ids as an ONNX file, for runtimes without TensorFlow, with what its clients need.

| path                     | what                                                        |
|--------------------------|-------------------------------------------------------------|
| model.onnx               | the model on ids, for any batch and length                  |
| answers.json             | what its numbers mean: labels, thresholds, the temperature  |
| bert_config.json         | the model's sizes                                           |
| README.md                | the model card, with code                                   |
| assets.extra/samples/    | requests with their answers, as JSON                        |
| assets.extra/sha256.json | what ``verify`` compares the other files with               |

The tokenizer's files are the caller's to write. Keras' exporter makes the file, by tf2onnx.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import LONG_TEXTS, ONNX_PRECISIONS
from bert_tf.files import write_json
from bert_tf.interchange import model_card as cards
from bert_tf.interchange.saving import checkpoint_of
from bert_tf.modeling import BertEncoder, BertPretrainer
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.vocabulary import MASK_TOKEN, PAD_TOKEN, check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from . import replay
from .comparison import Difference, describe, differences, over_all
from .embeddings import DOCUMENT, QUERY, vectors_of_tokens
from .fill_mask import fills_masks
from .precision import copy_model, max_seq_length
from .samples import Sample, run_samples
from .served import ExportOptions, Outputs, Served, Signature
from .serving_files import write_bytes, write_samples, write_text
from .signatures import model_signatures
from .verification import write_hashes

SIGNATURE = "tokens"
_NEEDED = ("onnx", "onnxruntime", "tf2onnx")
_ASKED = """\
import numpy as np
import onnxruntime
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({max_seq_length})
tokenizer.enable_padding(pad_id=tokenizer.token_to_id("{pad}"))
rows = tokenizer.encode_batch({texts})
inputs = {{
    "input_word_ids": np.array([row.ids for row in rows], np.int32),
    "input_mask": np.array([row.attention_mask for row in rows], np.int32),
    "input_type_ids": np.array([row.type_ids for row in rows], np.int32),
}}{prepared}
session = onnxruntime.InferenceSession("model.onnx")
names = [output.name for output in session.get_outputs()]
answers = dict(zip(names, session.run(None, inputs)))
{shown}"""
_BESIDE = (
    "`answers.json`: what the numbers mean. A softmax of logits, divided by the temperature where "
    "there is one, gives probabilities; where several classes may hold at once, a sigmoid of each "
    "does.",
    "`tokenizer.json`, `tokenizer_config.json`, `vocab.txt`: the tokenizer.",
    "`assets.extra/samples/`: requests with their answers. `python -m bert_tf.verify DIR` asks "
    "them again.",
)
# Of a card's example.
_TEXTS = '["A fine film.", "I would not see it again, even for free."]'
_MASKED_TEXTS = f'["A fine {MASK_TOKEN}.", "I would {MASK_TOKEN} see it again, even for free."]'
_OF_CHOICES = """
# All rows are the choices of one example.
inputs = {key: rows[None] for key, rows in inputs.items()}"""
_POSITIONS = f"""
# Which tokens' logits are wanted, the same number of each row; np.zeros((len(rows), 0), np.int32)
# for none.
masks = [[row.tokens.index("{MASK_TOKEN}")] for row in rows]
inputs["{features.MASKED_LM_POSITIONS}"] = np.array(masks, np.int32)"""
_SHOWN = "print(answers)"
_GUESSES = f"""\
best = answers["{features.MASKED_LM_LOGITS}"].argmax(-1)[:, 0]
print([tokenizer.id_to_token(piece) for piece in best.tolist()])"""
_ARITHMETIC = {
    "float32": "Computes in float32.",
    "int8": "The matrices of the encoder, and of a masked-LM head, are int8, with a scale for each "
    "output, and activations are rounded to 8 bits as they come (ONNX Runtime's dynamic "
    "quantisation); the rest is float32.",
}


@dataclasses.dataclass(frozen=True)
class OnnxExport:
    """An ONNX file that was written into the directory ``path``."""

    path: str
    signature: Signature
    # What was asked, what ONNX Runtime answered, and how far that is from Keras' float32.
    samples: tuple[Sample, ...]
    differences: Mapping[str, Difference]


def check_installed() -> None:
    """Raises a ``ValueError`` where a package that writes or runs ONNX files is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f"ONNX files are written and run by {' and '.join(_NEEDED)}, and {', '.join(missing)} "
            f"is not installed: pip install 'bert_tf[onnx]'."
        )


def write_onnx(
    model: BertModel,
    folder: str,
    *,
    tokenizer: BertTokenizer,
    options: ExportOptions,
    precision: str = "float32",
    name: str = "bert",
) -> OnnxExport:
    """Writes the files of the table above into a directory that is not whole yet.

    Outputs are those of the signature ``tokens``; encoders and pre-trained models answer
    ``vectors_of_tokens``, and the latter ``masked_lm_logits`` (B, P, V) at another input,
    ``masked_lm_positions`` (B, P), and ``next_sentence_logits`` (B, 2).
    """
    check_installed()
    if precision not in ONNX_PRECISIONS:
        raise ValueError(
            f"precision is {precision!r}: expected one of {', '.join(ONNX_PRECISIONS)}."
        )
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    most = replay.MOST_ONNX_BYTES // 4
    if model.count_params() > most:
        raise ValueError(
            f"The model has {model.count_params():,} parameters, and an ONNX file holds at most "
            f"{most:,} in float32: export a SavedModel."
        )
    served = _served(model, tokenizer, options)
    signature = model_signatures(served)[SIGNATURE]
    if isinstance(model, (BertEncoder, BertPretrainer)):
        signature = _of_vectors(served, signature)
    expected = run_samples(SIGNATURE, signature.function, signature)
    path = os.path.join(folder, replay.ONNX)
    with tempfile.TemporaryDirectory() as scratch, _silence():
        written = os.path.join(scratch, "float32.onnx")
        _convert(served.model, signature, written)
        if precision == "int8":
            written = _quantize(written, os.path.join(scratch, "int8.onnx"), served.model)
        with open(written, "rb") as file:
            write_bytes(path, file.read())
    runtime = replay.OnnxSignature(path)
    samples = run_samples(SIGNATURE, runtime, signature)
    found = over_all(
        differences(dict(sample.outputs), dict(answer.outputs))
        for sample, answer in zip(expected, samples, strict=True)
    )
    # A conversion is checked against Keras wherever it is verified; what was quantised cannot be.
    recorded = expected if precision == "float32" else samples
    write_samples(os.path.join(folder, replay.SAMPLES), recorded, None)
    write_text(os.path.join(folder, "bert_config.json"), model.config.to_json())
    write_json(os.path.join(folder, "answers.json"), _answers(served))
    write_text(
        os.path.join(folder, cards.README), _card(name, served, expected[0], precision, found)
    )
    write_hashes(folder)
    return OnnxExport(folder, signature, tuple(samples), found)


def _served(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """A copy of the model in float32, untraced."""
    copied = copy_model(model, "float32")
    embedding = model.sentence_embedding
    return Served(
        model=copied,
        call=functools.partial(copied, training=False),
        encode=functools.partial(copied.encoder, training=False),
        tokenizer=tokenizer,
        max_seq_length=max_seq_length(model, options),
        options=options,
        vectors=None if embedding is None else copied.embed_states,
    )


def _of_vectors(served: Served, signature: Signature) -> Signature:
    """Vectors of the texts, and the logits of a pre-trained model's heads."""
    inputs, samples = dict(signature.inputs), signature.samples
    if fills_masks(served.model):
        inputs[features.MASKED_LM_POSITIONS] = tf.TensorSpec([None, None], tf.int32)
        # Of each row its second token and its first.
        samples = tuple(
            {**sample, features.MASKED_LM_POSITIONS: [[1, 0]] * len(next(iter(sample.values())))}
            for sample in samples
        )
    return dataclasses.replace(
        signature,
        function=functools.partial(_vectors_and_logits, served),
        inputs=inputs,
        samples=samples,
        summary="Takes ids from the client's own tokenizer, and returns the encoder's "
        "last hidden states, vectors of the texts and the logits of heads that pre-trained it.",
    )


def _vectors_and_logits(
    served: Served, masked_lm_positions: tf.Tensor | None = None, **ids: tf.Tensor
) -> Outputs:
    answers = vectors_of_tokens(served, **ids)
    model = served.model
    if masked_lm_positions is not None:
        # A place more than was asked for: ONNX's reshape takes a size of 0 for another.
        positions = tf.pad(masked_lm_positions, [[0, 0], [0, 1]])
        logits = model.masked_lm(answers[features.SEQUENCE_OUTPUT], positions)
        answers[features.MASKED_LM_LOGITS] = logits[:, :-1]
    if isinstance(model, BertPretrainer) and model.next_sentence is not None:
        pooled = answers[features.POOLED_OUTPUT]
        answers[features.NEXT_SENTENCE_LOGITS] = model.next_sentence(pooled)
    return answers


class _OnIds(keras.Model):
    """A signature as Keras' exporter takes it."""

    def __init__(self, model: BertModel, signature: Signature) -> None:
        super().__init__(name="on_ids")
        self.model = model  # whose variables are exported
        self.signature = signature

    def call(self, inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Asks the signature."""
        return self.signature.function(**inputs)


def _convert(model: BertModel, signature: Signature, path: str) -> None:
    on_ids = _OnIds(model, signature)
    on_ids({key: tf.constant(rows) for key, rows in signature.samples[0].items()})  # builds it
    specs = {
        key: tf.TensorSpec(spec.shape, spec.dtype, name=key)
        for key, spec in signature.inputs.items()
    }
    on_ids.export(path, format="onnx", input_signature=[specs], verbose=False)


def _quantize(source: str, target: str, model: BertModel) -> str:
    """Quantises the matrices of the encoder and a masked-LM head, most of which is its table."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(source).graph
    quantised = [layer.name for layer in (model.encoder, model.masked_lm) if layer is not None]
    heads = [
        node.name for node in graph.node if not any(f"/{layer}" in node.name for layer in quantised)
    ]
    # A scale for each output: with one for a whole matrix MiniLM's cosines fell to 0.93.
    quantize_dynamic(
        source, target, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=heads
    )
    return target


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps advice off the screen that is for callers of tf2onnx and of the quantisation."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _answers(served: Served) -> dict[str, Any]:
    model = served.model
    embedding = model.sentence_embedding
    roles = () if embedding is None else (QUERY, DOCUMENT)
    return {
        "model": type(model).__name__,
        "labels": list(model.labels),
        "multi_label": model.multi_label,
        "thresholds": dict(model.thresholds),
        "max_seq_length": served.max_seq_length,
        "do_lower_case": served.tokenizer.do_lower_case,
        **{role: getattr(embedding, role) for role in roles},
    }


def _card(
    name: str,
    served: Served,
    sample: Sample,
    precision: str,
    found: Mapping[str, Difference],
) -> str:
    model = served.model
    ids = next(iter(sample.inputs.values()))
    has_masks = features.MASKED_LM_POSITIONS in sample.inputs
    asked = _ASKED.format(
        max_seq_length=served.max_seq_length,
        pad=PAD_TOKEN,
        texts=_MASKED_TEXTS if has_masks else _TEXTS,
        prepared=_POSITIONS if has_masks else _OF_CHOICES if ids.ndim == 3 else "",
        shown=_GUESSES if has_masks else _SHOWN,
    )
    outputs = " and ".join(f"`{output}`" for output in sample.outputs)
    differing = "".join(f"\n  - `{output}`: {describe(each)}" for output, each in found.items())
    return cards.card(
        name,
        f"A {type(model).__name__} for ONNX Runtime: ids in, {outputs} out, for any batch and up "
        f"to {model.config.max_position_embeddings} tokens.",
        cards.bullets(
            [
                _ARITHMETIC[precision],
                f"On its samples, the largest difference from Keras' float32:{differing}",
                *cards.facts(checkpoint_of(model)),
                _long_texts(served.options),
            ]
        ),
        cards.code(asked, "python"),
        cards.bullets(_BESIDE),
    )


def _long_texts(options: ExportOptions) -> str:
    if options.long_text == LONG_TEXTS[0]:
        return ""
    return (
        f"It was trained with `--long_text={options.long_text}` of bert_tf.finetune; the code "
        "below reads only the beginning of a long text."
    )
