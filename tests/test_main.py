"""``bert-tf`` lists the commands and expected them as ``python -m`` does."""

import configparser
import pathlib
import sys

import pytest

import bert_tf
from bert_tf import __main__ as listing
from tests.processes import run_in_forks, run_python

ROOT = pathlib.Path(__file__).parent.parent


def test_commands_are_listed_with_descriptions(tmp_path):
    process, with_help = run_in_forks(tmp_path, ["bert_tf"], ["bert_tf", "--help"])
    assert process.returncode == 0 and process.stderr == ""
    lines = dict(
        line.split(maxsplit=1) for line in process.stdout.splitlines() if line.startswith("  ")
    )
    modules = pathlib.Path(bert_tf.__file__).parent.glob("*.py")
    expected = {path.stem for path in modules if "\n    command.run(main" in path.read_text()}
    assert set(lines) == expected and len(expected) >= 9
    assert all(description.endswith(".") for description in lines.values())
    assert with_help.stdout == process.stdout


def test_both_ways_to_run_a_command_are_equal(tmp_path):
    lines = (["--help"], ["--pythn"], ["nothing"])
    commands = (["bert_tf", "verify"], ["bert_tf.verify"])
    ended = run_in_forks(tmp_path, *([*command, *line] for command in commands for line in lines))
    results = [(one.returncode, one.stdout, one.stderr) for one in ended]
    assert results[:3] == results[3:]
    assert [status for status, *_ in results[:3]] == [0, 1, 1]
    assert results[0][1] and all(error.startswith("Error: ") for *_, error in results[1:3])


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("pretrian", " (did you mean pretrain?)."),
        ("create-pretraining-data", " (did you mean create_pretraining_data?)."),
        ("qqq", "."),
    ],
)
def test_unknown_command_is_rejected(name, guess, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bert-tf", name])
    with pytest.raises(SystemExit) as error:
        listing.main()
    assert (
        error.value.code
        == f"Error: unknown command {name!r}{guess} bert-tf --help lists the commands."
    )


def test_version_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bert-tf", "--version"])
    listing.main()
    assert capsys.readouterr().out == f"bert_tf {bert_tf.__version__}\n"


def test_slow_modules_are_not_imported():
    code = (
        "import sys, bert_tf.__main__ as m; sys.argv = ['bert-tf']; m.main()\n"
        "assert not {'tensorflow', 'keras', 'numpy', 'absl'} & set(sys.modules)"
    )
    process = run_python(code)
    assert process.returncode == 0, process.stderr


def test_script_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"]
    assert scripts.split() == ["bert-tf", "=", "bert_tf.__main__:main"]
