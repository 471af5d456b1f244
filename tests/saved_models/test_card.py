"""The model card says what the export is, and how it is asked."""

import json
import re
import shlex
import types

import numpy as np
import tensorflow as tf

from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models.card import model_card
from bert_tf.saved_models.comparison import Difference
from bert_tf.saved_models.samples import Sample
from bert_tf.saved_models.served import ExportOptions, Served, Signature

from .conftest import CONFIG, VOCAB

STRINGS = tf.TensorSpec([None], tf.string)


class BertClassifier:
    """As far as a card looks."""

    config = CONFIG
    labels = ("neg", "pos")
    multi_label = False
    sentence_embedding = None

    @staticmethod
    def count_params():
        return 1234567


def card(
    *,
    labels=BertClassifier.labels,
    multi_label=False,
    lower=True,
    endpoints=("encoder", "encoder_training"),
    differences=None,
    **options,
):
    model = BertClassifier()
    model.labels, model.multi_label = labels, multi_label
    served = Served(model, None, None, BertTokenizer(VOCAB, lower), 16, ExportOptions(**options))
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
    samples = [
        Sample("tokens", 0, {"ids": np.array([[1]])}, {}),
        Sample(
            "serving_default",
            0,
            {
                "text": np.array([b"It's fine.", b"no"], object),
                "text_pair": np.array(["\U0001f642 ä".encode(), b"no"], object),
            },
            {},
        ),
    ]
    return model_card(
        "mine", served, signatures, traced, endpoints, samples, "2.13", differences or {}
    )


def test_what_the_model_is():
    text = card()
    assert text.startswith("# mine\n\nA BertClassifier. Finds the class of a pair of texts.\n")
    for line in (
        "- 1,234,567 parameters: 2 layers, hidden size 16, 2 attention heads.",
        "- A vocabulary of 21 pieces; text is lower-cased, and accents are stripped.",
        "- Computes in float32; its weights are stored as float32.",
        "- Rows have at most 16 tokens, [CLS] and [SEP] among them.",
        "- Classes: `neg`, `pos`.",
        "- Runs in TensorFlow Serving 2.13 and later.",
    ):
        assert f"\n{line}\n" in text
    assert "Where the output `truncated` is true" in text
    assert "assets.extra/vocab.txt" in text and "assets.extra/samples/" in text
    assert "{" not in re.sub("```.*?```", "", text, flags=re.DOTALL)


def test_what_differs_from_model_to_model(monkeypatch):
    text = card(labels=(), lower=False, precision="bfloat16", weights="int8")
    assert "text is cased." in text and "Classes" not in text
    assert "- Computes in bfloat16; its weights are stored as int8.\n" in text
    several = card(multi_label=True)
    assert "- Classes: `neg`, `pos`, any number of which may hold at once.\n" in several
    embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=10)
    monkeypatch.setattr(BertClassifier, "sentence_embedding", embedding)
    text = card(labels=())
    assert "trained to give: pooling by mean, scaled to length 1.\n- Runs in" in text


def test_a_label_cannot_leave_its_code():
    hostile = ("`<script>", "a`` ![x](http://a) ``", "\n# Title\x1b[2J", "", "x" * 10**6)
    line = next(line for line in card(labels=hostile).splitlines() if "Classes" in line)
    assert line.startswith(
        "- Classes: `` `<script> ``, ``` a`` ![x](http://a) `` ```, `\\n# Title\\x1b[2J`, `  `, `x"
    )
    assert len(line) < 250


def test_what_lower_precision_costs():
    assert "differ" not in card()
    difference = Difference(largest=0.0123, mean=0.001, cosine=None)
    text = card(weights="int8", differences={"tokens": {"logits": difference}})
    assert (
        "stored as int8.\n- Its samples' answers differ from float32's:\n"
        "  - `logits` of `tokens`: at most 0.012, 0.001 on average\n- Rows have"
    ) in text


def test_how_the_encoder_is_a_layer():
    called = 'TFSMLayer("path/of/this/version", call_endpoint="encoder"'
    text = card()
    assert f'{called}, call_training_endpoint="encoder_training")' in text
    assert "is a layer that can be trained further, with Adam after `model.optimizer.bui" in text
    text = card(endpoints=("encoder",))
    assert f"{called})" in text and "is a layer that is frozen." in text


def test_each_signature_with_inputs_and_outputs():
    section = card().split("### `serving_default`\n")[1].split("###")[0]
    assert section.strip() == (
        "Finds the class of a pair of texts.\n\n"
        "- Inputs: `text` (B,) string, `text_pair` (B,) string\n"
        "- Outputs: `label` (B,) string, `probabilities` (B, 2) float32, `truncated` (B,) bool"
    )
    assert "- Inputs: `ids` (B, ?) int32\n" in card()


def test_the_request_is_one_that_a_shell_passes_on():
    (line,) = (line for line in card().splitlines() if line.startswith("curl "))
    _, address, _, body = shlex.split(line)
    assert address == "http://localhost:8501/v1/models/mine:predict"
    assert json.loads(body) == {
        "signature_name": "serving_default",
        "inputs": {"text": ["It's fine."], "text_pair": ["\U0001f642 ä"]},
    }
    assert "-v DIR:/models/mine -e MODEL_NAME=mine tensorflow/serving\n" in card()


def test_the_call_is_python():
    code = re.search("```python\n(.*?)```", card(), re.DOTALL)[1]
    call = re.search(r'\["serving_default"\](\(.*\))', code)[1]
    passed = eval(f"dict{call}", {"tf": types.SimpleNamespace(constant=list)})
    assert passed == {"text": ["It's fine."], "text_pair": ["\U0001f642 ä"]}
    compile(code, "card", "exec")
