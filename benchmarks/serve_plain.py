"""The plain server of ``benchmarks.serve``: a typical HTTP server for text embeddings.

    python benchmarks/serve_plain.py MODEL.onnx TOKENIZER.json THREADS POOL

One uvicorn process with Starlette. Requests run in a pool of POOL threads on one ONNX Runtime
session, which uses THREADS threads per operation. ``{"texts": [...]}`` returns
``{"vectors": [...]}``, the means of the last states, scaled to length 1. It does not use bert_tf.
"""

import asyncio
import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tokenizers import Tokenizer

_MAX_SEQ_LENGTH = 256  # of all-MiniLM-L6-v2


def main(model: str, tokenizer_file: str, threads: int, pool_size: int) -> None:
    """Serves until the process is terminated."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_SEQ_LENGTH)
    pool = ThreadPoolExecutor(pool_size)

    def answer(body: bytes) -> bytes:
        rows = [row.ids for row in tokenizer.encode_batch(json.loads(body)["texts"])]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = tokens
        mask = (np.arange(ids.shape[1]) < np.array([[len(row)] for row in rows])).astype(np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = session.run(["last_hidden_state"], feeds)[0]
        weights = mask[:, :, None].astype(np.float32)
        means = (states * weights).sum(1) / weights.sum(1)
        vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
        return json.dumps({"vectors": vectors.tolist()}).encode()

    async def embed(request: Request) -> Response:
        body = await request.body()
        reply = await asyncio.get_running_loop().run_in_executor(pool, answer, body)
        return Response(reply, media_type="application/json")

    app = Starlette(routes=[Route("/embed", embed, methods=["POST"])])
    # asyncio sets TCP_NODELAY only for sockets with this protocol.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(f"Listening at http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        server.run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
