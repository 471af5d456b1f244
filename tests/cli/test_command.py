"""Exit statuses, error messages and help of commands."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import tensorflow as tf

from bert_tf.cli import command, foreign_flags
from bert_tf.export import ExportSettings
from bert_tf.finetuning.settings import fields as fine_tuning_flags
from bert_tf.predicting.settings import PredictionSettings
from bert_tf.pretraining.settings import PretrainingSettings
from tests.documents import PAGES, ROOT
from tests.processes import run_in_forks, run_python

PROGRAM = textwrap.dedent(
    """
    \"\"\"A command for the test.\"\"\"
    import atexit, os, signal, sys, time
    from absl import flags
    from bert_tf.cli import command

    KIND = flags.DEFINE_string("kind", "none", "What goes wrong.")
    flags.DEFINE_integer("steps", 1, "A whole number.")
    flags.DEFINE_float("rate", 1.0, "A number.")
    flags.DEFINE_bool("export", True, "Yes or no.")

    class Finalized:
        def __del__(self):
            if KIND.value == "finalizer":
                signal.raise_signal(signal.SIGINT)
            raise IndexError("of a finalizer")

    RAISED = {
        "value": ValueError("The kind must not be 'value'."),
        "graph": type("NotFoundError", (type("OpError", (Exception,), {}),), {})(
            "/no/such/file; No such file or directory\\n\\t [[{{node ReadFile}}]]"
        ),  # as TensorFlow's are made and written
        "hostile": ValueError("label \\x1b[2J\\n" + "x" * 10**7 + "; mend it."),
        "records": type("InvalidArgumentError", (type("OpError", (Exception,), {}),), {})(
            "Key: input_ids, Index: 1.  Number of int64 values != expected.  Values size: 5"
        ),
        "full": OSError(28, "No space left on device", "a.txt"),
        "room": OSError("No space left on device: free disk space, then rerun."),
        "lost": type("LostWorkerError", (ConnectionError,), {})("Another worker ended."),
        "socket": BrokenPipeError(32, "Broken pipe", "a socket"),
        "denied": PermissionError(13, "Permission denied", "a.txt"),
        "bug": IndexError("list index out of range"),
    }

    def main(*words):
        if KIND.value == "hostile":
            print("label \\x1b[2J\\x9b\\u202e\\ud800\\tseen")
        if KIND.value == "scripts":
            print("classes: \\xe9t\\xe9, \\u20ac, \\u98df\\u7269")
        if KIND.value == "lost":
            atexit.register(print, "cleaned up")
            print("of before")
        if KIND.value in RAISED:
            raise RAISED[KIND.value]
        if KIND.value == "pages":
            for _ in range(10000):
                print("a page")
        if KIND.value == "bytes":
            sys.stdout.buffer.write(b"a row\\n" * 20000)
        if KIND.value == "sleep":
            exec("print('asleep', flush=True); time.sleep(60)")
        if KIND.value in ("finalizer", "dropped"):
            Finalized()
            time.sleep(5 if KIND.value == "finalizer" else 0)
        print("done", *words)

    command.run(main, arguments=sys.argv[0].split("/")[-2].split("_")[1:])
    """
)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Writes a program that only takes flags, and one that also takes DATA and PREDICTIONS."""
    folder = tmp_path_factory.mktemp("command")
    for name in ("takes", "takes_DATA_PREDICTIONS"):
        (folder / name).mkdir()
        (folder / name / "program.py").write_text(PROGRAM)
    return folder / "takes" / "program.py"


@pytest.mark.parametrize(
    "arguments",
    [["bert_tf"], ["bert_tf.verify", "--help"], *([f"--kind={k}"] for k in
     ("none", "pages", "bytes"))],
)  # fmt: skip
def test_closed_pipe_ends_quietly(program, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    start = [program, *arguments] if arguments[0].startswith("--") else ["-m", *arguments]
    done = subprocess.run([sys.executable, *start], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "été, €, 食物"),
        ("cp1252", "été, €, \\u98df\\u7269"),
        ("latin-1", "été, \\u20ac, \\u98df\\u7269"),
        ("ascii:surrogateescape", "\\xe9t\\xe9, \\u20ac, \\u98df\\u7269"),
    ],
)
def test_stdout_escapes_unencodable_text(program, encoding, shown):
    done = subprocess.run(
        [sys.executable, program, "--kind=scripts"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    expected = f"classes: {shown}\ndone\n".encode(encoding.partition(":")[0])
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


HELP_HINT = "python -m bert_tf.program --help=all lists the flags.\n"
TWO = "DATA PREDICTIONS"
USAGE = f"Run python -m bert_tf.program {TWO} [--name=value ...].\n"


# Arguments, declared arguments, exit status, stdout and stderr.
CASES = (
    ([], "", 0, "done\n", ""),
    (["--kind=value"], "", 1, "", "Error: The kind must not be 'value'.\n"),
    (["--kind=graph"], "", 1, "", "Error: /no/such/file; No such file or directory\n"),
    (["--kind=records"], "", 1, "", "Error: Key: input_ids, Index: 1.  Number of int64 values != "
     "expected.  Values size: 5: the shapes of this record differ from the first record of its "
     "file. Write all records with the same --max_seq_length and --max_predictions_per_seq.\n"),
    (["--kind=full"], "", 1, "", "Error: [Errno 28] No space left on device: 'a.txt': free "
     "disk space, then run the command again.\n"),
    (["--kind=room"], "", 1, "",
     "Error: No space left on device: free disk space, then rerun.\n"),
    (["--kind=denied"], "", 1, "", "Error: [Errno 13] Permission denied: 'a.txt': grant "
     "this user access or use another path.\n"),
    (["--kind=socket"], "", 1, "", "Error: [Errno 32] Broken pipe: 'a socket'\n"),
    (["--kind=lost"], "", 1, "of before\n", "Error: Another worker ended.\n"),
    (["--kind=hostile"], "", 1, "label \\x1b[2J\\x9b\\u202e\\ud800\tseen\n",
     "Error: label \\x1b[2J " + "x" * 984 + "..." + "x" * 989 + "; mend it.\n"),
    (["stray"], "", 1, "", "Error: 'stray': expected arguments of the form --name=value. Pass "
     "several files as one argument, separated by commas.\n"),
    ([], TWO, 1, "", f"Error: expected {TWO}, got no argument. {USAGE}"),
    (["one"], TWO, 1, "", f"Error: expected {TWO}, got one. {USAGE}"),
    (["one", "--kind=value", "two", "three"], TWO, 1, "",
     f"Error: expected {TWO}, got one two three. {USAGE}"),
    (["one", "--kind=none", "two"], TWO, 0, "done one two\n", ""),
    (["one", "--", "--kind=value"], TWO, 0, "done one --kind=value\n", ""),
    (["--tpu=local"], "", 1, "", "Error: unknown flag --tpu: only pretrain runs on a TPU; remove "
     "it.\n"),
    (["--nodo_train", "--no_cuda", "--save-steps", "3", "--steps=1"], "", 1, "", "Error: unknown "
     "flag --do_train: finetune and pretrain always train; remove it; unknown flag --no_cuda: set "
     "CUDA_VISIBLE_DEVICES=-1 in the environment; unknown flag --save_steps: this is automatic; "
     "remove it.\n"),
    (["--kinds=value"], "", 1, "", "Error: unknown flag --kinds (did you mean --kind?). "
     f"{HELP_HINT}"),
    (["--help=kind"], "", 1, "", "Error: '--help=kind': expected --help or --help=all.\n"),
    *(([f"--{flag}"], "", 1, "", f"Error: flag --{flag}: expected {expected}. {HELP_HINT}")
      for flag, expected in (("steps=ten", "an integer"), ("rate=fast", "a number"),
                             ("export=maybe", "true or false"))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "known", "clauses"),
    [
        (["fp16", "lr"], ["precision", "learning_rate"],
         ["--fp16: use --precision=bfloat16", "--lr: use --learning_rate"]),
        (["epochs"], ["num_train_steps"], ["--epochs: use --num_train_steps"]),
        (["epochs"], ["num_train_epochs", "num_train_steps"], ["--epochs: use --num_train_epochs"]),
        (["epochs", "fp16", "anything"], [], []),
        (["Per-Device-Train-Batch-Size"], ["train_batch_size"],
         ["--per_device_train_batch_size: use --train_batch_size"]),
        (["save_total_limit"], ["keep_checkpoints"],
         ["--save_total_limit: use --keep_checkpoints"]),
        (["batch_size", "model"], ["batch_size", "model"], []),
    ],
)  # fmt: skip
def test_flags_of_other_libraries_get_hints(names, known, clauses):
    assert foreign_flags.foreign_flag_hints(names, known) == clauses


def test_proposed_flags_exist():
    existing = {
        *fine_tuning_flags(),
        *(
            field.name
            for settings in (PretrainingSettings, PredictionSettings, ExportSettings)
            for field in dataclasses.fields(settings)
        ),
    }
    assert {flag.split("=")[0] for flag in foreign_flags.FOREIGN_NAMES} <= existing


# Further arguments of the first program.
OTHERS = ("-h", "--help", "--kind=value --debug", "--kind=bug", "--kind=dropped", "--helpfull")


@pytest.fixture(scope="module")
def results(program):
    """Returns the results of ``CASES``, ``OTHERS`` and ``INVALID``, and of each command's help."""
    programs = {"": program, TWO: program.parent.parent / "takes_DATA_PREDICTIONS" / "program.py"}
    lines = {number: [programs[case[1]], *case[0]] for number, case in enumerate(CASES)}
    lines |= {words: [program, *words.split()] for words in OTHERS}
    helps = [f"{name} {flag}" for name in HELP for flag in ("--help", "--help=all")]
    lines |= {line: f"bert_tf.{line}".split() for line in (*helps, *INVALID)}
    return dict(zip(lines, run_in_forks(program.parent, *lines.values()), strict=True))


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: " ".join(CASES[n][0]))
def test_exit_status_and_output(results, number):
    done = results[number]
    assert (done.returncode, done.stdout, done.stderr) == CASES[number][2:]


def test_tensorflow_errors_are_user_errors():
    assert command._is_user_error(tf.errors.NotFoundError(None, None, "There is no such file."))


def test_help_and_tracebacks_are_shown(results):
    short, long, debug, bug, dropped, full = (results[words] for words in OTHERS)
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert "--[no]debug: Print the" in full.stdout and "debug" not in long.stdout
    assert "--kind: What goes wrong." in long.stdout
    assert debug.returncode == 1 and "Traceback" in debug.stderr
    # A bug shows its traceback.
    assert bug.returncode == 1 and "IndexError: list index out of" in bug.stderr
    assert (dropped.returncode, dropped.stdout) == (0, "done\n")
    assert "Exception ignored in" in dropped.stderr
    assert dropped.stderr.endswith("IndexError: of a finalizer\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_exits_with_status_130(program, number):
    process = subprocess.Popen(
        [sys.executable, program, "--kind=sleep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "asleep\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (130, "\nInterrupted.\n")


@pytest.mark.parametrize("words", [["-m", "bert_tf.verify"], ["-m", "bert_tf", "verify"]])
def test_interrupt_during_imports_prints_one_line(tmp_path, words):
    (tmp_path / "absl").mkdir()
    (tmp_path / "absl" / "__init__.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "\nInterrupted.\n")


def test_import_outside_commands_keeps_the_exception_hook():
    code = "import sys, bert_tf.cli.command; assert sys.excepthook is sys.__excepthook__"
    run_python(code, check=True)


@pytest.mark.slow
def test_interrupt_in_finalizer_is_not_lost(program):
    (done,) = run_in_forks(program.parent, [program, "--kind=finalizer"])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nInterrupted.\n")


# Maximum number of flags in --help of each command, and a flag that --help=all adds.
HELP = {
    "convert": (4, "debug"),
    "create_pretraining_data": (14, "random_seed"),
    "export": (8, "pair"),
    "extract_features": (9, "batch_size"),
    "finetune": (34, "doc_stride"),
    "predict": (13, "threshold"),
    "pretrain": (28, "mask_split"),
    "serve": (4, "max_rows"),
    "verify": (2, "debug"),
    "vocab": (5, "min_frequency"),
}


def _shown(text):
    """Returns the flags in a help text with their descriptions on one line."""
    lines = re.sub(r"\n {4}(?=\S)", " ", text.split("\n\n", 3)[-1])
    return dict(re.findall(r"^  --(?:\[no\])?(\w+): (.*)$", lines, re.MULTILINE))


@pytest.mark.parametrize("name", HELP)
def test_help_is_short_and_does_not_load_tensorflow(results, name):
    done, full = results[f"{name} --help"], results[f"{name} --help=all"]
    max_flags, advanced = HELP[name]
    assert done.returncode == full.returncode == 0
    assert "absl" in done.loaded and not done.loaded & {"tensorflow", "keras", "torch", "jax"}
    text, example, more, _ = done.stdout.split("\n\n", 3)
    assert "\n" not in text and more.count("\n") == 1
    assert example.count("python -m") == 1 and f"    python -m bert_tf.{name} " in example
    some, every = _shown(done.stdout), _shown(full.stdout)
    assert 2 <= len(some) <= max_flags and some.items() < every.items()
    assert advanced in every.keys() - some.keys()
    end = f"\n\npython -m bert_tf.{name} --help=all lists all {len(every)} flags.\n"
    assert done.stdout.endswith(end) and "--help=all" not in full.stdout


@pytest.mark.parametrize("name", HELP)
def test_help_of_each_flag_is_one_sentence(results, name):
    for flag, shown in _shown(results[f"{name} --help=all"].stdout).items():
        description = re.sub(
            r"^<[^>]*>: | \((default: [^()]*|an? [^()]*|integer >= \d+)\)$", "", shown
        )
        assert description.endswith(".") and not re.search(r"[.?!] ", description), (
            flag,
            description,
        )


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="requires docs/ of a checkout")
@pytest.mark.parametrize("name", HELP)
def test_docs_mention_all_flags_in_help(results, name):
    pages = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"--(?:no)?(\w+)", pages)) | set(re.findall(r"--(\w+)", pages))
    assert _shown(results[f"{name} --help"].stdout).keys() <= named


def test_help_has_headings_defaults_and_bounds(results):
    text = results["finetune --help=all"].stdout
    assert (
        text.startswith("Fine-tunes a BERT model on labeled files")
        and max(map(len, text.split("\n"))) <= 100
    )
    headings = re.findall(r"^[A-Z][a-z ']+:$", text, re.M)
    assert headings[:2] == ["Task and data:", "More data:"]
    assert headings[-1] == "Errors:"
    # Headings of groups with only advanced flags are hidden.
    assert "Questions:" in headings and "Questions:" not in results["finetune --help"].stdout
    first = "  --train_batch_size: Number of examples per step, over all devices. (default:\n"
    assert f"\nTraining:\n\n{first}    32; a positive integer)\n" in text
    assert {*fine_tuning_flags(), "debug"} <= _shown(text).keys()


# Incomplete or invalid commands and their error messages.
INVALID = {
    "finetune --task=mrcp": "--task=mrcp is unknown (did you mean mrpc?)",
    "predict --model=.": "--input is missing: predict requires --model and --input.",
    "verify": "expected DIR, got no argument. Run python -m bert_tf.verify DIR [--name=value ...].",
    "verify 1 --tolerance=-1": "flag --tolerance=-1: -1.0 is not a non-negative number",
    "verify 1 --tolerance=nan": "--tolerance=nan: expected a number.",
    "vocab --output=v.txt": "--input is missing: pass --input=FILES and --output=FILE.",
    "create_pretraining_data --input=a.txt": "--vocab_file is missing: pass a file, such as one "
    "that python -m bert_tf.vocab creates.",
    "convert --model=s --output=t --format=onnx": "flag --format=onnx: value should be one of "
    "<bert_tf|huggingface|google_tf1>. python -m bert_tf.convert --help=all lists the flags.",
    "convert --model=s --output=t": "--format is missing: convert needs --model, --output and "
    "--format.",
    "serve --port=65536": "flag --port=65536: 65536 is not an integer in the range [0, 65535]. "
    "python -m bert_tf.serve --help=all lists the flags.",
    "serve": "--model is missing: serve needs a run, an export or a checkpoint.",
    "serve --model=nowhere": "No such checkpoint: nowhere. Expected a directory, a prefix such as "
    "DIR/bert_model.ckpt, a .keras file, hf://OWNER/NAME, or tiny. See docs/guides/weights.md.",
    "export --output=o/1": "--model is missing: export needs --model and --output.",
}


@pytest.mark.parametrize("line", INVALID)
def test_invalid_arguments_raise_error_without_loading_tensorflow(results, line):
    done = results[line]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {INVALID[line]}") and done.stderr.count("\n") == 1
    assert "absl" in done.loaded and not done.loaded & {"tensorflow", "keras"}
