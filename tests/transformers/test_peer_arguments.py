"""Each argument of transformers' tokenizer: equal results, an error, or a warning."""

import json
import shutil
import warnings

import pytest

import bert_tf
import bert_tf.transformers as successor

pytestmark = pytest.mark.parity
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]
PIECES = [*SPECIAL, "un", "é", "##b", "##c", *"abcdefghijklmnop"]
LONG, OTHER = "a b c d e f g h i j", "k l m n o p a b c"
TEXTS = {
    **{"text": ("A bÉ. zz [MASK]",), "pair": (LONG, OTHER), "short second text": (LONG, "k l")},
    **{"texts": (["a bc", LONG],), "pairs": ([LONG, "a"], [OTHER, "b c"])},
    **{"empty second text": ("a b", ""), "empty first text": ("", "a b"), "empty text": ("",)},
    **{"empty texts": (["a", ""], ["", "b"]), "list of pairs": ([(LONG, OTHER), ("a", "b")],)},
}
LISTS = {
    **{"words": (["a", "bc", "d"],), "pair": (["a", "bc"], ["e"]), "no second text": (["a"], [])},
    **{"rows": ([["a", "bc"], ["d"]],), "pairs": ([["a", "bc"], ["d"]], [["e"], ["f", "g"]])},
}
_CUT = [
    {"truncation": strategy, "max_length": max_length}
    for strategy in (True, False, None, "longest_first", "only_first", "only_second", "other")
    for max_length in (None, 3, 6, 7)
]
_PADDED = [
    {
        "padding": strategy,
        "max_length": max_length,
        "truncation": truncation,
        "pad_to_multiple_of": multiple,
    }
    for strategy in (True, False, "longest", "max_length", "other")
    for max_length, truncation, multiple in (
        (None, None, None),
        (20, None, 8),
        (8, True, 4),
        (9, True, 4),
    )
]
_WINDOWS = [
    {"truncation": strategy, "max_length": 8, "stride": stride, "return_overflowing_tokens": True}
    for strategy in (True, "only_first", "only_second")
    for stride in (0, 1)
]
_SWITCHES = [
    {name: value}
    for value in (True, False)
    for name in (
        *("add_special_tokens", "return_token_type_ids", "return_attention_mask", "verbose"),
        *("return_special_tokens_mask", "return_offsets_mapping", "return_length"),
        *("split_special_tokens", "return_overflowing_tokens"),
    )
]
UNSUPPORTED = [
    *({name: "a b"} for name in ("text_target", "text_pair_target", "other")),
    *({"tokenizer_kwargs": {"max_length": 4}}, {"max_target_length": 3}),
]
CALLS = [
    *_CUT,
    *_PADDED,
    *_WINDOWS,
    *_SWITCHES,
    *({"padding_side": side, "padding": True} for side in ("left", "right")),
    *UNSUPPORTED,
    *({"return_tensors": "np", "padding": True}, {"return_tensors": "pt"}),
]
# Arguments of the constructor and from_pretrained, and keys of tokenizer_config.json.
SETTINGS = [
    *({name: value} for name in ("do_lower_case", "strip_accents") for value in (True, False)),
    *({"tokenize_chinese_chars": value} for value in (True, False)),
    *({f"{role}_token": piece} for role in ("cls", "sep", "unk") for piece in ("<s>", "un", "a")),
    *({f"{role}_token": piece} for role in ("pad", "mask", "bos", "x") for piece in ("a", "[N]")),
    *({"cls_token": "[N]"}, {"model_max_length": 7}, {"max_len": 7}),
    *({f"{case}_side": side} for case in ("padding", "truncation") for side in ("left", "up")),
    *({"model_input_names": ["input_ids", "attention_mask"]}, {"split_special_tokens": True}),
    *({name: ["zz"]} for name in ("additional_special_tokens", "extra_special_tokens")),
    *({name: {"my_token": "zz"}} for name in ("model_specific_special_tokens",)),
    *({"extra_special_tokens": {"my_token": "zz"}}, {"never_split": ["zz"]}),
    *({"pad_token_type_id": 1}, {"clean_up_tokenization_spaces": False}, {"verbose": False}),
    *({"do_basic_tokenize": False}, {"clean_text": False}, {"max_length": 5}, {"stride": 2}),
]


@pytest.fixture(scope="module")
def peers():
    return pytest.importorskip("transformers", minversion="5")


@pytest.fixture(scope="module")
def folder(peers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments")
    ids = {piece: at for at, piece in enumerate(PIECES)}
    peers.BertTokenizer(vocab=ids, model_max_length=12).save_pretrained(folder)
    return folder


def _plain(value):
    if hasattr(value, "items"):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _call(function):
    """Returns the result or exception of a call, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = _plain(function())
        except Exception as error:
            found = error
    return found, any(issubclass(one.category, bert_tf.DifferenceWarning) for one in caught)


def _assert_equal_or_warns_or_raises(theirs, ours, case, may_raise=True):
    (expected, _), (found, has_warned) = _call(theirs), _call(ours)
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), f"{case}: expected {expected!r}, got {found}"
    elif isinstance(found, Exception):
        assert may_raise and isinstance(found, ValueError | TypeError), f"{case}: {found!r}"
    else:
        assert found == expected or has_warned, f"{case}: expected {expected}, found {found}"


def _with_words(rows):
    words = [(rows.word_ids(at), rows.sequence_ids(at)) for at in range(len(rows.encodings))]
    return {**rows, "words": words, "keys": [*rows]}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("texts", "extra"), [(TEXTS, {}), (LISTS, {"is_split_into_words": True})])
def test_calls(peers, folder, side, texts, extra):
    sides = {"truncation_side": side, "padding_side": side}
    peer = peers.AutoTokenizer.from_pretrained(folder, **sides)
    ours = successor.AutoTokenizer.from_pretrained(folder, **sides)
    for options in CALLS:
        arguments = {**options, **extra}
        if "tensors" in str(options):  # tolist would be called on arrays
            arguments.pop("return_tensors")
        for name, given in texts.items():
            _assert_equal_or_warns_or_raises(
                lambda: _with_words(peer(*given, **arguments)),  # noqa: B023
                lambda: _with_words(ours(*given, **arguments)),  # noqa: B023
                f"{name}, {arguments}",
                may_raise=options in UNSUPPORTED,
            )


def _all_results(tokenizer):
    pairs = {"padding": True, "truncation": True, "max_length": 8}
    return {
        "text": tokenizer("A bÉ. [MASK] zz " + "a" * 101),
        "pairs": tokenizer([LONG, "a"], [OTHER, "b"], return_special_tokens_mask=True, **pairs),
        "cut": tokenizer(LONG + OTHER, truncation=True),
        "decoded": tokenizer.decode([2, 12, 9, 1, 4, 3, 0]),
        "without special ones": tokenizer.decode([2, 11, 3, 0], skip_special_tokens=True),
        "facts": [len(tokenizer), tokenizer.model_max_length, *tokenizer.model_input_names],
        "special": sorted(tokenizer.all_special_ids),
        "ids": [tokenizer.convert_tokens_to_ids(piece) for piece in ("zz", "[N]", "a")],
    }


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", ["AutoTokenizer", "BertTokenizer", "config", "fast config"])
def test_settings(peers, folder, tmp_path, kind, settings):
    name, options = kind, settings
    if kind not in ("AutoTokenizer", "BertTokenizer"):
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        file = tmp_path / "tokenizer_config.json"
        values = {**json.loads(file.read_text()), **settings}
        if kind == "fast config":
            values["tokenizer_class"] = "PreTrainedTokenizerFast"
        file.write_text(json.dumps(values))
        folder, name, options = tmp_path, "AutoTokenizer", {}
    theirs, ours = getattr(peers, name), getattr(successor, name)
    _assert_equal_or_warns_or_raises(
        lambda: _all_results(theirs.from_pretrained(folder, **options)),
        lambda: _all_results(ours.from_pretrained(folder, **options)),
        settings,
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_saved_tokenizer_loads_in_transformers(peers, folder, tmp_path, settings):
    try:
        ours = successor.AutoTokenizer.from_pretrained(folder, **settings)
    except ValueError:
        return
    ours.save_pretrained(tmp_path)
    theirs = peers.AutoTokenizer.from_pretrained(tmp_path)
    assert _plain(_all_results(theirs)) == _plain(_all_results(ours))
