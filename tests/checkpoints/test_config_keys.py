"""Status of each key in the files of other libraries, and the resulting warnings and errors."""

import json

import pytest

from bert_tf.checkpoints.config_keys import FILES, NO_EFFECT, REJECTED, SUPPORTED, WARNED, messages
from tests.checkpoints.make_config_keys import LIST, PAGE, collect, page

KEYS = json.loads(LIST.read_text())["keys"]


@pytest.mark.parametrize("file", KEYS)
def test_all_keys_of_other_libraries_have_a_status(file):
    known = {key.split(".")[0] for key in FILES[file]}
    assert {*KEYS[file]} - known == set()


@pytest.mark.parametrize("file", FILES)
def test_all_keys_have_a_valid_status_and_a_reason(file):
    for key, answer in FILES[file].items():
        assert answer.status in (SUPPORTED, NO_EFFECT, WARNED, REJECTED) and answer.reason, key
        assert not answer.neutral_values or answer.status in (WARNED, REJECTED), key
        assert not answer.reason.endswith("."), key


@pytest.mark.parametrize(
    "file, values, expected",
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
def test_warnings(file, values, expected):
    assert [*messages(file, values, "c")] == expected


@pytest.mark.parametrize(
    "file, values, message",
    [
        ("config.json", {"is_encoder_decoder": True},
         "c: is_encoder_decoder=True: expected False; encoder-decoder models are not supported"),
        ("config.json", {"quantization_config": {"bits": 4}},
         r"c: quantization_config=\{'bits': 4\}: quantized weights are not supported; dequantize"),
        ("config.json of a DistilBERT", {"pruned_heads": {"0": [1]}},
         r"c: pruned_heads=\{'0': \[1\]\}: expected \{\} or \[\]; "),
    ],
)  # fmt: skip
def test_rejected_value_raises_error(file, values, message):
    with pytest.raises(ValueError, match=message):
        [*messages(file, values, "c")]
    assert [*messages(file, dict.fromkeys(values), "c")] == []


@pytest.mark.skipif(not PAGE.exists(), reason="requires docs/ of a checkout")
def test_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run python -m tests.checkpoints.make_config_keys --page"


@pytest.mark.parity
@pytest.mark.slow
def test_list_of_keys_equals_installed_libraries():
    pytest.importorskip("sentence_transformers")
    assert collect()["keys"] == KEYS
