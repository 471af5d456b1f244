"""Verification of valid and damaged exports in a process without bert_tf."""

import json
import shutil
import sys
import textwrap
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.saved_models import replay, verification

# Expected answers: the number of characters, times 0.5 and -2.
OUTPUTS = {
    "lower": ["ä b", ""],
    "sizes": [3, 0],
    "scores": [[1.5, -6.0], [0.0, 0.0]],
    "empty": [False, True],
}
SAMPLES = {
    "serving_default.0": ({"text": ["Ä b", {"b64": "/w=="}]}, OUTPUTS),
    "serving_default.1": ({"text": []}, {key: [] for key in OUTPUTS}),
    "tokens.0": ({"ids": [[1, 2, 3], [0, 0, 1]]}, [6, 1]),
    "tokens.1": ({"ids": []}, []),
}


class Small(tf.Module):
    """A minimal module with all types of outputs, a weight and an operation of tensorflow_text."""

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
def valid_export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "1"
    module = Small()
    signatures = {"serving_default": module.serving_default, "tokens": module.tokens}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    samples = folder / "assets.extra" / "samples"
    samples.mkdir(parents=True)
    for name, (inputs, outputs) in SAMPLES.items():
        named = {"signature_name": name.split(".")[0]}
        request = {**named, "inputs": inputs}
        content = {**named, "request": request, "response": {"outputs": outputs}}
        (samples / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def folder(valid_export, tmp_path):
    """A copy that tests may damage."""
    return shutil.copytree(valid_export, tmp_path / "1")


def change(folder, name, edit):
    path = folder / "assets.extra" / "samples" / f"{name}.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def change_outputs(folder, **outputs):
    change(folder, "serving_default.0", lambda one: one["response"]["outputs"].update(outputs))


@pytest.mark.slow
def test_verification_in_a_process_without_bert_tf(valid_export):
    found = verification.verify(str(valid_export))
    assert (found.tensorflow, found.directory) == (tf.__version__, str(valid_export))
    assert found.tensorflow_text.split(".")[:2] == tf.__version__.split(".")[:2]
    rows = [(row.name, row.samples, row.problems) for row in found.signatures]
    assert rows == [("serving_default", 2, ()), ("tokens", 2, ())]
    assert found.problems == ()
    assert found.signatures[0].largest_difference < 1e-6


@pytest.mark.parametrize(
    ("output", "value", "problem"),
    [
        ("lower", ["ä c", ""], "expected 'ä c' at [0], got 'ä b'"),
        ("sizes", [3, 1], "expected 1 at [1], got 0"),
        ("scores", [[1.5, -6.001], [0, 0]], "expected -6.001 at [0, 1], got -6.0"),
        ("scores", [[1.5], [0.0, 0.0]], "expected the shape (2,), got (2, 2)"),
        ("scores", [["", ""], ["", ""]], "the recorded values are not numbers"),
    ],
)
def test_different_answer_is_reported(folder, output, value, problem):
    change_outputs(folder, **{output: value})
    first, second = replay.replay(str(folder))
    assert first["problems"] == [f"serving_default.0.json: output {output}: {problem}"]
    assert second["problems"] == []


def test_unknown_outputs_signatures_and_inputs_are_reported(folder):
    change_outputs(folder, more=[1])
    change(folder, "tokens.0", lambda sample: sample["request"].update(inputs={"text": [1]}))
    change(folder, "tokens.1", lambda sample: sample.update(signature_name="embed"))
    rows = replay.replay(str(folder))
    assert [row["problems"] for row in rows] == [
        ["tokens.1.json: no such signature: embed"],
        [
            "serving_default.0.json: expected the outputs empty, lower, more, scores, sizes, got "
            "empty, lower, scores, sizes"
        ],
        ["tokens.0.json: KeyError: 'ids'"],
    ]
    (folder / "assets.extra" / "samples" / "tokens.0.json").unlink()
    assert replay.replay(str(folder))[2]["problems"] == ["no sample"]


def test_tolerance_of_floats(folder):
    change_outputs(folder, scores=[[1.53125, -6.0], [0.0, 0.0]])
    assert replay.replay(str(folder), 0.03)[0]["problems"]
    row = replay.replay(str(folder), 0.04)[0]
    assert (row["problems"], row["largest_difference"]) == ([], 0.03125)


def test_nan_and_invalid_utf8_answers():
    difference, problems = replay.compare([1.0], {"x": np.array([np.nan], np.float32)}, 1.0)
    assert difference == np.inf
    assert problems == ["output x: expected 1.0 at [0], got nan"]
    _, problems = replay.compare(["a"], {"x": np.array([b"\xff"], object)}, 1.0)
    assert problems == ["output x: expected 'a' at [0], got {'b64': '/w=='}"]
    assert replay.compare([{"b64": "/w=="}], {"x": np.array([b"\xff"], object)}, 1.0) == (0.0, [])


UNLOADABLE = r"/1 cannot be loaded by TensorFlow 2\.\S+: "
VARIABLES = "variables/variables.data-00000-of-00001"


def flip_a_weight(folder):
    content = bytearray((folder / VARIABLES).read_bytes())
    content[content.index(np.float32([0.5, -2.0]).tobytes())] ^= 1
    (folder / VARIABLES).write_bytes(content)


def write_sample(content):
    return lambda folder: (folder / "assets.extra/samples/tokens.0.json").write_text(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            write_sample("{"),
            r"tokens\.0\.json: expected JSON with .* got JSONDecodeError: Expecting "
            "property name enclosed in double quotes",
        ),
        (
            write_sample("{}"),
            r"tokens\.0\.json: expected JSON with .* got KeyError: 'signature_name'",
        ),
        (shutil.rmtree, "No such directory: .*/1. Pass an export, such as exports/1"),
        (
            lambda folder: (folder / "saved_model.pb").unlink(),
            r" has no saved_model\.pb\. Pass the directory of a version, such as exports/1",
        ),
        (
            lambda folder: shutil.rmtree(folder / "assets.extra"),
            r"/1 has no samples\. Expected SIGNATURE\.0\.json in assets\.extra/samples",
        ),
        (
            lambda folder: tf.saved_model.save(tf.Module(), str(folder)),
            "/1 has no signatures. Use the original export",
        ),
        (flip_a_weight, UNLOADABLE + ".*[Cc]hecksum"),
        (lambda folder: (folder / "saved_model.pb").write_bytes(b"no graph"), UNLOADABLE),
    ],
)
def test_damaged_export_raises_error(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        replay.replay(str(folder))


@pytest.fixture
def interpreter(tmp_path):
    """Creates programs in place of another environment's Python interpreter."""

    def make(body):
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable} -S\nimport json, sys\n" + textwrap.dedent(body))
        path.chmod(0o755)
        return str(path)

    return make


REPORT = {"tensorflow": "2.14.1", "tensorflow_text": "2.14.0", "error": "", "foreign": []}


def reporting(**more):
    return f"print(json.dumps({REPORT | more}))"


ROW = {"name": "tokens", "samples": 3, "largest_difference": 0.25, "problems": ["x.json: bad"]}


def test_verification_with_another_interpreter(interpreter):
    python = interpreter(
        f"""
        print("a word before the report")
        _, isolated, script, *rest = sys.argv
        if isolated != "-I" or not script.endswith("replay.py") or rest != ["exports/1", "0.5"]:
            sys.exit("arguments: " + " ".join(sys.argv))
        {reporting(signatures=[ROW])}
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
        (reporting(error="exports/1 is no directory."), r"^exports/1 is no directory\.$"),
        (
            reporting(foreign=["bert_tf", "keras"]),
            r"^exports/1 depends on other libraries: loading it imported bert_tf, keras\.$",
        ),
        (
            "import tensorflow",
            r"/python failed with status 1 while verifying exports/1: "
            "ModuleNotFoundError: No module named 'tensorflow'",
        ),
        ("sys.exit(3)", "failed with status 3 while verifying .*: nothing$"),
        (None, "python=.*/python: expected a Python interpreter, got No such file or directory"),
    ],
)
def test_failing_interpreter_raises_error(interpreter, tmp_path, body, message):
    python = interpreter(body) if body else str(tmp_path / "python")
    with pytest.raises(ValueError, match=message):
        verification.verify("exports/1", python=python)


def test_control_characters_in_reports_are_escaped(interpreter):
    row = {**ROW, "name": "a\x1b[2J", "problems": ["\x9b" * 10**5]}
    found = verification.verify("exports/1", python=interpreter(reporting(signatures=[row])))
    assert found.signatures[0].name == "a\\x1b[2J" and len(found.signatures[0].problems[0]) <= 500
    assert "\x9b" not in found.problems[0]


def test_libraries_imported_by_loading_are_reported(valid_export, monkeypatch):
    def load_more(directory, tolerance):
        for name in ("bert_tf", "keras"):
            monkeypatch.setitem(sys.modules, f"{name}.one_more", types.ModuleType("one_more"))
        return []

    assert replay.report(str(valid_export), 1.0)["foreign"] == []
    monkeypatch.setattr(replay, "replay", load_more)
    assert replay.report(str(valid_export), 1.0)["foreign"] == ["bert_tf", "keras"]


# === Hashes ===


@pytest.fixture
def hashed(folder):
    """A copy with hashes."""
    verification.write_hashes(str(folder))
    return folder


def test_hashes_detect_any_changed_bit(hashed):
    assert verification.check_hashes(str(hashed))
    files = [path for path in hashed.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"saved_model.pb", "variables.index", "sha256.json"}
    for path in files:
        content = path.read_bytes()
        offsets = {
            0,
            len(content) // 2,
            len(content) - 1,
            *range(7, len(content), 1 + len(content) // 20),
        }
        for offset in sorted(offsets) if content else ():
            damaged = bytearray(content)
            damaged[offset] ^= 1 << offset % 8
            path.write_bytes(damaged)
            with pytest.raises(ValueError) as caught:
                verification.check_hashes(str(hashed))
            assert str(hashed) in str(caught.value)
        path.write_bytes(content)
    assert verification.check_hashes(str(hashed))


def test_hashes_are_checked_before_running_the_export(hashed, interpreter):
    path = hashed / "saved_model.pb"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        verification.verify(str(hashed), python=interpreter("sys.exit('was run')"))
    assert str(caught.value) == (
        f"{path} has changed since the export (SHA-256). Download the file again or, for an "
        f"intended change, remove {hashed}/assets.extra/sha256.json."
    )
    for damage in (path.unlink, path.mkdir):
        damage()
        with pytest.raises(ValueError, match=r"/1 is incomplete: saved_model\.pb is missing"):
            verification.check_hashes(str(hashed))


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/hosts", "file:///a"])
def test_hashes_of_files_outside_the_export_are_rejected(hashed, name):
    values = {"format_version": 1, "files": {name: {"bytes": 1, "sha256": "0"}}}
    path = hashed / "assets.extra" / "sha256.json"
    path.write_text(json.dumps(values, indent=2) + "\n")
    with pytest.raises(ValueError, match=r"sha256\.json contains a path outside the export\."):
        verification.check_hashes(str(hashed))


def test_export_without_hashes(folder, interpreter):
    (folder / "saved_model.pb").unlink()
    python = interpreter(reporting(signatures=[ROW]))
    assert not verification.verify(str(folder), python=python).has_hashes
    (folder / "saved_model.pb").write_bytes(b"")
    verification.write_hashes(str(folder))
    (folder / "notes.txt").write_text("Further files are not damage.")
    assert verification.check_hashes(str(folder))
