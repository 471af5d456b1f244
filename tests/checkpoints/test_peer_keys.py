"""Comparison with other libraries for changed values of each key in their files.

For each value, bert_tf must give equal results, warn, or raise an error. Values that the other
library rejects are skipped.
"""

import json
import shutil
import warnings

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.config_keys import FILES
from tests.checkpoints.make_config_keys import LIST

KEYS = json.loads(LIST.read_text())["keys"]
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "film", "the", "end", "of", "it"),
    *("all", "good", "##s", "##y", "[", "]", "sep", "A", "Fine"),
]
TEXTS = ["A fine film", "the end of it all"]
PAIRS = [("a fine film", "good"), ("the end of it " * 20, "all")]
# Texts with special tokens, a long word, accents, ideographs, other characters, and a long text.
SAMPLES = [
    "A [SEP] good [E1] film endof",
    "Fine\u0301 ends fines\ue000s the",
    "end 中文 all",
    "it " * 40,
]
SIZES = {
    **{"vocab_size": len(PIECES) + 2, "hidden_size": 16, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "intermediate_size": 24, "max_position_embeddings": 32},
}
# Values of keys for which the type does not determine the alternatives.
OTHERS = {
    "hidden_act": ["gelu_new", "relu", "silu", "mish"],
    "activation": ["gelu_new", "relu", "silu"],
    "problem_type": ["regression", "multi_label_classification", "single_label_classification"],
    "dtype": ["float16", "bfloat16", "float64"],
    "id2label": [{"0": "x", "1": "y", "2": "z"}, {"2": "x", "0": "y", "1": "z"}, {"1": "x"}],
    "label2id": [{"x": 0, "y": 1, "z": 2}],
    "architectures": [None],
    "tokenizer_name_or_path": [],  # an existing directory
    "num_labels": [3],
    "pruned_heads": [{"0": [1]}],
    "tokenizer_class": ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast"],
    "pooling_mode": ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken",
                     ["cls", "mean"]],
    "activation_fn": ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid",
                      "torch.nn.modules.activation.Tanh"],
    "activation_function": ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh",
                            "torch.nn.modules.activation.ReLU"],
    "prompts": [{"query": "a ", "document": "the "}, {"query": "a ", "passage": "the "}],
    "default_prompt_name": ["query", "document"],
    "similarity_fn_name": ["cosine", "dot", "euclidean", "manhattan"],
    "processing_kwargs": [{"text": {"max_length": 5}}, {"common": {"max_length": 5}},
                          {"text": {"padding": "max_length"}},
                          {"text": {"add_special_tokens": False}}],
    "processor_kwargs": [{"model_max_length": 6}], "tokenizer_args": [{"model_max_length": 6}],
    "config_kwargs": [{"num_hidden_layers": 1}], "config_args": [{"hidden_act": "relu"}],
    "model_kwargs": [{"dtype": "float32"}], "model_args": [{"dtype": "float32"}],
    "modality_config": [{"text": {"method": "forward", "method_output_name": "pooler_output"}}],
    "module_output_name": ["sentence_embedding", "token_embeddings"],
    "module_input_name": ["token_embeddings", "sentence_embedding"],
    "transformer_task": ["fill-mask", "sequence-classification", "feature-extraction"],
    "model_type": ["CrossEncoder", "SparseEncoder", "SentenceTransformer", "bert", "distilbert"],
    "type": ["sentence_transformers.models.Pooling", "sentence_transformers.models.WordWeights"],
    "path": ["", "2_Dense"],
    "truncate_dim": [5, 16],
    "query_expansion": [{"strategy": "fixed", "length": 8}],
    "requirements": [{"sentence-transformers": ">=5"}],
    "padding_side": ["left"], "truncation_side": ["left"],
    "model_input_names": [["input_ids", "attention_mask"]],
    "extra_special_tokens": [["[E1]"], {"image_token": "[E1]"}],
    "additional_special_tokens": [["[E1]"]],
    "model_specific_special_tokens": [{"image_token": "[E1]"}],
    "added_tokens_decoder": [{"21": {"content": "[E1]", "special": True}},
                             {"21": {"content": "endof", "single_word": True}}],
    "bos_token": ["[E1]"], "eos_token": ["good"], "unk_token": ["a"], "cls_token": ["a"],
    "sep_token": ["a"], "mask_token": ["a"], "pad_token": ["a"],
    "auto_map": [{"AutoTokenizer": ["own.Tokenizer", None]}],
    "never_split": [["Fine"]],
    "model.type": [None, "BPE"], "model.unk_token": ["a"], "model.continuing_subword_prefix": ["@"],
    "model.max_input_chars_per_word": [3, 200], "normalizer": [None, {"type": "NFC"}],
    "normalizer.type": ["BertNormalizer", "Lowercase"],
    "pre_tokenizer": [None, {"type": "Whitespace"}], "pre_tokenizer.type": ["Whitespace"],
    "truncation": [None, {"direction": "Left", "max_length": 5, "strategy": "LongestFirst",
                          "stride": 0}],
    "padding": [{"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None,
                 "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}],
    "added_tokens": [[{"id": 21, "content": "endof", "special": False, "normalized": True,
                       "single_word": True, "lstrip": False, "rstrip": False}]],
    "decoder": [None], "version": ["2.0"],
}  # fmt: skip


def _template(pair_type, *single):
    def part(name):
        kind = "Sequence" if len(name) == 1 else "SpecialToken"
        return {kind: {"id": name, "type_id": 0}}

    rows = [part(name) for name in single]
    second = [
        {"Sequence": {"id": "B", "type_id": pair_type}},
        {"SpecialToken": {"id": "[SEP]", "type_id": pair_type}},
    ]
    known = {
        name: {"id": name, "ids": [at], "tokens": [name]}
        for name, at in (("[CLS]", 2), ("[SEP]", 3))
    }
    return {
        "type": "TemplateProcessing",
        "single": rows,
        "pair": rows + second,
        "special_tokens": known,
    }


OTHERS["post_processor"] = [
    *(None, _template(0, "[CLS]", "A", "[SEP]"), _template(1, "[CLS]", "A"))
]


def others(key, value):
    """Returns alternative values of a key."""
    if key in OTHERS:
        return [other for other in OTHERS[key] if other != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value + 2]
    if isinstance(value, float):
        return [value / 2 + 0.05, 0.0]
    if isinstance(value, str):
        return ["another"]
    return [True, 2, "another"]


# Keys for text generation, except three, which suffice as a sample.
SKIPPED = {
    key
    for key, status in FILES["config.json"].items()
    if status.reason.startswith("used only for text generation")
    and key not in ("max_length", "prefix", "top_k")
}
# Keys that change labels or probabilities of a pipeline; the others change logits.
PIPELINE_KEYS = {"problem_type", "id2label", "label2id", "function_to_apply", "architectures"}


def call_with_warnings(function, path, key):
    """Returns a function's result, its warnings and its error message."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, message = function(path, key), ""
        except ValueError as error:
            value, message = None, str(error)
    notes = [str(each.message) for each in caught if each.category is bert_tf.DifferenceWarning]
    return value, notes, message


def close(theirs, ours, tolerance=1e-4):
    if theirs.keys() != ours.keys():
        return False
    for key, value in theirs.items():
        if isinstance(value, np.ndarray):
            other = np.asarray(ours[key])
            if value.shape != other.shape or not np.allclose(value, other, atol=tolerance):
                return False
        elif value != ours[key]:
            return False
    return True


def ids_of(rows):
    return [[at for at in row if at] for row in np.asarray(rows).tolist()]


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Saves a directory of each type with its library, and yields calls of both libraries."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules

    transformers.logging.set_verbosity_error()
    folder = tmp_path_factory.mktemp("peers")
    tokenizer = transformers.BertTokenizer(
        vocab={piece: at for at, piece in enumerate(PIECES)}, model_max_length=24
    )

    def save(name, kind, config, **settings):
        torch.manual_seed(0)
        model = kind(config(**settings)).eval()
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape) * 0.3
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)

    bert, distil = transformers.BertConfig, transformers.DistilBertConfig
    save("bert", transformers.BertForSequenceClassification, bert, **SIZES, num_labels=3)
    save("number", transformers.BertForSequenceClassification, bert, **SIZES, num_labels=1)
    save("encoder", transformers.BertModel, bert, **SIZES)
    sizes = {"vocab_size": len(PIECES), "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24}
    save("distilbert", transformers.DistilBertForSequenceClassification, distil, **sizes,
         max_position_embeddings=32, num_labels=3)  # fmt: skip
    shutil.copytree(folder / "bert", folder / "fast")
    config = folder / "fast" / "tokenizer_config.json"
    names = ["input_ids", "token_type_ids", "attention_mask"]
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names}
    config.write_text(json.dumps(json.loads(config.read_text()) | kind))
    torch.manual_seed(1)
    body = sentence_transformers.SentenceTransformer(str(folder / "encoder"), device="cpu")
    body.append(modules.Dense(16, 16))
    body.append(modules.Normalize())
    body.save_pretrained(str(folder / "sentences"))
    cross = sentence_transformers.CrossEncoder(str(folder / "number"), device="cpu")
    cross.save_pretrained(str(folder / "cross"))

    class Peers:
        def __init__(self):
            self.folder = folder

        def classes(self, path, key=None):
            tokenizer = transformers.AutoTokenizer.from_pretrained(path)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(
                path, dtype=torch.float32
            )
            rows = tokenizer(TEXTS, return_tensors="pt", padding=True, truncation=True)
            with torch.no_grad():
                logits = model.eval()(**rows).logits.numpy()
            found = {"ids": ids_of(rows["input_ids"]), "logits": logits}
            if key not in PIPELINE_KEYS:
                return found
            pipe = transformers.pipeline(
                "text-classification", model=model, tokenizer=tokenizer, top_k=None
            )
            return found | {
                "answers": [
                    {each["label"]: round(each["score"], 3) for each in answer}
                    for answer in pipe(TEXTS)
                ]
            }

        def our_classes(self, path, key=None):
            model = bert_tf.load(path)
            batch = model.preprocessor(TEXTS)
            found = {"ids": ids_of(batch["input_word_ids"]), "logits": np.asarray(model(batch))}
            if key not in PIPELINE_KEYS:
                return found
            names = {} if model.labels else {str(at): f"LABEL_{at}" for at in range(3)}
            return found | {
                "answers": [
                    {names.get(n, n): round(s, 3) for n, s in record["probabilities"].items()}
                    for record in bert_tf.Predictor(model)(TEXTS)
                ]
            }

        def reading(self, path, key=None):
            tokenizer = transformers.AutoTokenizer.from_pretrained(path)
            max_length = min(tokenizer.model_max_length, 32)
            rows = tokenizer(SAMPLES, truncation=True, max_length=max_length)
            pair = tokenizer(SAMPLES[0], SAMPLES[1], truncation=True, max_length=max_length)
            types = pair.get("token_type_ids", [0] * len(pair["input_ids"]))
            return {"ids": rows["input_ids"], "pair": [pair["input_ids"], types]}

        def our_reading(self, path, key=None):
            preprocessor = bert_tf.load(path).preprocessor
            if preprocessor is None:
                return {}

            def rows(texts):
                found = preprocessor(texts)
                lengths = np.sum(found["input_mask"], 1)
                return [
                    [
                        row[:n].tolist()
                        for row, n in zip(np.asarray(found[name]), lengths, strict=True)
                    ]
                    for name in ("input_word_ids", "input_type_ids")
                ]

            ids, _ = rows(SAMPLES)
            (pair,), (types,) = rows(([SAMPLES[0]], [SAMPLES[1]]))
            return {"ids": ids, "pair": [pair, types]}

        def sentences(self, path, key=None):
            model = sentence_transformers.SentenceTransformer(path, device="cpu")
            return {
                "query": model.encode_query(TEXTS),
                "document": model.encode_document(TEXTS),
                "encode": model.encode(TEXTS),
            }

        def our_sentences(self, path, key=None):
            model = bert_tf.load(path)
            embedding = model.sentence_embedding

            def embed(prefix):
                return np.asarray(model.embed(model.preprocessor([prefix + t for t in TEXTS])))

            if model.preprocessor is None:  # after a warning
                return {}
            prefixes = {
                "query": embedding.query_prefix,
                "document": embedding.document_prefix,
                "encode": "",
            }
            return {role: embed(prefix) for role, prefix in prefixes.items()}

        def numbers(self, path, key=None):
            model = sentence_transformers.CrossEncoder(path, device="cpu")
            model.float()  # after rounding to dtype
            return {"scores": np.asarray(model.predict(PAIRS))}

        def our_numbers(self, path, key=None):
            records = bert_tf.Predictor(path)(PAIRS)
            # A single class may be a multi-label task, for which the probability is the score.
            numbers = [
                next(iter(record.get("probabilities", {"": record["prediction"]}).values()))
                for record in records
            ]
            return {"scores": np.array(numbers)}

    # Some values are interpreted as names of models on the hub.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        yield Peers()


KINDS = {
    "bert": ("classes", "config.json", "config.json"),
    "distilbert": ("classes", "config.json", "config.json of a DistilBERT"),
    "sentences": ("sentences", "modules.json", "modules.json"),
    "sentences ": ("sentences", "sentence_bert_config.json", "sentence_bert_config.json"),
    "sentences  ": (
        *("sentences", "config_sentence_transformers.json"),
        "config_sentence_transformers.json",
    ),
    "sentences 1": ("sentences", "1_Pooling/config.json", "N_*/config.json"),
    "sentences 2": ("sentences", "2_Dense/config.json", "N_*/config.json"),
    "sentences 3": ("sentences", "3_Normalize/config.json", "N_*/config.json"),
    "cross": ("numbers", "config_sentence_transformers.json", "config_sentence_transformers.json"),
    "cross ": ("numbers", "sentence_bert_config.json", "sentence_bert_config.json"),
    "cross  ": ("numbers", "config.json", "config.json"),
    "bert t": ("reading", "tokenizer_config.json", "tokenizer_config.json"),
    "fast t": ("reading", "tokenizer_config.json", "tokenizer_config.json"),
    "bert j": ("reading", "tokenizer.json", "tokenizer.json of class BertTokenizer"),
    "fast j": ("reading", "tokenizer.json", "tokenizer.json"),
}


def _flat(values, file):
    """Yields keys and values, including those of inner objects as ``A.B``."""
    for key, value in values.items():
        yield key, value
        if file.startswith("tokenizer.json") and isinstance(value, dict) and key != "added_tokens":
            yield from ((f"{key}.{inner}", each) for inner, each in value.items())


def _with(values, key, other):
    """Returns the values with a changed key. ``A.B`` is a key of an inner object."""
    name, _, inner = key.partition(".")
    if inner:
        return {**values, name: {**(values.get(name) or {}), inner: other}}
    return {**values, key: other}


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_key_equals_peer_or_causes_warning_or_error(peers, kind, tmp_path):
    method, name, file = KINDS[kind]
    source = peers.folder / kind.split()[0]
    call_peer, call_ours = getattr(peers, method), getattr(peers, f"our_{method}")
    ours, notes, message = call_with_warnings(call_ours, str(source), "problem_type")
    assert close(call_peer(str(source), "problem_type"), ours) and not notes and not message
    undetected, num_compared, num_rejected = [], 0, 0
    is_list = name == "modules.json"
    before = json.loads((source / name).read_text())
    value_of = before[-1] if is_list else dict(_flat(before, file))
    inner = {key for key in FILES[file] if "." not in key or name == "tokenizer.json"}
    keys = {*KEYS.get(file, ()), *inner} - SKIPPED - {"model", "model.vocab"}
    for key in sorted({*value_of, "use_residual"} if file.startswith("N_") else keys):
        for other in others(key, value_of.get(key)):
            path = tmp_path / "changed"
            shutil.copytree(source, path)
            values = (
                [*before[:-1], {**value_of, key: other}] if is_list else _with(before, key, other)
            )
            (path / name).write_text(json.dumps(values))
            try:
                theirs = call_peer(str(path), key)
            except Exception:
                theirs, num_rejected = None, num_rejected + 1
            if theirs is not None:
                num_compared += 1
                ours, notes, message = call_with_warnings(call_ours, str(path), key)
                # The peer rounds the weights to the dtype in its config.
                tolerance = 0.05 if key == "dtype" else 1e-4
                if not (message or notes or close(theirs, ours, tolerance)):
                    undetected.append((key, other))
            shutil.rmtree(path)
    print(f"{name}: {num_compared} values compared, {num_rejected} rejected by the peer")
    assert undetected == []
