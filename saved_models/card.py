"""The model card of an export: its ``README.md``, for whoever finds the directory."""

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.untrusted import markdown_code

from . import limits, serving_files
from .comparison import Differences, describe
from .embeddings import ENCODER_TRAINING
from .samples import Sample
from .served import Served, Signature

_CARD = """\
# {name}

A {class_name}. {summary}

- {parameters:,} parameters: {config.num_hidden_layers} layers, hidden size {config.hidden_size}, \
{config.num_attention_heads} attention heads.
- A vocabulary of {vocab_size:,} pieces; text is {case}.
- Computes in {options.precision}; its weights are stored as {options.weights}.
{differences}- Rows have at most {max_seq_length} tokens, [CLS] and [SEP] among them.
{limits}{labels}{embedding}- Runs in TensorFlow Serving {oldest_serving} and later.

Where the output `truncated` is true, text that did not fit into a row has lost its end (of a \
pair, the longer one), and the answer is about what was left. Bytes that are not UTF-8 are left \
out; the output `invalid_utf8` is then true.

## In Python

Loading takes `tensorflow` and `tensorflow_text`, the latter imported for its operations alone:

```python
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load("path/of/this/version")
answer = model.signatures["serving_default"]({arguments})
print({{name: value.numpy() for name, value in answer.items()}})
```

`model.encoder` takes a dict of `input_word_ids`, `input_mask` and `input_type_ids`, and returns \
the encoder's outputs by TensorFlow Hub's names. In Keras,

```python
keras.layers.TFSMLayer("path/of/this/version", {endpoints})
```

is a layer {layer}.

## In TensorFlow Serving

DIR is the directory above this version's:

```
docker run -p 8500:8500 -p 8501:8501 -v DIR:/models/{name} -e MODEL_NAME={name} tensorflow/serving
```

with, behind it, `--enable_batching --enable_per_model_batching_parameters` for many clients at \
once. Then:

```
curl http://localhost:8501/v1/models/{name}:predict -d {body}
```

- `{warm_up}`: the server asks these before it takes the version into service.
- `{batching}`: how requests are joined into batches; read its comments.
- `{model_config}`: for a server of several models.
- `assets.extra/samples/`: of each signature, requests with their answers, as REST's JSON and as \
gRPC's `PredictRequest` and `PredictResponse`. `python -m bert_tf.verify DIR` asks them again.
- `assets.extra/vocab.txt`, `assets.extra/bert_config.json`: the tokenizer's pieces (it is in the \
graph, and does not read them) and the model's sizes.

## Signatures

B is the batch, of any size; ? a size that depends on the request. Rows that are shorter than \
others of their batch are padded with "", -1 or 0, and a count says where that begins.

{signatures}"""


def model_card(
    name: str,
    served: Served,
    signatures: Mapping[str, Signature],
    traced: Mapping[str, Any],
    endpoints: Collection[str],
    samples: Sequence[Sample],
    oldest_serving: str,
    differences: Differences,
) -> str:
    """The text, Markdown, with the first row of ``serving_default``'s first sample as its example.

    ``traced`` are the signatures' concrete functions, for the outputs' shapes; ``endpoints`` the
    names of ``embeddings.endpoints``.
    """
    example = next(sample for sample in samples if sample.signature == "serving_default")
    request = example.rest_request(rows=1)
    lower = served.tokenizer.do_lower_case
    called, layer = 'call_endpoint="encoder"', "that is frozen"
    if ENCODER_TRAINING in endpoints:
        called += f', call_training_endpoint="{ENCODER_TRAINING}"'
        layer = "that can be trained further"
    return _CARD.format(
        name=name,
        class_name=type(served.model).__name__,
        summary=signatures["serving_default"].summary,
        parameters=served.model.count_params(),
        config=served.model.config,
        vocab_size=served.tokenizer.vocab_size,
        case="lower-cased, and accents are stripped" if lower else "cased",
        options=served.options,
        differences=_differences(differences),
        endpoints=called,
        layer=layer,
        max_seq_length=served.max_seq_length,
        limits=limits.sentence(served.options),
        labels=_labels(served),
        embedding=_embedding(served),
        oldest_serving=oldest_serving,
        arguments=_arguments(example),
        body=shlex.quote(json.dumps(request, ensure_ascii=False)),
        warm_up=serving_files.WARM_UP,
        batching=serving_files.BATCHING,
        model_config=serving_files.MODEL_CONFIG,
        signatures="\n".join(
            _section(key, signature, traced[key].structured_outputs)
            for key, signature in signatures.items()
        ),
    )


def _differences(differences: Differences) -> str:
    lines = [
        f"  - `{output}` of `{what}`: {describe(difference)}\n"
        for what, by_output in differences.items()
        for output, difference in by_output.items()
    ]
    return "- Its samples' answers differ from float32's:\n" + "".join(lines) if lines else ""


def _labels(served: Served) -> str:
    if not served.model.labels:
        return ""
    names = ", ".join(markdown_code(label) for label in served.model.labels)
    several = ", any number of which may hold at once" if served.model.multi_label else ""
    return f"- Classes: {names}{several}.\n"


def _embedding(served: Served) -> str:
    embedding = served.model.sentence_embedding
    if (pooling := getattr(served.model, "pooling", "cls")) != "cls":
        return f"- The head reads the {pooling} over a text's tokens.\n"
    if embedding is None:
        return ""
    scaled = ", scaled to length 1" if embedding.normalize else ""
    return (
        "- `sentence_embedding` is the vector that the model was trained to give: pooling by "
        f"{embedding.pooling}{scaled}.\n"
    )


def _arguments(sample: Sample) -> str:
    """A call's arguments in Python, of a sample's first row."""
    parts = []
    for name, value in sample.inputs.items():
        row = value[:1].tolist()
        text = row[0].decode(errors="replace") if isinstance(row[0], bytes) else row[0]
        parts.append(f"{name}=tf.constant([{text!r}])")
    return ", ".join(parts)


def _section(name: str, signature: Signature, outputs: Mapping[str, tf.TensorSpec]) -> str:
    lines = [f"### `{name}`\n", signature.summary + "\n"]
    for title, specs in (("Inputs", signature.inputs), ("Outputs", outputs)):
        described = ", ".join(
            f"`{key}` {_shape(spec.shape)} {spec.dtype.name}" for key, spec in specs.items()
        )
        lines.append(f"- {title}: {described}")
    return "\n".join(lines) + "\n"


def _shape(shape: tf.TensorShape) -> str:
    """A shape for people: the batch by its letter, other open sizes by a question mark."""
    sizes = ["B", *("?" if size is None else str(size) for size in shape.as_list()[1:])]
    return f"({', '.join(sizes)})" if len(sizes) > 1 else "(B,)"
