"""Commands in the documentation parse, links resolve, and figures match the benchmarks."""

import fnmatch
import json
import re
import runpy

import pytest

import bert_tf
from bert_tf.pretraining import summary as results
from bert_tf.training.run_directory import RunDirectory
from tests.documents import NOTEBOOK, PAGES, RECIPES, ROOT, blocks, commands, parse, printed

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs docs/ of a checkout")

API = sorted((ROOT / "docs" / "api").glob("*.md"))
ALL = [*PAGES, *RECIPES, *API, ROOT / "CONTRIBUTING.md"]
# Flags of other programs.
OTHER_FLAGS = {
    *("all", "dir", "enable_batching", "enable_per_model_batching_parameters", "gpus", "help"),
    *("kill", "load_fast", "logdir", "model_base_path", "model_name", "no", "nodes", "ntasks"),
    *("old", "port", "preload", "requeue", "rest_api_port", "signal", "strict", "tag_set", "utf16"),
}

# Flags of Apache Beam that create_pretraining_data accepts.
BEAM_FLAGS = {
    *("dask_client_address", "dask_npartitions", "environment_type", "job_endpoint"),
    *("sdk_container_image", "setup_file"),
}


def _by_command():
    found = {}
    for page in ALL:
        for block in blocks(page):
            if block.language == "text":  # output of a command
                continue
            for name, arguments in commands(block.text):
                found.setdefault(name, []).append((block.location, arguments))
    return found


@pytest.fixture(scope="module")
def parsed():
    """Returns (location, error, unparsed arguments) of each line, and all flags, by command."""
    lines = _by_command()
    found = parse({name: [given for _, given in some] for name, some in lines.items()})
    return {
        name: (
            [(location, *one) for (location, _), one in zip(lines[name], outcomes, strict=True)],
            flags,
        )
        for name, (outcomes, flags) in found.items()
    }


def test_commands_parse(parsed):
    assert set(parsed) >= {"pretrain", "finetune", "predict", "export", "convert", "verify"}
    for name, (rows, _) in parsed.items():
        for location, error, left in rows:
            assert error is None, f"{location}: {name}: {error}"
            names = {word[2:].split("=")[0] for word in left if word.startswith("--")}
            if name == "create_pretraining_data":
                names -= BEAM_FLAGS
            assert not names, f"{location}: {name} has no {names}"


def test_flags_in_text_exist(parsed):
    known = OTHER_FLAGS | BEAM_FLAGS | set().union(*(flags for _, flags in parsed.values()))
    for page in ALL:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for span in re.findall(r"`([^`\n]+)`", text):
            for name in re.findall(r"(?:^|\s)--(\w+)", span):
                assert name in known, f"{page.name}: --{name}"


def _anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_the_width_of_the_site(page):
    for block in blocks(page):
        if block.language:  # the site wraps the output of commands, which has no language
            for line in block.text.splitlines():
                assert len(line) <= 112, f"{block.location}: {line}"


def test_pages_are_in_navigation_and_index():
    nav = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in [*PAGES[1:], *RECIPES, *API]]
    assert sorted(nav) == sorted(pages)
    index = (ROOT / "docs" / "index.md").read_text()
    for page in PAGES[1:]:
        path = str(page.relative_to(ROOT / "docs"))
        assert path == "index.md" or f"({path})" in index, path


def test_module_map_matches_the_packages():
    page = (ROOT / "docs" / "design.md").read_text()
    (diagram,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"[a-z_*]+\.py", diagram))
    existing = {path.name for package in ("bert_tf", "pipelines", "saved_models")
                for path in (ROOT / package).glob("**/*.py")}  # fmt: skip
    assert [name for name in named if not fnmatch.filter(existing, name)] == []
    for package in ("bert_tf", "pipelines", "saved_models"):
        for path in (ROOT / package).glob("[!_]*.py"):
            assert any(fnmatch.fnmatch(path.name, name) for name in named), path


def test_reference_has_all_public_names():
    documented = re.findall(
        r"^::: (\S+)$", "\n".join(page.read_text() for page in API), re.MULTILINE
    )
    assert set(documented) == {
        *(f"bert_tf.{name}" for name in bert_tf.__all__ if name != "__version__"),
        *(f"bert_tf.saved_models.{name}" for name in bert_tf.saved_models.__all__),
        *("bert_tf.api", "bert_tf.pipelines", "bert_tf.training", "bert_tf.pretraining.objective"),
    }


def test_pypi_description_has_no_relative_links(monkeypatch):
    setuptools = pytest.importorskip("setuptools")
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    readme = (ROOT / "README.md").read_text()
    text = given["long_description"]
    assert "](docs/" in readme and not re.search(r"\]\((?!https?://)", text)
    assert "Serving (`docs/guides/serving.md`)" in text
    # Only links, comments and images differ.
    assert [line for line in text.splitlines() if line not in readme.splitlines()] == [
        re.sub(r"\[([^]]*)\]\(([^)]*)\)", r"\1 (`\2`)", line)
        for line in readme.splitlines()
        if "](" in line and not line.startswith("!")
    ]


def test_readme_figures_match_benchmarks():
    def rows(text):
        return [
            {*re.findall(r"\d+(?:\.\d+)?", line.split("|", 2)[2])}
            for line in text.splitlines()
            if line[:2] == "| "
        ]

    table = (ROOT / "README.md").read_text().split("## Figures")[1].split("\n## ")[0]
    benchmark_rows = rows((ROOT / "docs" / "benchmarks.md").read_text())
    found = rows(table)[1:]
    assert len(found) > 4
    for row in found:
        assert any(row <= other for other in benchmark_rows), row


def test_readme_output_matches_printed_results(capsys):
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"^```\n(Held-out accuracy.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    ((steps, count),) = re.findall(r"([\d,]+) steps, ([\d,]+) pred", block)
    names = [
        f"{task}_{what}"
        for task in ("masked_lm", "next_sentence")
        for what in ("accuracy", "baseline")
    ]
    fractions = (float(percentage) / 100 for percentage in re.findall(r"([\d.]+)%", block))
    evaluation = dict(zip(names, fractions, strict=True))
    evaluation |= {"masked_lm_predictions": int(count.replace(",", "")), "next_sentence_rows": 1}
    found = {"step": int(steps.replace(",", "")), "held_out": True, "filled_masks": []}
    found |= {"objective": "mlm", "best": None, "export": None}
    results.print_results({**found, "evaluation": evaluation}, RunDirectory("runs/pretrain"))
    assert block in capsys.readouterr().out


@pytest.mark.skipif(not NOTEBOOK.is_file(), reason="needs examples/ of a checkout")
def test_committed_notebook_has_outputs_without_errors():
    text, outputs = printed(json.loads(NOTEBOOK.read_text()))
    assert NOTEBOOK.stat().st_size < 200_000
    assert all(output["output_type"] != "error" for output in outputs)
    assert {kind for output in outputs for kind in output.get("data", {})} >= {"image/png"}
    assert all(word not in text for word in ("Error:", "Interrupted", "/tmp", "/home"))
    # These are the correct answers for the three new sentences; the export must also return them.
    served = text[text.rindex("probability_asyncio") :]
    for answer in ("asyncio   Cancel", "email     Add", "xml       Parse"):
        assert answer in served
