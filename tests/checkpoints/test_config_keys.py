"""Every key of other libraries' files has an answer, by which readers tell and refuse."""

import json

import pytest

from bert_tf.checkpoints.config_keys import FILES, NO_EFFECT, REJECTED, SUPPORTED, WARNED, messages
from tests.checkpoints.make_config_keys import LIST, PAGE, collect, page

KEYS = json.loads(LIST.read_text())["keys"]


@pytest.mark.parametrize("file", KEYS)
def test_every_key_that_a_peer_declares_or_reads_has_an_answer(file):
    answered = {key.split(".")[0] for key in FILES[file]}
    assert {*KEYS[file]} - answered == set()


@pytest.mark.parametrize("file", FILES)
def test_an_answer_has_a_kind_and_a_reason(file):
    for key, answer in FILES[file].items():
        assert answer.status in (SUPPORTED, NO_EFFECT, WARNED, REJECTED) and answer.reason, key
        assert not answer.neutral_values or answer.status in (WARNED, REJECTED), key
        assert not answer.reason.endswith("."), key


@pytest.mark.parametrize(
    "file, values, told",
    [
        ("config.json", {"hidden_size": 8, "num_beams": 3, "auto_map": None}, []),
        ("config.json", {"feed_forward_type": "geglu", "rotary": None},
         ["c: unknown keys are ignored: 'feed_forward_type'."]),
        ("config.json", {"auto_map": {"AutoModel": "own.Bert"}},
         ["c: auto_map={'AutoModel': 'own.Bert'}: custom model code is not run."]),
        ("config.json", {"sentence_transformers": {"activation_fn": "f", "other": 1}},
         ["c: unknown keys are ignored: 'sentence_transformers.other'."]),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 9}}}, []),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"stride": 2}}},
         ["c: unknown keys are ignored: 'processing_kwargs.text.stride'."]),
        ("modules.json", {"kwargs": []}, []),
        ("modules.json", {"kwargs": ["task"]},
         ["c: kwargs=['task']: arguments of encode are not passed to the module."]),
    ],
)  # fmt: skip
def test_what_is_told(file, values, told):
    assert [*messages(file, values, "c")] == told


@pytest.mark.parametrize(
    "file, values, sentence",
    [
        ("config.json", {"is_encoder_decoder": True},
         "c: is_encoder_decoder=True: expected False; encoder-decoder models are not supported"),
        ("config.json", {"quantization_config": {"bits": 4}},
         r"c: quantization_config=\{'bits': 4\}: quantized weights are not supported; dequantize"),
        ("config.json of a DistilBERT", {"pruned_heads": {"0": [1]}},
         r"c: pruned_heads=\{'0': \[1\]\}: expected \{\} or \[\]; "),
    ],
)  # fmt: skip
def test_what_is_refused(file, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        [*messages(file, values, "c")]
    assert [*messages(file, dict.fromkeys(values), "c")] == []


@pytest.mark.skipif(not PAGE.exists(), reason="the checkout is missing, whose page this reads")
def test_the_page_has_the_table():
    assert PAGE.read_text() == page(), "run python -m tests.checkpoints.make_config_keys --page"


@pytest.mark.parity
@pytest.mark.slow
def test_the_list_is_that_of_the_installed_peers():
    pytest.importorskip("sentence_transformers")
    assert collect()["keys"] == KEYS
