"""``hf://`` checkpoints, with a cache directory and a local HTTP server as the hub."""

import http.server
import json
import os
import shutil
import sys
import threading

import numpy as np
import pytest

import bert_tf
import bert_tf.transformers as successor
from bert_tf.checkpoints import conversion, hub, hugging_face, tensor_files
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.extraction.settings import resolve
from tests.checkpoints.samples import DATA
from tests.checkpoints.small_checkpoints import (
    MODELS,
    SMALL,
    UNCASED,
    assert_bit_equal,
    fused,
    make_checkpoint,
    read_all,
    variables_of,
)

COMMIT, OLD_COMMIT = "0123456789abcdef" * 2 + "01234567", "f" * 40
NAME = "someone/a-bert_1.5"
PROBED_FILES = {"modules.json", "adapter_config.json", "config_setfit.json", "model_head.pkl"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Sets an empty cache and an unreachable hub."""
    constants = pytest.importorskip("huggingface_hub.constants")
    # The package reads the environment only when it is imported.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    set_endpoint(monkeypatch, "http://127.0.0.1:9")
    return tmp_path / "hub"


def set_endpoint(monkeypatch, endpoint):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Writes a model directory as ``save_pretrained`` does."""
    path = tmp_path_factory.mktemp("model")
    hugging_face.write(make_checkpoint(MODELS["encoder"], SMALL, tokenization=UNCASED), str(path))
    return path


def assert_has_model_weights(model):
    expected = make_checkpoint(MODELS["encoder"], SMALL)
    assert_bit_equal(variables_of(model), fused(read_all(expected)))


def add_to_cache(cache, source, commit=COMMIT, revision="main", name=NAME):
    """Copies files into the cache layout of huggingface_hub: links to blobs."""
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for path in source.rglob("*"):
        if path.is_file():
            blob = folder / "blobs" / f"{commit[:8]}{path.relative_to(source)}".replace("/", "_")
            blob.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, blob)
            link = snapshot / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
    ref = folder / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)
    return snapshot


def hide_huggingface_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


# === Cache ===


def test_missing_package_raises_error(monkeypatch):
    hide_huggingface_hub(monkeypatch)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ValueError) as error:
        open_checkpoint(f"hf://{NAME}")
    assert str(error.value) == (
        f"hf://{NAME}: huggingface_hub is not installed. Run pip install 'bert_tf[hub]', or "
        "download config.json, model.safetensors, vocab.txt and tokenizer*.json from "
        f"http://127.0.0.1:9/{NAME} into a directory and pass the directory."
    )


def test_transformers_names_resolve_without_scheme_or_owner(cache, model):
    add_to_cache(cache, model, name="google-bert/bert-base-uncased")
    found = successor.TFAutoModel.from_pretrained("bert-base-uncased", from_pt=True)
    assert_has_model_weights(found.native)
    tokenizer = successor.AutoTokenizer.from_pretrained("google-bert/bert-base-uncased")
    assert tokenizer.tokenize("A cat, un") == ["a", "cat", "[UNK]", "un"]


def test_revision_is_branch_or_commit(cache, model):
    add_to_cache(cache, model)
    older = add_to_cache(cache, model, OLD_COMMIT, "refs/pr/1")
    for revision in ("refs/pr/1", OLD_COMMIT):
        assert open_checkpoint(f"hf://{NAME}@{revision}").path == str(older)
    assert open_checkpoint(f"hf://{NAME}@{COMMIT}/").path.endswith(COMMIT)
    message = (
        r"^hf://.*@v2 is not in .* and cannot be downloaded: .*\. Try again, or download .* into a "
        r"directory and pass the directory\.$"
    )
    with pytest.raises(ValueError, match=message):
        open_checkpoint(f"hf://{NAME}@v2")


def test_all_functions_accept_hub_names(cache, model, tmp_path, without_comparison):
    add_to_cache(cache, model)
    assert_has_model_weights(bert_tf.load(f"hf://{NAME}"))
    assert bert_tf.BertClassifier.from_checkpoint(f"hf://{NAME}", num_classes=2).preprocessor
    conversion.convert(f"hf://{NAME}", str(tmp_path / "out"), "bert_tf")
    assert open_checkpoint(tmp_path / "out").tokenization.vocabulary == UNCASED.vocabulary
    assert resolve(input=["a"], model=f"hf://{NAME}", output="b").model


def test_cached_weights_without_vocabulary_load_offline(cache, model, tmp_path):
    partial = shutil.copytree(model, tmp_path / "partial")
    (partial / "vocab.txt").unlink()
    (partial / "tokenizer.json").unlink()
    add_to_cache(cache, partial)
    checkpoint = open_checkpoint(f"hf://{NAME}")
    assert checkpoint.tokenization is None
    (cache / f"models--{NAME.replace('/', '--')}/snapshots/{COMMIT}/model.safetensors").unlink()
    message = (
        r"^hf://someone/a-bert_1.5 is not in .* and cannot be downloaded: .*\. Try again, or "
        r"download .* into a directory and pass the directory\.$"
    )
    with pytest.raises(ValueError, match=message):
        open_checkpoint(f"hf://{NAME}")


@pytest.mark.parametrize(
    "name",
    [
        *("hf://", "hf://bert-base-uncased", "hf://a/b/c", "hf://../b", "hf://a/b@x/../y"),
        *("hf://a--b/c", "hf://a/b\n", "hf://a/b@\x1b[2J"),
    ],
)
def test_invalid_name_raises_error(name, monkeypatch):
    monkeypatch.setattr(hub, "_fetch", lambda *_: pytest.fail("called the hub"))
    message = (
        "expected hf://OWNER/NAME or hf://OWNER/NAME@REVISION, such as "
        "hf://google-bert/bert-base-uncased"
    )
    with pytest.raises(ValueError, match=message) as error:
        open_checkpoint(name)
    assert "\x1b" not in str(error.value) and "\n" not in str(error.value)


# === Hub ===


class Hub(http.server.BaseHTTPRequestHandler):
    """Responses that huggingface_hub requires to download a model."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        self.server.requests.append(path)
        path = path.replace("%2F", "/")
        api, revision = path.split("/revision/") if "/revision/" in path else (path, "")
        found = [file for file in self.server.root.rglob("*") if file.is_file()]
        files = {str(f.relative_to(self.server.root)): f.stat().st_size for f in found}
        if api == f"/api/models/{NAME}" and revision not in ("main", "v1", COMMIT):
            return self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        if api == f"/api/models/{NAME}":
            siblings = [{"rfilename": n, "size": size, "blobId": "0"} for n, size in files.items()]
            facts = {"id": NAME, "modelId": NAME, "sha": COMMIT, "tags": [], "private": False}
            return self.answer_json({**facts, "downloads": 0, "likes": 0, "siblings": siblings})
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": n, "size": size, "oid": "0"} for n, size in files.items()
            ]
            return self.answer_json(tree)
        if not path.startswith(f"/{NAME}/resolve/"):
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        file = self.server.root / path.split("/", 5)[5]
        if not file.is_file():
            return self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        headers = {"ETag": f'"{abs(hash(str(file))):040d}"', "X-Repo-Commit": COMMIT}
        return self.answer(200, headers, file.read_bytes())

    def answer_json(self, value):
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def answer(self, status, headers, content=b""):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, model, cache, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as served:
        served.root = shutil.copytree(model, tmp_path / "served")
        served.requests = []
        threading.Thread(target=served.serve_forever, daemon=True).start()
        set_endpoint(monkeypatch, f"http://127.0.0.1:{served.server_address[1]}")
        yield served
        served.shutdown()


def downloaded(server):
    """Returns the downloaded files."""
    return {path.split("/", 5)[5] for path in server.requests if "/resolve/" in path}


@pytest.mark.parity
def test_missing_files_are_downloaded_once(server, cache):
    for name in ("README.md", "pytorch_model.bin", "tf_model.h5", "run.py", "onnx/config.json"):
        (server.root / name).parent.mkdir(exist_ok=True)
        (server.root / name).write_bytes(b"{}")
    checkpoint = open_checkpoint(f"hf://{NAME}", allow_pickle=True)
    assert checkpoint.path == f"{cache}/models--{NAME.replace('/', '--')}/snapshots/{COMMIT}"
    assert checkpoint.tokenization.vocabulary == UNCASED.vocabulary
    texts = {"config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"}
    # Requests for the probed files record in the cache that they do not exist.
    assert downloaded(server) == {*texts, "model.safetensors", *PROBED_FILES}
    expected = make_checkpoint(MODELS["encoder"], SMALL).tensors
    for key, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.read(), expected[key].read())
    server.requests.clear()
    assert open_checkpoint(f"hf://{NAME}").path == checkpoint.path
    assert server.requests == []


@pytest.mark.parity
def test_tf_model_h5_is_downloaded_without_safetensors(server):
    (server.root / "model.safetensors").unlink()
    recorded = os.path.join(os.path.dirname(__file__), "data", "tf_model", "model")
    for name in ("tf_model.h5", "config.json", "vocab.txt"):
        shutil.copy(os.path.join(recorded, name), server.root)
    (server.root / "tokenizer.json").unlink()
    (server.root / "pytorch_model.bin").write_bytes(b"")
    assert open_checkpoint(f"hf://{NAME}").config.vocab_size == 13
    assert "tf_model.h5" in downloaded(server) and "pytorch_model.bin" not in downloaded(server)


@pytest.mark.parity
def test_small_files_are_downloaded_but_no_code(server):
    """The adapter is detected on the hub and then in the cache."""
    (server.root / "adapter_config.json").write_text("{}")
    for name in ("modeling_own.py", "head.pkl", "a.bin", "b/c/d.json"):
        (server.root / name).parent.mkdir(parents=True, exist_ok=True)
        (server.root / name).write_bytes(b"{}")
    for number in range(60):
        (server.root / f"further-{number}.json").write_bytes(b"{}")
    (server.root / "trainer_state.json").write_bytes(b" " * (65 << 20))
    for _ in range(2):
        message = r"adapter_config\.json is an adapter\. Merge it with peft:"
        with pytest.raises(ValueError, match=message):
            open_checkpoint(f"hf://{NAME}")
    names = downloaded(server)
    assert not names & {"modeling_own.py", "head.pkl", "a.bin", "b/c/d.json", "trainer_state.json"}
    assert "adapter_config.json" in names and 40 < sum("further" in name for name in names) < 50


@pytest.mark.parity
def test_classifier_pickle_is_reported_but_not_downloaded(server):
    add_modules(server.root)
    (server.root / "model_head.pkl").write_bytes(b"")
    note = open_checkpoint(f"hf://{NAME}").unread_head_note
    assert "the setfit classifier in model_head.pkl is not read" in note
    assert "model_head.pkl" not in downloaded(server)


@pytest.mark.parity
def test_weights_file_of_config_is_downloaded(server):
    config = json.loads((server.root / "config.json").read_text())
    named = {**config, "transformers_weights": "other.safetensors"}
    (server.root / "config.json").write_text(json.dumps(named))
    (server.root / "model.safetensors").rename(server.root / "other.safetensors")
    assert open_checkpoint(f"hf://{NAME}").tensors
    assert "other.safetensors" in downloaded(server)


@pytest.mark.parity
def test_tensorflow_shards_are_downloaded(server):
    shutil.rmtree(server.root)
    shutil.copytree(DATA / "tf_model/shards", server.root)
    assert open_checkpoint(f"hf://{NAME}").config.vocab_size == 13
    assert "tf_model-00002-of-00002.h5" in downloaded(server)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.onnx", r"or tf_model\.h5: its model\.onnx is an ONNX model\."),
        ("model.weights.h5", r"has config\.json and model\.weights\.h5 \(KerasHub\), .* Run hf "
         rf"download {NAME} --local-"),
    ],
)  # fmt: skip
def test_unsupported_weights_raise_error(server, name, message):
    (server.root / "model.safetensors").rename(server.root / name)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(f"hf://{NAME}")


@pytest.mark.parity
def test_pickle_is_downloaded_only_with_allow_pickle(server, monkeypatch):
    os.rename(server.root / "model.safetensors", server.root / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"or tf_model\.h5\. Use a .* --allow_pickle"):
        open_checkpoint(f"hf://{NAME}")
    assert "pytorch_model.bin" not in downloaded(server)
    monkeypatch.setattr(
        "bert_tf.checkpoints.tensor_files.open_pickle",
        lambda path, allow_pickle: tensor_files.open_safetensors(path),  # the actual format
    )
    assert open_checkpoint(f"hf://{NAME}", allow_pickle=True).tensors
    assert "pytorch_model.bin" in downloaded(server)


def add_modules(root):
    for name, value in {
        "modules.json": [
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
        ],
        "sentence_bert_config.json": {"max_seq_length": 9},
        "1_Pooling/config.json": {"pooling_mode_cls_token": True},
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(json.dumps(value))


@pytest.mark.parity
def test_hub_is_queried_once_for_files_missing_in_the_cache(server, cache, model):
    """``AutoModel.from_pretrained`` caches only some files of a sentence-transformers model."""
    snapshot = add_to_cache(cache, model)
    assert open_checkpoint(f"hf://{NAME}").sentence_embedding is None
    # The hub has no modules, so later calls send no requests.
    assert downloaded(server) <= {*PROBED_FILES, *(path.name for path in model.iterdir())}
    server.requests.clear()
    assert open_checkpoint(f"hf://{NAME}").path == str(snapshot)
    assert server.requests == []


@pytest.mark.parity
def test_modules_missing_in_the_cache_are_downloaded(server, cache, model):
    add_to_cache(cache, model)
    add_modules(server.root)
    assert open_checkpoint(f"hf://{NAME}").sentence_embedding.pooling == "cls"


@pytest.mark.parity
@pytest.mark.parametrize(
    ("name", "network", "reason"),
    [
        ("nobody/nothing", "up",
         r"the model does not exist, or is restricted \(run hf auth login\)"),
        (f"{NAME}@v9", "up", "the revision does not exist"),
        (NAME, "down", r"\w*Error: "),
        (NAME, "unwanted", r"HF_HUB_OFFLINE is set\. Try again"),
    ],
)  # fmt: skip
def test_failed_download_raises_error(server, cache, monkeypatch, name, network, reason):
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    if network == "down":
        endpoint = "http://127.0.0.1:9"
        set_endpoint(monkeypatch, endpoint)
    if network == "unwanted":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = rf"^hf://{name} is not in {cache} and cannot be downloaded: {reason}"
    with pytest.raises(ValueError, match=message) as error:
        open_checkpoint(f"hf://{name}")
    assert str(error.value).endswith(
        ". Try again, or download config.json, model.safetensors, vocab.txt and tokenizer*.json "
        f"from {endpoint}/{name.split('@')[0]} into a directory and pass the directory."
    )
