"""Paths at which nothing is, or no checkpoint: refused before TensorFlow is loaded."""

import pytest

from bert_tf.io.paths import check_inputs
from tests.anew import run_in_forks

COLUMNS = "--text_columns=a --label_column=b"
TASK = f"--task=classification {COLUMNS} --model_dir=run"
FILE = "There is no file at no.csv: expected a text file"
CORPUS = "No file matches 'no*': give paths or globs of text files, separated by commas."
CHECKPOINT = (
    "There is no checkpoint at no: expected a directory, the prefix of a TensorFlow checkpoint "
    "(DIR/bert_model.ckpt), a .keras file, hf://OWNER/NAME of the Hugging Face hub, or tiny, which "
    "bert_tf ships; docs/guides/weights.md says where released weights are."
)
NONE = ". is not a checkpoint of a known format: expected model.json and bert_config.json"
RUN = CHECKPOINT.replace("at no:", "at runs/no:").replace(
    "Face hub,", "Face hub (did you mean hf://runs/no?),"
)
COLUMN = "there.csv, line 1: expected one column 'c', got none. The columns are a, b."
WEB = (
    "is an address of the web: download it and name the file, or name weights of the Hugging Face "
    "hub as hf://OWNER/NAME."
)
COMMANDS = {
    f"finetune {TASK} --init_checkpoint=tiny --train_file=no.csv": FILE,
    f"finetune {TASK} --init_checkpoint=no --train_file=there.csv": CHECKPOINT,
    f"finetune {TASK} --label_column=c --init_checkpoint=tiny --train_file=there.csv": COLUMN,
    "predict --model=tiny --input=no.csv": FILE,
    "predict --model=tiny --input=.": (
        ". is a folder: expected a text file; name one that is in it."
    ),
    "predict --model=tiny --input=https://a.org/b.csv": f"https://a.org/b.csv {WEB}",
    "export --output=run/1 --model=https://huggingface.co/a/b": f"https://huggingface.co/a/b {WEB}",
    "vocab --output=vocab.txt --input=https://a.org/b": f"https://a.org/b {WEB}",
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
    "export --output=run/1 --model=tiny/": CHECKPOINT.replace("at no:", "at tiny/:"),
    "verify no": "no: expected the directory of an export, such as exports/1.",
    f"finetune {TASK} --init_checkpoint=. --train_file=there.csv": NONE,
    "predict --model=. --input=there.csv": NONE,
    "pretrain --model_dir=run --input=there.csv --init_checkpoint=.": NONE,
    "extract_features --output=run --model=. --input=there.csv": NONE,
    "convert --output=run --format=bert_tf --model=.": NONE,
    "export --output=run/1 --model=.": NONE,
    "export --output=run/1 --model=there.csv": NONE.replace(".", "there.csv", 1),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How every command ended, and what was in their folder then."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "there.csv").write_text("a,b\n")
    found = run_in_forks(folder, *(f"bert_tf.{command}".split() for command in COMMANDS))
    return dict(zip(COMMANDS, found, strict=True)), [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("command", COMMANDS)
def test_refused_before_tensorflow_is_loaded(command, ended):
    done, there = ended[0][command], ended[1]
    assert done.returncode == 1 and done.stderr.startswith(f"Error: {COMMANDS[command]}")
    assert "bert_tf" in done.loaded and not done.loaded & {"tensorflow", "keras", "torch", "jax"}
    assert there == ["there.csv"]


def test_what_is_left_to_who_reads_it(tmp_path):
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
        match=r"its folder has the prefixes bert_model\.ckpt: expected a directory, the prefix of "
        r"a TensorFlow checkpoint \(DIR/bert_model\.ckpt\), a \.keras file, hf://OWNER/NAME of the "
        "Hugging Face hub, or tiny, which bert_tf ships",
    ):
        check_inputs(checkpoints=[f"file://{tmp_path}/biobert_model.ckpt"])
    with pytest.raises(ValueError, match=r"did you mean hf://google-bert/bert-base-uncased\?"):
        check_inputs(checkpoints=["bert-base-uncased"])
    # A finished run is shown again although what it read is gone.
    check_inputs(texts=["no"], files=["no"], checkpoints=["no"], output=str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"There is no file at .*/bert_model.ckpt: expected a text file "
        r"\(did you mean .*/bert_model\.ckpt\.index\?\)",
    ):
        check_inputs(files=[f"{tmp_path}/bert_model.ckpt"], output=f"{tmp_path}/none")
