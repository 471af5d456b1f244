"""Missing files and invalid checkpoints raise errors before TensorFlow is loaded."""

import pytest

from bert_tf.io.paths import check_inputs
from tests.processes import run_in_forks

COLUMNS = "--text_columns=a --label_column=b"
TASK = f"--task=classification {COLUMNS} --model_dir=run"
FILE = "No such file: no.csv. Pass the path of a text file."
CORPUS = "No file matches 'no*'. Pass comma-separated paths or glob patterns of text files."
CHECKPOINT = (
    "No such checkpoint: no. Expected a directory, a prefix such as DIR/bert_model.ckpt, a .keras "
    "file, hf://OWNER/NAME, or tiny. See docs/guides/weights.md."
)
UNSUPPORTED = ". is not a supported checkpoint: expected model.json and bert_config.json"
RUN = CHECKPOINT.replace(": no.", ": runs/no (did you mean hf://runs/no?).")
COLUMN = "there.csv, line 1: expected one column 'c', got none. The columns are a, b."
WEB = (
    "expected a path, got a URL. Download the file, or use hf://OWNER/NAME for a model of the "
    "Hugging Face Hub."
)
COMMANDS = {
    f"finetune {TASK} --init_checkpoint=tiny --train_file=no.csv": FILE,
    f"finetune {TASK} --init_checkpoint=no --train_file=there.csv": CHECKPOINT,
    f"finetune {TASK} --label_column=c --init_checkpoint=tiny --train_file=there.csv": COLUMN,
    "predict --model=tiny --input=no.csv": FILE,
    "predict --model=tiny --input=.": (
        ".: expected a text file, got a directory. Pass a file in it."
    ),
    "predict --model=tiny --input=https://a.org/b.csv": f"https://a.org/b.csv: {WEB}",
    "export --output=run/1 --model=https://hf.co/a/b": f"https://hf.co/a/b: {WEB}",
    "vocab --output=vocab.txt --input=https://a.org/b": f"https://a.org/b: {WEB}",
    "predict --model=no --input=there.csv": CHECKPOINT,
    "predict --model=runs/no --input=there.csv": RUN,
    "pretrain --model_dir=run --input=no*": CORPUS,
    "pretrain --model_dir=run --input=there.csv --eval_input=no*": CORPUS,
    "pretrain --model_dir=run --input=there.csv --init_checkpoint=no": CHECKPOINT,
    "vocab --output=vocab.txt --input=no*": CORPUS,
    "extract_features --output=run --model=tiny --input=no*": CORPUS,
    "extract_features --output=run --model=no --input=there.csv": CHECKPOINT,
    "convert --output=run --format=bert_tf --model=no": CHECKPOINT,
    "export --output=run/1 --model=no": CHECKPOINT,
    "export --output=run/1 --model=tiny/": CHECKPOINT.replace(": no.", ": tiny/."),
    "verify no": "No such directory: no. Pass the directory of an export, such as exports/1.",
    "verify there.csv": (
        "there.csv: expected the directory of an export, such as exports/1, got a file."
    ),
    f"finetune {TASK} --init_checkpoint=. --train_file=there.csv": UNSUPPORTED,
    "predict --model=. --input=there.csv": UNSUPPORTED,
    "pretrain --model_dir=run --input=there.csv --init_checkpoint=.": UNSUPPORTED,
    "extract_features --output=run --model=. --input=there.csv": UNSUPPORTED,
    "convert --output=run --format=bert_tf --model=.": UNSUPPORTED,
    "export --output=run/1 --model=.": UNSUPPORTED,
    "export --output=run/1 --model=there.csv": UNSUPPORTED.replace(".", "there.csv", 1),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Returns the result of each command and the files in their folder afterwards."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "there.csv").write_text("a,b\n")
    found = run_in_forks(folder, *(f"bert_tf.{command}".split() for command in COMMANDS))
    return dict(zip(COMMANDS, found, strict=True)), [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("command", COMMANDS)
def test_error_without_loading_tensorflow(command, results):
    done, files = results[0][command], results[1]
    assert done.returncode == 1 and done.stderr.startswith(f"Error: {COMMANDS[command]}")
    assert "bert_tf" in done.loaded and not done.loaded & {"tensorflow", "keras", "torch", "jax"}
    assert files == ["there.csv"]


def test_check_inputs(tmp_path):
    (tmp_path / "bert_model.ckpt.index").touch()
    (tmp_path / "a[1].txt").touch()
    check_inputs(
        texts=["gs://bucket/*", f"{tmp_path}/a[1].txt", rf"{tmp_path}/a\[1\].txt", f"{tmp_path}/*"],
        files=[None, "", "<train>", "-", "gs://bucket/a.csv"],
        checkpoints=[
            *("hf://owner/name", "gs://bucket/run", None, "", f"{tmp_path}/bert_model.ckpt")
        ],
    )
    with pytest.raises(
        ValueError,
        match=r"Its directory has the prefixes bert_model\.ckpt\. Expected a directory, a prefix "
        r"such as DIR/bert_model\.ckpt, ",
    ):
        check_inputs(checkpoints=[f"file://{tmp_path}/biobert_model.ckpt"])
    with pytest.raises(ValueError, match=r"did you mean hf://google-bert/bert-base-uncased\?"):
        check_inputs(checkpoints=["bert-base-uncased"])
    # Inputs of a finished run may be missing.
    check_inputs(texts=["no"], files=["no"], checkpoints=["no"], output=str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"No such file: .*/bert_model.ckpt \(did you mean .*/bert_model\.ckpt\.index\?\)\. "
        "Pass the path of a text file",
    ):
        check_inputs(files=[f"{tmp_path}/bert_model.ckpt"], output=f"{tmp_path}/none")
