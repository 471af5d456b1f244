"""Verification: what a process without this library finds in a small export, sound and damaged."""

import json
import shutil
import sys
import textwrap
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.saved_models import operations, replay, verification

SAMPLES = {
    # By hand: a text's characters are counted, and multiplied by 0.5 and by -2.
    "serving_default.0.json": {
        "signature_name": "serving_default",
        "request": {
            "signature_name": "serving_default",
            "inputs": {"text": ["Ä b", {"b64": "/w=="}]},
        },
        "response": {
            "outputs": {
                "lower": ["ä b", ""],
                "sizes": [3, 0],
                "scores": [[1.5, -6.0], [0.0, 0.0]],
                "empty": [False, True],
            }
        },
    },
    "serving_default.1.json": {
        "signature_name": "serving_default",
        "request": {"signature_name": "serving_default", "inputs": {"text": []}},
        "response": {"outputs": {"lower": [], "sizes": [], "scores": [], "empty": []}},
    },
    "tokens.0.json": {
        "signature_name": "tokens",
        "request": {"signature_name": "tokens", "inputs": {"ids": [[1, 2, 3], [0, 0, 1]]}},
        "response": {"outputs": [6, 1]},
    },
    "tokens.1.json": {
        "signature_name": "tokens",
        "request": {"signature_name": "tokens", "inputs": {"ids": []}},
        "response": {"outputs": []},
    },
}


class Small(tf.Module):
    """As little as has every kind of output, a weight, and an operation of tensorflow_text."""

    def __init__(self):
        self.weight = tf.Variable([0.5, -2.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serving_default(self, text):
        import tensorflow_text

        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="ignore")
        lower = tensorflow_text.normalize_utf8(tensorflow_text.case_fold_utf8(text), "NFC")
        sizes = tf.strings.length(lower, "UTF8_CHAR")
        return {
            "lower": lower,
            "sizes": sizes,
            "scores": tf.cast(sizes, tf.float32)[:, None] * self.weight,
            "empty": sizes == 0,
        }

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="ids")])
    def tokens(self, ids):
        return {"sum": tf.reduce_sum(ids, 1)}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "1"
    module = Small()
    signatures = {"serving_default": module.serving_default, "tokens": module.tokens}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    samples = folder / "assets.extra" / "samples"
    samples.mkdir(parents=True)
    for name, content in SAMPLES.items():
        (samples / name).write_text(json.dumps(content))
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    """A copy to damage."""
    return shutil.copytree(sound, tmp_path / "1")


def change(folder, name, edit):
    path = folder / "assets.extra" / "samples" / name
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def small_is_an_export(monkeypatch):
    """Takes the operations of ``Small`` for an export's."""
    for name in ("CaseFoldUTF8", "NormalizeUTF8"):
        monkeypatch.setitem(operations.OLDEST_SERVING, name, "2.12")


def test_a_process_without_this_library(sound, small_is_an_export):
    found = verification.verify(str(sound))
    assert (found.tensorflow, found.directory) == (tf.__version__, str(sound))
    assert found.tensorflow_text.split(".")[:2] == tf.__version__.split(".")[:2]
    assert [(row.name, row.samples, row.problems) for row in found.signatures] == [
        ("serving_default", 2, ()),
        ("tokens", 2, ()),
    ]
    assert found.problems == ()
    assert found.signatures[0].largest_difference < 1e-6


def test_what_was_recorded_is_what_is_answered(sound):
    rows = replay.replay(str(sound))
    assert [row["problems"] for row in rows] == [[], []]


@pytest.mark.parametrize(
    ("output", "value", "problem"),
    [
        ("lower", ["ä c", ""], "output lower has 'ä b' at [0], and 'ä c' was recorded"),
        ("sizes", [3, 1], "output sizes has 0 at [1], and 1 was recorded"),
        ("empty", [True, True], "output empty has False at [0], and True was recorded"),
        (
            "scores",
            [[1.5, -6.001], [0.0, 0.0]],
            "output scores has -6.0 at [0, 1], and -6.001 was recorded",
        ),
        ("scores", [[1.5, -6.0]], "output scores has the shape (2, 2), and (1, 2) was recorded"),
        ("scores", [[1.5], [0.0, 0.0]], "output scores has the shape (2, 2), and (2,) was recorde"),
        ("scores", [["", ""], ["", ""]], "output scores has numbers, and something else was recor"),
        ("more", [1], "the outputs are empty, lower, scores, sizes, and empty, lower, more, score"),
    ],
)
def test_one_answer_changed(folder, output, value, problem):
    def edit(content):
        content["response"]["outputs"][output] = value

    change(folder, "serving_default.0.json", edit)
    first, second = replay.replay(str(folder))
    assert len(first["problems"]) == 1
    assert first["problems"][0].startswith(f"serving_default.0.json: {problem}")
    assert second["problems"] == []


def test_floats_within_the_tolerance(folder):
    def edit(content):
        content["response"]["outputs"]["scores"][0][0] = 1.53125

    change(folder, "serving_default.0.json", edit)
    assert replay.replay(str(folder), 0.03)[0]["problems"]
    row = replay.replay(str(folder), 0.04)[0]
    assert row["problems"] == []
    assert row["largest_difference"] == 0.03125


def test_answers_that_are_not_numbers():
    difference, problems = replay.compare([1.0], {"x": np.array([np.nan], np.float32)}, 1.0)
    assert difference == np.inf
    assert problems == ["output x has nan at [0], and 1.0 was recorded"]
    _, problems = replay.compare(["a"], {"x": np.array([b"\xff"], object)}, 1.0)
    assert problems == ["output x has {'b64': '/w=='} at [0], and 'a' was recorded"]
    assert replay.compare([{"b64": "/w=="}], {"x": np.array([b"\xff"], object)}, 1.0) == (0.0, [])


def test_a_signature_that_no_sample_asks(folder):
    for name in ("tokens.0.json", "tokens.1.json"):
        (folder / "assets.extra" / "samples" / name).unlink()
    rows = replay.replay(str(folder))
    assert [row["problems"] for row in rows] == [[], ["no sample asks it"]]
    assert rows[1]["samples"] == 0


def test_a_signature_that_is_not_there(folder):
    change(folder, "tokens.1.json", lambda content: content.update(signature_name="embed"))
    assert replay.replay(str(folder))[0]["problems"] == [
        "tokens.1.json: the model has no signature embed"
    ]


def test_a_request_that_fails(folder):
    change(folder, "tokens.0.json", lambda content: content["request"].update(inputs={"text": [1]}))
    assert replay.replay(str(folder))[1]["problems"] == ["tokens.0.json: KeyError: 'ids'"]


def test_samples_missing(folder):
    shutil.rmtree(folder / "assets.extra")
    with pytest.raises(ValueError, match=r"/1 has no samples to ask: expected SIGNATURE\.0\.json"):
        replay.replay(str(folder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "{",
            r"tokens\.0\.json is no recorded sample: expected JSON .* got JSONDecodeError: Expec",
        ),
        ("{}", r"tokens\.0\.json is no recorded sample: .* got KeyError: 'signature_name'"),
        ("[]", r"tokens\.0\.json is no recorded sample: .* got TypeError: list indices"),
        ("[" * 10**5, r"tokens\.0\.json is no recorded sample: .* got RecursionError: maximum"),
        (" " * 67_108_865, r"is no recorded sample: .* got ValueError: more than 67,108,864 bytes"),
    ],
)
def test_a_sample_that_is_none(folder, content, message):
    (folder / "assets.extra" / "samples" / "tokens.0.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        replay.replay(str(folder))


def test_no_such_directory(tmp_path):
    with pytest.raises(ValueError, match="/2 is no directory: expected an export, such as exports"):
        replay.replay(str(tmp_path / "2"))


def test_not_an_export(tmp_path):
    with pytest.raises(ValueError, match=r" has no saved_model\.pb: expected an export, the direc"):
        replay.replay(str(tmp_path))


def test_a_damaged_variables_file(folder):
    path = folder / "variables" / "variables.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    at = content.index(np.float32([0.5, -2.0]).tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"/1 cannot be loaded by TensorFlow 2\.\S+: .*[Cc]hecksum"
    ):
        replay.replay(str(folder))
    path.write_bytes(content[:3])
    with pytest.raises(ValueError, match=r"/1 cannot be loaded by TensorFlow 2\.\S+: "):
        replay.replay(str(folder))


def test_a_damaged_graph(folder):
    (folder / "saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(ValueError, match=r"/1 cannot be loaded by TensorFlow 2\.\S+: "):
        replay.replay(str(folder))


def test_without_tensorflow_text(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="has no tensorflow_text, whose operations exports use"):
        replay.load_text_operations()


@pytest.fixture
def interpreter(tmp_path):
    """Makes a program that stands for another environment's Python, and does what it is told."""

    def make(body):
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable} -S\nimport json, sys\n" + textwrap.dedent(body))
        path.chmod(0o755)
        return str(path)

    return make


REPORT = {"tensorflow": "2.14.1", "tensorflow_text": "2.14.0", "error": "", "foreign": []}
ROW = {"name": "tokens", "samples": 3, "largest_difference": 0.25, "problems": ["x.json: bad"]}


def test_another_interpreter(interpreter):
    python = interpreter(
        f"""
        print("a word before the report")
        _, isolated, script, *rest = sys.argv
        if isolated != "-I" or not script.endswith("replay.py") or rest != ["exports/1", "0.5"]:
            sys.exit("arguments: " + " ".join(sys.argv))
        print(json.dumps({REPORT | {"signatures": [ROW]}}))
        sys.exit(1)
        """
    )
    found = verification.verify("exports/1", python=python, tolerance=0.5)
    assert (found.tensorflow, found.tensorflow_text) == ("2.14.1", "2.14.0")
    assert found.problems == ("tokens: x.json: bad",)
    assert found.table().splitlines()[1].split() == ["tokens", "3", "2.5e-01", "DIFFERENT"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            f"print(json.dumps({REPORT | {'error': 'exports/1 is no directory.'}}))",
            r"^exports/1 is no directory\.$",
        ),
        (
            f"print(json.dumps({REPORT | {'foreign': ['bert_tf', 'keras']}}))",
            r"^exports/1 does not stand alone: loading it loaded bert_tf, keras\.$",
        ),
        (
            "import tensorflow",
            r"/python ended with status 1 before it could report on exports/1; its last words: "
            "ModuleNotFoundError: No module named 'tensorflow'",
        ),
        ("sys.exit(3)", "ended with status 3 before .* its last words: nothing$"),
    ],
)
def test_an_interpreter_that_cannot(interpreter, body, message):
    with pytest.raises(ValueError, match=message):
        verification.verify("exports/1", python=interpreter(body))


def test_no_such_interpreter(tmp_path):
    with pytest.raises(ValueError, match="/python cannot be started: expected a Python interpret"):
        verification.verify("exports/1", python=str(tmp_path / "python"))


def test_an_answer_that_never_comes(interpreter, monkeypatch):
    monkeypatch.setattr(verification, "_LONGEST_S", 1)
    with pytest.raises(ValueError, match="^exports/1 did not answer its samples within 1 seconds"):
        verification.verify("exports/1", python=interpreter("import time; time.sleep(30)"))


def test_what_an_export_says_obeys_no_terminal(interpreter):
    row = {**ROW, "name": "a\x1b[2J", "problems": ["\x9b" * 10**5]}
    found = verification.verify(
        "exports/1", python=interpreter(f"print(json.dumps({REPORT | {'signatures': [row]}}))")
    )
    assert found.signatures[0].name == "a\\x1b[2J" and len(found.signatures[0].problems[0]) <= 500
    assert "\x9b" not in found.problems[0]


@pytest.mark.parametrize("name", ["bert_tf", "keras"])
def test_a_library_that_loading_loads_is_reported(sound, monkeypatch, name):
    def load_more(directory, tolerance):
        monkeypatch.setitem(sys.modules, f"{name}.one_more", types.ModuleType("one_more"))
        return []

    assert replay.report(str(sound), 1.0)["foreign"] == []
    monkeypatch.setattr(replay, "replay", load_more)
    assert replay.report(str(sound), 1.0)["foreign"] == [name]


# === Hashes ===


@pytest.fixture
def hashed(folder):
    """A copy with its verification."""
    verification.write_hashes(str(folder))
    return folder


def test_every_bit_of_every_file_counts(hashed):
    assert verification.check_hashes(str(hashed))
    files = [path for path in hashed.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"saved_model.pb", "variables.index", "sha256.json"}
    for path in files:
        whole = path.read_bytes()
        places = {0, len(whole) // 2, len(whole) - 1, *range(7, len(whole), 1 + len(whole) // 40)}
        for place in sorted(places) if whole else ():
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(ValueError) as caught:
                verification.check_hashes(str(hashed))
            assert str(hashed) in str(caught.value)
        path.write_bytes(whole)
    assert verification.check_hashes(str(hashed))


def test_damage_is_found_before_anything_is_run(hashed, interpreter):
    path = hashed / "saved_model.pb"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        verification.verify(str(hashed), python=interpreter("sys.exit('was run')"))
    assert str(caught.value) == (
        f"{path} is not what was exported: its SHA-256 differs; fetch it again, or export anew. If "
        f"the change is yours, delete {hashed}/assets.extra/sha256.json, and nothing is compared."
    )
    path.write_bytes(content[:-1])
    with pytest.raises(
        ValueError, match=r"pb has [\d,]+ bytes, and [\d,]+ were exported: fetch it"
    ):
        verification.check_hashes(str(hashed))
    path.unlink()
    with pytest.raises(
        ValueError, match=r"/1 has no saved_model\.pb, which was exported: fetch it"
    ):
        verification.check_hashes(str(hashed))
    path.mkdir()
    with pytest.raises(ValueError, match=r"saved_model\.pb is no file: expected what was exported"):
        verification.check_hashes(str(hashed))


def test_an_export_without_hashes(folder, interpreter):
    (folder / "saved_model.pb").unlink()
    python = interpreter(f"print(json.dumps({REPORT | {'signatures': [ROW]}}))")
    assert not verification.verify(str(folder), python=python).has_hashes
    (folder / "saved_model.pb").write_bytes(b"")
    verification.write_hashes(str(folder))
    (folder / "notes.txt").write_text("A file more is no damage.")
    assert verification.check_hashes(str(folder))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"format_version": 2, "files": {}}, r"sha256\.json is damaged, or of another version"),
        (
            {"format_version": 1, "files": {}, "a": 1},
            r"sha256\.json is damaged, or of another vers",
        ),
        ({"format_version": 1, "files": {}}, r"sha256\.json: expected hashes by file, got {}"),
        (
            {"format_version": 1, "files": {"saved_model.pb": 1}},
            r"expected bytes and sha256 of sav",
        ),
        (
            {"format_version": 1, "files": {"../a": {}, "saved_model.pb": {}}},
            r"names the file '\.\.",
        ),
        (
            {"format_version": 1, "files": {"/a": {}, "saved_model.pb": {}}},
            r"names the file '/a': ",
        ),
        ([1], r"sha256\.json: expected a JSON object, got a list"),
    ],
)
def test_hashes_that_are_none(folder, values, sentence):
    path = folder / "assets.extra" / "sha256.json"
    path.write_text(json.dumps(values, indent=2) + "\n")
    with pytest.raises(ValueError, match=sentence):
        verification.check_hashes(str(folder))
