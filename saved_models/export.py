"""SavedModels for TensorFlow Serving, written whole or not at all.

An export stands alone: whoever loads it needs TensorFlow and tensorflow-text's operations (each
TensorFlow Serving since 2.13 has them), and neither this library nor Keras. Beside the graph and
the weights, ``assets.extra/`` holds ``vocab.txt``, ``bert_config.json`` and a ``README.md``.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines.wordpiece import BertTokenizer

from . import signatures


def export_pretrainer(
    model: BertPretrainer,
    tokenizer: BertTokenizer,
    output_dir: str,
    max_seq_length: int | None = None,
    top_k: int = 5,
) -> None:
    """Exports a pre-trained model: strings in, filled masks, embeddings and next sentences out.

    The signatures are those of ``signatures.pretraining_signatures``. The weights are copied into
    a float32 model outside any strategy, so that a model trained in bfloat16 or on several devices
    gives the same export as any other.

    Args:
        model: a pre-trained model, of any dtype policy and under any strategy.
        tokenizer: the one it was trained with.
        output_dir: the version's directory, its last part a number where TensorFlow Serving is to
            find it (``exports/mine/1``); on any TensorFlow file system.
        max_seq_length: the most tokens of a row; by default all of the model's positions.
        top_k: the guesses for each mask.

    Raises:
        ValueError: ``output_dir`` exists, the call is inside a strategy's scope, or an argument
            does not fit the model.
    """
    _check_can_export(output_dir)
    if max_seq_length is None:
        max_seq_length = model.config.max_position_embeddings
    copied = float32_copy(model)
    traced = signatures.pretraining_signatures(
        copied, tokenizer, max_seq_length=max_seq_length, top_k=top_k
    )
    write(
        output_dir,
        traced,
        copied.weights,
        {
            "vocab.txt": "".join(piece + "\n" for piece in tokenizer.vocab),
            "bert_config.json": model.config.to_json(),
            "README.md": _model_card(model, tokenizer, traced, max_seq_length, top_k),
        },
    )


def float32_copy(model: BertPretrainer) -> BertPretrainer:
    """The same model with the same weights, computing in float32 and under no strategy.

    Args:
        model: any ``BertPretrainer``.

    Returns:
        A model with variables of its own.
    """
    copied = BertPretrainer.from_config({**model.get_config(), "dtype": "float32"})
    copied.set_weights(model.get_weights())
    return copied


def write(
    output_dir: str,
    traced: Mapping[str, Any],
    weights: Sequence[keras.Variable],
    extra_files: Mapping[str, str],
) -> None:
    """Writes a SavedModel; its directory appears when everything in it is there.

    Args:
        output_dir: the version's directory. What was left of an attempt that was killed, in
            ``output_dir`` with ``.partial`` behind, is removed.
        traced: concrete functions by signature name.
        weights: every Keras variable that they read.
        extra_files: contents by name, for ``assets.extra/``.

    Raises:
        ValueError: ``output_dir`` exists, or the call is inside a strategy's scope.
    """
    _check_can_export(output_dir)
    output_dir = output_dir.rstrip("/")
    # A bare module holds the variables: a Keras model in its place would write its layers too.
    root = tf.Module()
    root.weights = [weight.value for weight in weights]
    partial = f"{output_dir}.partial"
    _remove(partial)
    try:
        tf.io.gfile.makedirs(partial)
        tf.saved_model.save(root, partial, signatures=dict(traced))
        extra = os.path.join(partial, "assets.extra")
        tf.io.gfile.makedirs(extra)
        for name, content in extra_files.items():
            with tf.io.gfile.GFile(os.path.join(extra, name), "wb") as file:
                file.write(content.encode("utf-8"))
        tf.io.gfile.rename(partial, output_dir)
    finally:
        _remove(partial)


def _check_can_export(output_dir: str) -> None:
    if tf.io.gfile.exists(output_dir):
        raise ValueError(
            f"{output_dir} exists, and an export never overwrites one: name a directory that is "
            "yet to be made, such as the next version's."
        )
    if tf.distribute.has_strategy():
        raise ValueError(
            "export was called inside strategy.scope(), where variables belong to the strategy: "
            "call it outside."
        )


def _remove(folder: str) -> None:
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


_CARD = """\
# A pre-trained BERT

{parameters:,} parameters: {config.num_hidden_layers} layers, hidden size {config.hidden_size}, \
{config.num_attention_heads} attention heads. The vocabulary has {vocab_size:,} pieces; text is \
{case}. Rows have at most {max_seq_length} tokens, [CLS] and [SEP] among them; what is cut off is \
said in the output `truncated`.

Loading takes `tensorflow` and `tensorflow_text`, the latter imported for its operations alone:

```python
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load("path/of/this/version")
answer = model.signatures["serving_default"](text=tf.constant(["The sky is [MASK]."]))
print(answer["filled"].numpy(), answer["tokens"].numpy(), answer["scores"].numpy())
```

## Signatures

B is the batch, of any size. `serving_default` guesses what each literal `[MASK]` in a text stands \
for, {top_k} guesses each; no other signature gives `[MASK]` a meaning. Padding is "", -1 or 0.

{signatures}"""


def _model_card(
    model: BertPretrainer,
    tokenizer: BertTokenizer,
    traced: Mapping[str, Any],
    max_seq_length: int,
    top_k: int,
) -> str:
    sections = []
    for name, function in traced.items():
        lines = [f"### `{name}`\n"]
        positional, named = function.structured_input_signature
        inputs = {spec.name: spec for spec in positional} | named
        for title, specs in (("Inputs", inputs), ("Outputs", function.structured_outputs)):
            described = ", ".join(
                f"`{key}` {_shape(spec.shape)} {spec.dtype.name}" for key, spec in specs.items()
            )
            lines.append(f"- {title}: {described}")
        sections.append("\n".join(lines) + "\n")
    return _CARD.format(
        parameters=model.count_params(),
        config=model.config,
        vocab_size=tokenizer.vocab_size,
        case="lower-cased, accents stripped" if tokenizer.do_lower_case else "cased",
        max_seq_length=max_seq_length,
        top_k=top_k,
        signatures="\n".join(sections),
    )


def _shape(shape: tf.TensorShape) -> str:
    """A shape for people: the batch by its letter, other open sizes by a question mark.

    >>> _shape(tf.TensorShape([None, None, 128])), _shape(tf.TensorShape([None]))
    ('(B, ?, 128)', '(B,)')
    """
    sizes = ["B", *("?" if size is None else str(size) for size in shape.as_list()[1:])]
    return f"({', '.join(sizes)})" if len(sizes) > 1 else "(B,)"
