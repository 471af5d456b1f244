"""Fine-tunes, predicts and extracts on one device and on two logical CPU devices.

The CPU must be split before the first computation, and importing this module computes. The test
therefore calls these functions in a new process that has split the CPU. They write ``weights.npz``
and ``outputs.json`` with the results of all cases, and the files of the commands.
"""

import contextlib
import dataclasses
import json
import pathlib
from unittest import mock

import keras
import numpy as np

import bert_tf.predict
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.weights import build_model
from bert_tf.evaluation.evaluation import Inference
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.finetuning import training
from bert_tf.finetuning.run import run
from bert_tf.finetuning.settings import FineTuningSettings
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.readers.examples import SimilarityExample
from bert_tf.tasks.task import predict
from bert_tf.training.distribution import choose_strategy
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.run_directory import FineTuningDirectory
from tests.finetuning.small_runs import saved, settings, write_inputs
from tests.finetuning.small_tasks import (
    CONFIG,
    LABELS,
    TOKENIZER,
    WINDOWS,
    examples_of,
    make_task,
    random_labels,
    random_questions,
    text_task,
    texts_with,
)
from tests.processes import run_main

# Batches of 8, 8 and 1: the last has fewer rows than there are replicas.
NUM_EXAMPLES, BATCH_SIZE, EVAL_BATCH_SIZE = 17, 8, 5
TINY = dataclasses.replace(CONFIG, num_hidden_layers=1)


def _texts(task_type, **options):
    labels = LABELS if task_type == "classification" else ()
    examples = examples_of(texts_with(random_labels(task_type, NUM_EXAMPLES)), labels)
    return text_task("own", examples, {"dev": examples}, {}, kind=task_type, **options)


def _pairs():
    """Returns pairs whose in-batch negatives come from all replicas."""
    items = texts_with([None] * 2 * NUM_EXAMPLES)
    texts = [(one.text_a, other.text_a) for one, other in zip(items[::2], items[1::2], strict=True)]
    return examples_of(SimilarityExample(str(n), pair, None) for n, pair in enumerate(texts))


def _task(task_type, examples, **options):
    return make_task(task_type, "own", examples, {"dev": examples}, **options)


# Other task types use the same code.
CASES = {
    "classification": lambda: _texts("classification", class_weights="x:3,y:0.5"),
    "regression": lambda: _texts("regression"),
    "questions": lambda: _task(
        "squad", random_questions(NUM_EXAMPLES, impossible=0.3), with_null=True, **WINDOWS
    ),
    "pairs": lambda: _task("similarity", _pairs()),
}
FLAGS = {"questions": {"gradient_accumulation_steps": 2}}
# Most cases use SGD, because Adam and clipping hide a gradient of twice the size.
CLIPPED_WITH_ADAM = "regression"
SGD_RATE = 0.1


def _sgd(name, schedule, variables, **_):
    optimizer = keras.optimizers.SGD(SGD_RATE)
    optimizer.build(variables)
    return optimizer


def train(name, devices, folder):
    """Trains a case; returns its weights and its losses, scores and predictions."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    task = CASES[name]()
    directory = FineTuningDirectory(str(folder))
    directory.create()
    flags = {"train_batch_size": BATCH_SIZE, "num_train_epochs": 2, "learning_rate": 1e-4}
    flags |= FLAGS.get(name, {})
    made = FineTuningSettings(**flags)
    with devices.strategy.scope():
        model = build_model(TINY, ModelSpec(MODEL_CLASSES[task.model], dict(task.model_arguments)))
    if task.embeds:
        model.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=32)
    inference = Inference(model, TOKENIZER, 32, EVAL_BATCH_SIZE, {})
    examples = task.training_examples(TOKENIZER, 32)
    clips = name == CLIPPED_WITH_ADAM
    norm = 0.05 if clips else 1e9
    optimizer = training.create_optimizer if clips else _sgd
    with (
        mock.patch.dict(TrainingLoop.__init__.__kwdefaults__, clip_norm=norm),
        mock.patch.object(training, "create_optimizer", optimizer),
    ):
        read = training.FineTuningInputs(made, directory, devices, (), task, {}, None, examples)
        trained = training.FineTuningTrainer(read, inference)
        trained.finish()
    (dev,) = task.dev_sets
    return saved(folder / "last"), {
        "losses": trained.state.curve.sums,
        "evaluations": trained.state.evaluations,
        "predictions": list(predict(task, inference, dev, {})),
    }


def _interrupted(step):
    """Interrupts training at a step, as Ctrl-C does."""
    before = training.FineTuningTrainer.is_save_due

    def is_save_due(self):
        self.interruption.requested |= self.state.step == step
        return before(self)

    return mock.patch.object(training.FineTuningTrainer, "is_save_due", is_save_due)


def resume(inputs, folder):
    """Fine-tunes with dropout: uninterrupted, resumed on two devices, and resumed on one."""
    for name, strategy in (("whole", None), ("on_two", "mirrored"), ("on_one", "one_device")):
        flags = {"num_train_epochs": 1}
        if strategy:
            with _interrupted(3), contextlib.suppress(KeyboardInterrupt):
                run(settings(inputs, folder / name, strategy="mirrored", **flags))
        with mock.patch.object(FineTuningDirectory, "delete_state"):
            run(settings(inputs, folder / name, strategy=strategy or "mirrored", **flags))


def compare(folder: str) -> None:
    """Trains the cases on one device and on two."""
    path = pathlib.Path(folder)
    both = [choose_strategy(name) for name in ("one_device", "mirrored")]
    weights, outputs = {}, {}
    for name in CASES:
        for devices in both:
            case = f"{name}/{devices.strategy.num_replicas_in_sync}"
            found, outputs[case] = train(name, devices, path / case)
            weights |= {f"{case}:{key}": value for key, value in found.items()}
    (path / "outputs.json").write_text(json.dumps(outputs))
    np.savez(path / "weights.npz", **weights)


def run_commands(folder: str) -> None:
    """Fine-tunes, predicts and extracts with the commands."""
    path = pathlib.Path(folder)
    inputs = path / "inputs"
    inputs.mkdir()
    resume(write_inputs(inputs), path)
    lines = inputs / "lines.txt"
    lines.write_text((inputs / "test.tsv").read_text())
    for strategy in ("one_device", "mirrored"):
        flags = {"model_dir": path / "whole", "input": inputs / "test.tsv", "batch_size": 5}
        flags |= {"output": path / f"{strategy}.tsv", "strategy": strategy}
        run_main(bert_tf.predict, *(f"--{name}={value}" for name, value in flags.items()))
        for pooling in ("none", "mean"):
            given = resolve(
                input=[str(lines)],
                model=str(inputs / "tiny"),
                output=str(path / f"{pooling}_{strategy}"),
                layers=["-1"],
                pooling=pooling,
                batch_size=3,
            )
            chosen = choose_strategy(strategy).strategy
            with mock.patch.object(extraction, "open_devices", lambda *_, it=chosen: it):
                extraction.run(given)
