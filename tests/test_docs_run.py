"""Commands and Python code in the documentation run, with little text and a tiny model."""

import gzip
import json
import os
import pathlib
import re
import runpy
import shutil
import signal

import pytest

from tests.documents import NOTEBOOK, PAGES, ROOT, blocks, commands, curl_requests, printed
from tests.processes import run_bert_tf, run_python
from tests.served import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs docs/ of a checkout"),
]

DATA = pathlib.Path(__file__).parent / "checkpoints" / "data"
KERAS2 = pathlib.Path(__file__).parent / "transformers" / "keras2"
# These flags are appended to the commands of the pages to make them fast; the last value counts.
SMALL = {
    "pretrain": ("--num_train_steps=3", "--max_eval_steps=1", "--bert_config=bert-L4-H128"),
    "finetune": ("--num_train_epochs=1", "--train_batch_size=4"),
}


def _runnable_blocks(page, *, python):
    """Returns the blocks of a page that run: Python code or shell scripts with bert_tf commands."""
    return [
        block
        for block in blocks(page)
        if not block.not_run
        and block.language == ("python" if python else "sh")
        and (python or any(commands(block.text)))
    ]


def _write_texts(folder):
    (folder / "corpus").mkdir()
    sentences = [f"This is sentence {number} of a small text." for number in range(12)]
    for name in "ab":
        documents = [[*sentences[n % 7 :], f"Number {name}{n}."] for n in range(60)]
        with gzip.open(folder / "corpus" / f"{name}.txt.gz", "wt") as file:
            file.writelines("\n".join(document) + "\n\n" for document in documents)
        with gzip.open(folder / "corpus" / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": " ".join(each)}) + "\n" for each in documents)


def _write_pooling(folder):
    """Turns a directory of transformers into one of sentence-transformers."""
    path = "sentence_transformers.models."
    modules = [{"path": "", "type": f"{path}Transformer"}]
    modules.append({"path": "1_Pooling", "type": f"{path}Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')


def _write_tables(folder):
    def write(name, *lines):
        (folder / name).write_text("\n".join(lines) + "\n")

    films = [f"Film {number} is {'fine' if number % 2 else 'dull'}" for number in range(40)]
    write("reviews.csv", "review,stars", *(f"{film},{n % 2}" for n, film in enumerate(films)))
    write("faq.csv", "question,answer", *(f"Who made {film}?,{film[:7]}." for film in films))
    write("new.csv", "review", *films[:5])
    (folder / "glue" / "MRPC").mkdir(parents=True)
    rows = [f"{n % 2}\t{n}\t{n + 50}\tText {n}.\tOther text {n}." for n in range(12)]
    for name, first in (("train", "Quality"), ("dev", "Quality"), ("test", "index")):
        header = f"{first}\t#1 ID\t#2 ID\t#1 String\t#2 String"
        write(f"glue/MRPC/{name}.tsv", header, *rows)
    entities = [{"start": 0, "end": 4, "label": "PER"}]
    sights = [{"text": f"Anna sees {film}", "entities": entities} for film in films]
    write("train.jsonl", *map(json.dumps, sights))
    write("reports.jsonl", *(json.dumps({"report": f, "topic": f[-4:]}) for f in films))
    write("new.jsonl", json.dumps({"text": "Rome sees Anna."}))
    words = ["-DOCSTART- -X- -X- O", "", "Anna NNP B-NP B-PER", "sees VBZ B-VP O"]
    for name in ("train", "testa"):
        write(f"eng.{name}", *6 * [*words, "Rome NNP B-NP B-LOC", ""])


def _write_questions(folder):
    answers = [{"text": "Rome", "answer_start": 14}]
    for name in ("train", "dev"):
        questions = [
            {"id": f"{name}{n}", "question": "Where does Anna live?", "is_impossible": not n % 2,
             "answers": answers[: n % 2]} for n in range(8)
        ]  # fmt: skip
        paragraph = {"context": "Anna lives in Rome.", "qas": questions}
        data = {"version": "v2.0", "data": [{"title": "Anna", "paragraphs": [paragraph]}]}
        (folder / f"{name}-v2.0.json").write_text(json.dumps(data))


def _run(folder, name, arguments):
    if name in ("finetune", "export", "convert", "extract_features", "vocab"):
        for argument in arguments:
            flag, _, value = argument.partition("=")
            if flag in ("--model_dir", "--output") and (folder / value).is_dir():
                shutil.rmtree(folder / value)
            elif flag == "--output":
                (folder / value).unlink(missing_ok=True)
    small = () if "--dry_run" in arguments else SMALL.get(name, ())
    process = run_bert_tf(name, *arguments, *small, cwd=folder)
    assert process.returncode == 0, f"{name} {arguments}: {process.stdout}{process.stderr}"
    return process.stdout


def _serve(folder, arguments, text):
    """Starts the server of a block and sends the curl requests of the block to it."""
    served = Served(*arguments, cwd=folder)
    requests = list(curl_requests(text))
    for address, body in requests:
        host, _, path = address.removeprefix("http://").partition("/")
        assert host == "localhost:8501" and served.ask(f"/{path}", body), address
    served.process.send_signal(signal.SIGINT)
    out, err = served.process.communicate(timeout=60)
    assert requests and (served.process.returncode, out, err) == (0, "Stopped.\n", ""), text


def _run_python(code_blocks, folder):
    # All blocks run in one process, because importing TensorFlow is slow.
    lines = [
        f"exec(compile({block.text!r}, {block.location!r}, 'exec'), {{}})" for block in code_blocks
    ]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    process = run_python("\n".join(lines), cwd=folder, env=environment)
    assert process.returncode == 0, process.stderr


def _copy_models(folder):
    """Copies models of transformers' TFBert classes to the paths in docs/guides/migrating.md."""
    names = {"model": "tf_bert", "sequence_classification": "tf_classifier"}
    for name, target in names.items():
        shutil.copytree(DATA / "tf_model" / name, folder / target)
        shutil.copy(DATA / "tf_model" / "model" / "vocab.txt", folder / target)
    shutil.copytree(KERAS2 / "functional", folder / "my_model")
    for name in ("config.json", "vocab.txt"):
        shutil.copy(KERAS2 / "classifier" / name, folder / "my_model")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Returns a folder with the output of README's first command and models of transformers 4."""
    folder = tmp_path_factory.mktemp("world")
    _copy_models(folder)
    _run(folder, "pretrain", [])
    return folder


@pytest.fixture(scope="module")
def world(pretrained):
    """Adds the inputs of the pages' commands: text, tables, checkpoints, a fine-tuned model."""
    folder = pretrained
    _write_texts(folder)
    _write_tables(folder)
    _write_questions(folder)
    _run(folder, "pretrain", ["--input=corpus/*.txt.gz", "--model_dir=runs/mine"])
    shutil.copy(folder / "runs" / "mine" / "vocab.txt", folder)
    formats = {"uncased_L-12_H-768_A-12": "google_tf1"}
    formats |= dict.fromkeys(("bert-base", "all-MiniLM-L6-v2"), "huggingface")
    for name, target in formats.items():
        _run(folder, "convert", ["--input=runs/mine", f"--output={name}", f"--format={target}"])
    _write_pooling(folder / "all-MiniLM-L6-v2")
    table = ["--task=classification", "--train_file=reviews.csv", "--text_columns=review"]
    model = ["--label_column=stars", "--init_checkpoint=bert-base", "--model_dir=runs/reviews"]
    _run(folder, "finetune", [*table, *model])
    shutil.copytree(DATA / "model_garden" / "pretrainer", folder / "model_garden_dir")
    shutil.copytree(DATA / "keras_hub" / "masked_lm", folder / "keras_hub_preset")
    return folder


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(_runnable_blocks(page, python=False))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_of_a_page_run(page, world, tmp_path):
    """Then runs the Python blocks that read the output of the commands."""
    # A page must not read the output of another page.
    folder = shutil.copytree(world, tmp_path / "world")
    for block in _runnable_blocks(page, python=False):
        for name, arguments in commands(block.text):
            if name == "serve":
                _serve(folder, arguments, block.text)
            else:
                _run(folder, name, arguments)
    readers = [block for block in blocks(page) if block.not_run.startswith("reads ")]
    _run_python([block for block in readers if block.language == "python"], folder)


def test_python_code_runs(pretrained):
    reference = sorted((ROOT / "docs" / "api").glob("*.md"))
    code_blocks = [
        block for page in [*PAGES, *reference] for block in _runnable_blocks(page, python=True)
    ]
    assert len(code_blocks) >= 5
    _run_python(code_blocks, pretrained)


def test_notebook_runs(pretrained):
    nbclient = pytest.importorskip("nbclient", reason="needs the extra examples")
    nbformat = pytest.importorskip("nbformat", reason="needs the extra examples")
    notebook = nbformat.read(NOTEBOOK, 4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("--num_train_epochs=6", "--num_train_epochs=1")
    client = nbclient.NotebookClient(
        notebook, timeout=900, resources={"metadata": {"path": str(pretrained)}}
    )
    client.execute()  # an error in a cell is raised
    text, _ = printed(notebook)
    rows = re.search(r"([\d,]+) rows in train.csv, ([\d,]+) in dev.csv", text)
    assert int(rows[1].replace(",", "")) > 2000 and int(rows[2].replace(",", "")) > 500
    assert float(re.search(r"naive Bayes: +([\d.]+)%", text)[1]) > 80
    assert (pretrained / "runs" / "packages" / "dev" / "worst_errors.html").is_file()


def test_pretraining_is_plotted(pretrained, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra examples")
    script = runpy.run_path(str(ROOT / "examples" / "plot_pretraining.py"))
    script["main"](pretrained / "runs" / "pretrain", tmp_path / "picture.svg")
    svg = (tmp_path / "picture.svg").read_text()
    assert "<svg" in svg and len(svg) > 20_000
    # Wilson score interval of 8 of 10, from published tables.
    assert script["wilson"](0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
