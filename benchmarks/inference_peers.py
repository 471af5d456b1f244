"""The peers of ``benchmarks.inference``: transformers, ONNX Runtime and sentence-transformers.

For the first two, the Rust tokenizer tokenizes the texts, which are sorted by their number of
tokens and run in batches padded to their longest row. As in sentence-transformers, the mean of the
last states is normalized.
"""

import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

MAX_SEQ_LENGTH = 512

# Function from texts and batch size to vectors in the order of the texts.
Encode = Callable[[list[str], int], np.ndarray]
# Function from ids and mask, both (B, S) int64, to states (B, S, H).
Run = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def torch_encoder(path: str, precision: str, compiled: bool) -> Encode:
    """Returns an encoder with PyTorch, eager or compiled; bfloat16 uses autocast.

    Args:
        path: Directory of the model.
        precision: ``float32`` or ``bfloat16``.
        compiled: Whether to apply ``torch.compile``, with dynamic shapes.
    """
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    forward = torch.compile(model, dynamic=True) if compiled else model

    def run(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return forward(input_ids=ids, attention_mask=mask).last_hidden_state

    return functools.partial(_encode, _tokenizer(path), run)


class _States(torch.nn.Module):
    """Wraps the model for the exporter: tensors in, one tensor out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        outputs = self.model(input_ids=ids, attention_mask=mask, token_type_ids=types)
        return outputs.last_hidden_state


_ONNX_INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def write_onnx(path: str, target: str) -> None:
    """Exports the model from PyTorch to ONNX, for batches of any shape."""
    model = transformers.AutoModel.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    example = torch.ones(2, 8, dtype=torch.int64)
    torch.onnx.export(
        _States(model),
        (example, example, 0 * example),
        target,
        input_names=_ONNX_INPUTS,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in _ONNX_INPUTS},
        dynamo=False,
    )


def onnx_encoder(path: str) -> Encode:
    """Returns an encoder with ONNX Runtime in float32."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "model.onnx")
        write_onnx(path, target)
        session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])

    def run(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        feeds = dict(zip(_ONNX_INPUTS, (ids.numpy(), mask.numpy(), 0 * ids.numpy()), strict=True))
        return torch.from_numpy(session.run(["last_hidden_state"], feeds)[0])

    return functools.partial(_encode, _tokenizer(path), run)


def sentence_transformers_encoder(path: str, precision: str) -> Encode:
    """Returns an encoder with sentence-transformers; bfloat16 also applies to the weights."""
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(
        path, device="cpu", model_kwargs={"dtype": getattr(torch, precision)}
    )
    model.max_seq_length = MAX_SEQ_LENGTH

    def encode(texts: list[str], batch_size: int) -> np.ndarray:
        vectors = model.encode(
            texts,
            batch_size=batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        return vectors.float().numpy()

    return encode


def _tokenizer(path: str) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    if tokenizer("Hello, world!")["input_ids"] != [101, 7592, 1010, 2088, 999, 102]:
        raise ValueError("The tokenizer of transformers does not use the vocabulary of the model.")
    # The tokenizer file contains a fixed padding length, meant for training.
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


@torch.inference_mode()
def _encode(tokenizer: Any, run: Run, texts: list[str], batch_size: int) -> np.ndarray:
    """Returns vectors (N, H) in float32, in the order of the texts."""
    rows = tokenizer(texts, truncation=True, max_length=MAX_SEQ_LENGTH, padding=False)["input_ids"]
    order = np.argsort([-len(row) for row in rows], kind="stable")
    batches = []
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        ids, mask = _padded([rows[index] for index in indices], tokenizer.pad_token_id)
        states = run(ids, mask).float()
        weights = mask[:, :, None].float()
        means = (states * weights).sum(1) / weights.sum(1)
        batches.append(torch.nn.functional.normalize(means, dim=1).numpy())
    vectors = np.concatenate(batches)
    vectors[order] = vectors.copy()
    return vectors


def _padded(rows: list[list[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = np.full((len(rows), max(map(len, rows))), pad_id, np.int64)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = tokens
    lengths = np.array([len(row) for row in rows])
    mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
    return torch.from_numpy(ids), torch.from_numpy(mask)
