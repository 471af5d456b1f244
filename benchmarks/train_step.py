"""The complete pre-training step compared with transformers and torch, on real text.

    python -m benchmarks.train_step [--sizes=base,tiny,mini] [--precisions=...] [--rounds=7]

A step is the forward pass, the backward pass with dropout, clipping by the global norm, and the
optimizer update. Both sides train the same sizes on the same batches of WikiExtractor text (in
BERT_TF_DATA), sequences of 128 tokens with both losses and at most 20 predictions. The peer is
``BertForPreTraining`` with ``torch.optim.AdamW(fused=True)`` and ``clip_grad_norm_``, eager and
compiled; its bfloat16 is ``torch.autocast``. Each contender is a separate process. Their rounds
alternate; the result is the median. The output also relates the speed to that of a large TensorFlow
matrix product in the same run. It counts only the products of tokens and predictions without
padding, because bert_tf computes no others.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

from .machine import processor, product_rate
from .measured_process import MeasuredProcess

# Preset, batch size, steps per round
SIZES = {
    "base": ("bert-base", 8, 1),
    "base32": ("bert-base", 32, 1),
    "large": ("bert-large", 8, 1),
    "tiny": ("bert-tiny", 32, 5),
    "mini": ("bert-mini", 256, 1),
}
CONTENDERS = ("bert_tf", "torch eager", "torch compile")
PRODUCT = "product"
TARGETS = {"base": 1.6, "base32": 1.6, "large": 1.6, "tiny": 5.0, "mini": 4.0}
SEQUENCE, PREDICTIONS = 128, 20
NUM_BATCHES = 4
LEARNING_RATE = 1e-4


@dataclasses.dataclass
class Contender:
    """A worker process that runs steps on request, and its measurements."""

    name: str
    process: MeasuredProcess
    seconds: list[float] = dataclasses.field(default_factory=list)


def make_batches(folder: str, path: str, batch_size: int) -> None:
    """Writes batches of real text to a file; features have the shape (NUM_BATCHES, B, ...)."""
    from bert_tf.pipelines.corpora.sources import open_corpus
    from bert_tf.pipelines.pretraining.dataset import pretraining_dataset
    from bert_tf.pipelines.wordpiece import BertTokenizer

    corpus = open_corpus(os.path.join(folder, "corpora", "enwiki", "wiki_00.gz"))
    tokenizer = BertTokenizer(os.path.join(folder, "vocab", "bert-base-uncased.txt"))
    dataset = pretraining_dataset(
        corpus,
        tokenizer,
        batch_size=batch_size,
        max_seq_length=SEQUENCE,
        max_predictions_per_seq=PREDICTIONS,
    )
    batches = list(dataset.take(NUM_BATCHES).as_numpy_iterator())
    np.savez(path, **{key: np.stack([batch[key] for batch in batches]) for key in batches[0]})


# === The contenders' processes ===


def our_stepper(
    size: str, precision: str, arrays: dict[str, np.ndarray], jit_compile: bool = False
) -> Callable[[int], None]:
    """Returns a function that runs steps with bert_tf, in the environment of a command."""
    from bert_tf.io import runtime

    runtime.enable_onednn()
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.modeling import BertPretrainer
    from bert_tf.pretraining.objective import PretrainingLoop
    from bert_tf.training import distribution, optimizers, schedules
    from bert_tf.training.precision import NOT_REWRITTEN, set_precision

    devices = distribution.choose_strategy("one_device")
    os.environ[NOT_REWRITTEN] = "AddN,BiasAddGrad"  # as in training commands
    set_precision(precision, devices.device_type, jit_compile)
    model = BertPretrainer(BertConfig.from_preset(SIZES[size][0]))
    schedule = schedules.WarmupLinearDecay(LEARNING_RATE, warmup_steps=100, total_steps=10_000)
    optimizer = optimizers.create_optimizer("adamw", schedule, model.trainable_variables)
    training = PretrainingLoop(
        model,
        optimizer,
        devices.strategy,
        seed=0,
        jit_compile=jit_compile,
        device_type=devices.device_type,
    )
    iterator = training.distribute(tf.data.Dataset.from_tensor_slices(arrays).repeat())

    def step(steps: int) -> None:
        training.make(iterator, steps)

    return step


def peer_stepper(
    size: str,
    precision: str,
    arrays: dict[str, np.ndarray],
    compiled: bool,
    device: str = "cpu",
) -> Callable[[int], None]:
    """Returns a function that runs steps with transformers and torch."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    from bert_tf import config, features

    sizes = config.BertConfig.from_preset(SIZES[size][0]).to_dict()
    torch.manual_seed(0)
    model = BertForPreTraining(BertConfig(**sizes)).train().to(device)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        eps=1e-6,
        fused=True,
    )
    forward = torch.compile(model) if compiled else model

    def repeat_batches() -> Iterator[dict[str, torch.Tensor]]:
        while True:
            for index in range(NUM_BATCHES):
                batch = {key: value[index] for key, value in arrays.items()}
                rows = np.arange(len(batch[features.INPUT_WORD_IDS]))[:, None]
                # transformers needs a label per token, -100 for tokens without a prediction.
                labels = np.full(batch[features.INPUT_WORD_IDS].shape, -100, np.int64)
                real = batch[features.MASKED_LM_WEIGHTS] > 0
                where = np.broadcast_to(rows, real.shape)[real]
                labels[where, batch[features.MASKED_LM_POSITIONS][real]] = batch[
                    features.MASKED_LM_IDS
                ][real]
                inputs = {
                    "input_ids": batch[features.INPUT_WORD_IDS],
                    "attention_mask": batch[features.INPUT_MASK],
                    "token_type_ids": batch[features.INPUT_TYPE_IDS],
                    "labels": labels,
                    "next_sentence_label": batch[features.NEXT_SENTENCE_LABELS],
                }
                yield {
                    key: torch.from_numpy(value.astype(np.int64)).to(device)
                    for key, value in inputs.items()
                }

    batches = repeat_batches()

    def step(steps: int) -> None:
        for _ in range(steps):
            inputs = next(batches)
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                loss = forward(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def serve(name: str, size: str, precision: str, path: str) -> None:
    """Warms up, then reads numbers of steps from the input and prints the seconds they take."""
    if name == PRODUCT:
        print(f"ANSWER {product_rate(precision)}", flush=True)
        return
    with np.load(path) as file:
        arrays = dict(file)
    if name == "bert_tf":
        step = our_stepper(size, precision, arrays)
    else:
        step = peer_stepper(size, precision, arrays, compiled=name == "torch compile")
    step(3)
    print("ANSWER 0", flush=True)
    for line in sys.stdin:
        start_time = time.perf_counter()
        step(int(line))
        print(f"ANSWER {time.perf_counter() - start_time}", flush=True)


# === The comparison ===


def real_flops(size: str, path: str) -> float:
    """Returns the FLOPs of the matrix products of a step, without padding."""
    from bert_tf import config, features

    sizes = config.BertConfig.from_preset(SIZES[size][0])
    with np.load(path) as file:
        lengths = file[features.INPUT_MASK].sum(axis=-1)  # (NUM_BATCHES, B)
        predictions = file[features.MASKED_LM_WEIGHTS].sum(axis=-1)
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    flops_per_token = 2 * (4 * hidden * hidden + 2 * hidden * inner)
    flops_per_prediction = 2 * (hidden * hidden + hidden * sizes.vocab_size)
    row_flops = sizes.num_hidden_layers * (lengths * flops_per_token + 4 * hidden * lengths**2)
    forward = row_flops + predictions * flops_per_prediction + 2 * hidden * hidden
    return float(3 * forward.sum(axis=-1).mean())


def compare(size: str, precision: str, path: str, rounds: int) -> dict[str, float]:
    """Returns the tokens per second of each contender for one size and precision."""
    _, batch_size, steps = SIZES[size]

    def start(name: str) -> MeasuredProcess:
        command = ["benchmarks.train_step", "--serve", name, f"--sizes={size}"]
        return MeasuredProcess(name, [*command, f"--precisions={precision}", f"--batches={path}"])

    product = start(PRODUCT)
    product_flops = product.answer()
    product.close()
    contenders = []
    for name in CONTENDERS:
        process = start(name)
        process.answer()  # contenders warm up one at a time
        contenders.append(Contender(name, process))
    for _ in range(rounds):
        for contender in contenders:
            contender.seconds.append(contender.process.ask(steps) / steps)
    speeds = {}
    for contender in contenders:
        contender.process.close()
        median = statistics.median(contender.seconds)
        speeds[contender.name] = batch_size * SEQUENCE / median
        spread = f"{min(contender.seconds):.3f}-{max(contender.seconds):.3f}"
        print(
            f"{size:5} {batch_size:3}x{SEQUENCE} {precision:9} {contender.name:14} "
            f"{median:7.3f} s/step ({spread:>13}) {speeds[contender.name]:9,.0f} tokens/s",
            flush=True,
        )
    seconds = batch_size * SEQUENCE / speeds["bert_tf"]
    print(
        f"{size:5} {precision}: a large product has {product_flops / 1e9:,.0f} GFLOP/s, bert_tf "
        f"{real_flops(size, path) / seconds / product_flops:.0%} of it"
    )
    return speeds


def main() -> None:
    """Compares, prints the results, and writes them to ``--json`` if specified."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="base,tiny,mini")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", default="")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.sizes, arguments.precisions, arguments.batches)
        return
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        sys.exit("Set BERT_TF_DATA to the folder that contains corpora/ and vocab/.")
    print(processor(), flush=True)
    figures = []
    with tempfile.TemporaryDirectory() as temporary:
        for size in arguments.sizes.split(","):
            path = os.path.join(temporary, f"{size}.npz")
            make_batches(folder, path, SIZES[size][1])
            ours, theirs = [], []
            for precision in arguments.precisions.split(","):
                speeds = compare(size, precision, path, arguments.rounds)
                figures += [
                    {"size": size, "precision": precision, "name": name, "tokens_per_second": speed}
                    for name, speed in speeds.items()
                ]
                mine = speeds.pop("bert_tf")
                ours.append(mine)
                theirs.append(max(speeds.values()))
                print(f"{size:5} {precision}: {mine / theirs[-1]:.2f} times the best peer")
            print(
                f"{size:5} best against best: {max(ours) / max(theirs):.2f} times "
                f"(target: {TARGETS[size]})",
                flush=True,
            )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
