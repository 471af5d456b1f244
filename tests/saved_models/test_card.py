"""The model card of an export describes the model and its requests."""

import json
import re
import shlex
import types

import numpy as np
import tensorflow as tf

from bert_tf.answering.signatures import Signature
from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.model_card import export_card
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.saved_models.serving_files import Sample
from tests.checkpoints.small_checkpoints import MODELS, make_checkpoint

from .conftest import VOCAB

STRINGS = tf.TensorSpec([None], tf.string)


def card(labels=("neg", "pos"), lower=True, **more):
    checkpoint = make_checkpoint(
        MODELS["classifier"], tokenization=Tokenization(tuple(VOCAB), lower), labels=labels, **more
    )
    signatures = {
        "serving_default": Signature(
            None, {"text": STRINGS, "text_pair": STRINGS}, (), "Finds the class of a pair of texts."
        ),
        "tokens": Signature(None, {"ids": tf.TensorSpec([None, None], tf.int32)}, (), "Takes ids."),
    }
    outputs = {
        "label": STRINGS,
        "probabilities": tf.TensorSpec([None, 2], tf.float32),
        "truncated": tf.TensorSpec([None], tf.bool),
    }
    traced = {name: types.SimpleNamespace(structured_outputs=outputs) for name in signatures}
    texts = {
        "text": np.array([b"It's fine.", b"no"], object),
        "text_pair": np.array(["\U0001f642 \u00e4".encode(), b"no"], object),
    }
    example = Sample("serving_default", 0, texts, {})
    limits = ["1,234 parameters.", ""]
    notes = "## Differences from the source\n\n- A key."
    return export_card(checkpoint, "mine", limits, signatures, traced, example, notes)


def test_card_describes_the_model():
    text = card()
    assert text.startswith("# mine\n\nA BertClassifier. Finds the class of a pair of texts.\n")
    for line in (
        "- 1,234 parameters.",
        "- Vocabulary: 21 pieces, uncased, without accents.",
        "- 2 classes: `neg`, `pos`.",
        "## Differences from the source\n\n- A key.",
    ):
        assert f"\n{line}\n" in text
    assert "The output `truncated` is true" in text and "assets.extra/samples/" in text
    assert "{" not in re.sub("```.*?```", "", text, flags=re.DOTALL)


def test_card_of_other_models():
    text = card(labels=(), lower=False)
    assert "pieces, cased." in text and "classes:" not in text
    assert "- 2 classes: `neg`, `pos`, multi-label" in card(multi_label=True)
    embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=10, query_prefix="q: ")
    text = card(labels=(), sentence_embedding=embedding)
    assert "mean pooling, normalized.\n- Prefixes of queries and documents: " in text


def test_labels_are_escaped():
    hostile = ("`<script>", "a`` ![x](http://a) ``", "\n# Title\x1b[2J", "", "x" * 10**6)
    line = next(line for line in card(labels=hostile).splitlines() if "classes:" in line)
    assert line.startswith(
        "- 5 classes: `` `<script> ``, ``` a`` ![x](http://a) `` ```, `\\n# Title\\x1b[2J`, `  `"
    )
    assert len(line) < 250


def test_card_lists_inputs_and_outputs_of_signatures():
    section = card().split("### `serving_default`\n")[1].split("###")[0]
    assert section.strip() == (
        "Finds the class of a pair of texts.\n\n"
        "- Inputs: `text` (B,) string, `text_pair` (B,) string\n"
        "- Outputs: `label` (B,) string, `probabilities` (B, 2) float32, `truncated` (B,) bool"
    )
    assert "- Inputs: `ids` (B, ?) int32\n" in card()


def test_curl_command_is_valid_in_a_shell():
    (line,) = (line for line in card().splitlines() if line.startswith("curl "))
    _, address, _, body = shlex.split(line)
    assert address == "http://localhost:8501/v1/models/mine:predict"
    inputs = {"text": ["It's fine."], "text_pair": ["\U0001f642 ä"]}
    assert json.loads(body) == {"signature_name": "serving_default", "inputs": inputs}
    assert "-v DIR:/models/mine -e MODEL_NAME=mine tensorflow/serving\n" in card()


def test_example_call_is_valid_python():
    code = re.search("```python\n(.*?)```", card(), re.DOTALL)[1]
    call = re.search(r'\["serving_default"\](\(.*\))', code)[1]
    arguments = eval(f"dict{call}", {"tf": types.SimpleNamespace(constant=list)})
    assert arguments == {"text": ["It's fine."], "text_pair": ["\U0001f642 ä"]}
    compile(code, "card", "exec")
