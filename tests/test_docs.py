"""The pages say what is true: their commands parse, their links lead somewhere."""

import fnmatch
import json
import re
import runpy

import pytest

import bert_tf
from bert_tf.pretraining import summary as results
from bert_tf.training.run_directory import RunDirectory
from tests.documents import NOTEBOOK, PAGES, RECIPES, ROOT, blocks, commands, parse, printed

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="the checkout is missing, whose docs/ this reads"
)

API = sorted((ROOT / "docs" / "api").glob("*.md"))
ALL = [*PAGES, *RECIPES, *API, ROOT / "CONTRIBUTING.md"]
# Flags of other programs that the pages name.
OTHERS = {
    *("all", "dir", "enable_batching", "enable_per_model_batching_parameters", "gpus", "help"),
    *("kill", "load_fast", "logdir", "model_base_path", "model_name", "no", "nodes", "ntasks"),
    *("old", "port", "preload", "requeue", "rest_api_port", "signal", "strict", "tag_set", "utf16"),
}

# Apache Beam's, which create_pretraining_data passes on.
OF_BEAM = {
    *("dask_client_address", "dask_npartitions", "environment_type", "job_endpoint"),
    *("sdk_container_image", "setup_file"),
}


def _by_command():
    found = {}
    for page in ALL:
        for block in blocks(page):
            if block.language == "text":  # what a command prints
                continue
            for name, arguments in commands(block.text):
                found.setdefault(name, []).append((block.place, arguments))
    return found


@pytest.fixture(scope="module")
def parsed():
    """By command: the place, the error and the arguments left of each line; its flags."""
    lines = _by_command()
    found = parse({name: [given for _, given in some] for name, some in lines.items()})
    return {
        name: (
            [(place, *one) for (place, _), one in zip(lines[name], outcomes, strict=True)],
            flags,
        )
        for name, (outcomes, flags) in found.items()
    }


def test_every_command_in_the_pages_parses(parsed):
    assert set(parsed) >= {"pretrain", "finetune", "predict", "export", "convert", "verify"}
    for name, (rows, _) in parsed.items():
        for place, error, left in rows:
            assert error is None, f"{place}: {name}: {error}"
            names = {word[2:].split("=")[0] for word in left if word.startswith("--")}
            if name == "create_pretraining_data":
                names -= OF_BEAM
            assert not names, f"{place}: {name} has no {names}"


def test_every_flag_that_the_text_names_is_one(parsed):
    known = OTHERS | OF_BEAM | set().union(*(flags for _, flags in parsed.values()))
    for page in ALL:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for span in re.findall(r"`([^`\n]+)`", text):
            for name in re.findall(r"(?:^|\s)--(\w+)", span):
                assert name in known, f"{page.name}: --{name}"


def _anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_or_program_is_wider_than_the_site_shows(page):
    for block in blocks(page):
        if block.language:  # else it is what a command prints, and the site goes on below
            for line in block.text.splitlines():
                assert len(line) <= 112, f"{block.place}: {line}"


def test_every_page_is_in_the_site_and_in_the_index():
    nav = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in [*PAGES[1:], *RECIPES, *API]]
    assert sorted(nav) == sorted(pages)
    index = (ROOT / "docs" / "index.md").read_text()
    for page in PAGES[1:]:
        path = str(page.relative_to(ROOT / "docs"))
        assert path == "index.md" or f"({path})" in index, path


def test_the_map_names_every_module_of_the_folders_and_none_else():
    page = (ROOT / "docs" / "design.md").read_text()
    (drawn,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"[a-z_*]+\.py", drawn))
    there = {path.name for room in ("bert_tf", "pipelines", "saved_models")
             for path in (ROOT / room).glob("**/*.py")}  # fmt: skip
    assert [name for name in named if not fnmatch.filter(there, name)] == []
    for room in ("bert_tf", "pipelines", "saved_models"):
        for path in (ROOT / room).glob("[!_]*.py"):
            assert any(fnmatch.fnmatch(path.name, name) for name in named), path


def test_the_reference_has_every_public_name():
    shown = re.findall(r"^::: (\S+)$", "\n".join(page.read_text() for page in API), re.MULTILINE)
    assert set(shown) == {
        *(f"bert_tf.{name}" for name in bert_tf.__all__ if name != "__version__"),
        *(f"bert_tf.saved_models.{name}" for name in bert_tf.saved_models.__all__),
        *("bert_tf.api", "bert_tf.pipelines", "bert_tf.training", "bert_tf.pretraining.objective"),
    }


def test_the_description_on_pypi_has_no_link_that_leads_nowhere(monkeypatch):
    setuptools = pytest.importorskip("setuptools")
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    readme = (ROOT / "README.md").read_text()
    text = given["long_description"]
    assert "](docs/" in readme and not re.search(r"\]\((?!https?://)", text)
    assert "Serving (`docs/guides/serving.md`)" in text
    # Nothing but links, comments and pictures differs.
    assert [line for line in text.splitlines() if line not in readme.splitlines()] == [
        re.sub(r"\[([^]]*)\]\(([^)]*)\)", r"\1 (`\2`)", line)
        for line in readme.splitlines()
        if "](" in line and not line.startswith("!")
    ]


def test_readmes_figures_are_those_of_the_benchmarks():
    def rows(text):
        return [
            {*re.findall(r"\d+(?:\.\d+)?", line.split("|", 2)[2])}
            for line in text.splitlines()
            if line[:2] == "| "
        ]

    table = (ROOT / "README.md").read_text().split("## Figures")[1].split("\n## ")[0]
    whole = rows((ROOT / "docs" / "benchmarks.md").read_text())
    found = rows(table)[1:]
    assert len(found) > 4
    for row in found:
        assert any(row <= other for other in whole), row


def test_readmes_output_is_what_a_run_prints(capsys):
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"^```\n(Held-out accuracy.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    ((steps, count),) = re.findall(r"([\d,]+) steps, ([\d,]+) pred", block)
    names = [
        f"{task}_{what}"
        for task in ("masked_lm", "next_sentence")
        for what in ("accuracy", "baseline")
    ]
    shares = (float(share) / 100 for share in re.findall(r"([\d.]+)%", block))
    evaluation = dict(zip(names, shares, strict=True))
    evaluation |= {"masked_lm_predictions": int(count.replace(",", "")), "next_sentence_rows": 1}
    found = {"step": int(steps.replace(",", "")), "held_out": True, "filled_masks": []}
    found |= {"objective": "mlm", "best": None, "export": None}
    results.print_results({**found, "evaluation": evaluation}, RunDirectory("runs/pretrain"))
    assert block in capsys.readouterr().out


@pytest.mark.skipif(not NOTEBOOK.is_file(), reason="the checkout is missing")
def test_the_notebook_is_committed_as_it_ran_without_an_error():
    text, outputs = printed(json.loads(NOTEBOOK.read_text()))
    assert NOTEBOOK.stat().st_size < 200_000
    assert all(output["output_type"] != "error" for output in outputs)
    assert {kind for output in outputs for kind in output.get("data", {})} >= {"image/png"}
    assert "Error" not in text and "/tmp" not in text and "/home" not in text
    # The three new sentences are about these, whatever the model is: so says the export, too.
    served = text[text.rindex("probability_asyncio") :]
    for answer in ("asyncio   Cancel", "email     Add", "tkinter   Draw"):
        assert answer in served
