"""Stages of a pre-training run, from the model directory to the results."""

import contextlib
import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint, Tokenization
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.choices import SCHEDULE
from bert_tf.config import BertConfig
from bert_tf.io.files import check_outside, read_json, remove, write_json
from bert_tf.io.messages import listed, warn
from bert_tf.pipelines.corpora.sources import Corpus
from bert_tf.pipelines.pretraining.dataset import describe_rows
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training import distribution
from bert_tf.training.cluster import find_cluster, uncoordinated_processes
from bert_tf.training.compilation import should_use_xla
from bert_tf.training.precision import is_rewritten, training_in_process
from bert_tf.training.progress import NOWHERE, print_progress, progress_to
from bert_tf.training.run_directory import RunDirectory, fingerprint
from bert_tf.training.trainer import check_callbacks
from bert_tf.training.workers import Workers

from .cost import parameter_count
from .data import (
    PretrainingData,
    check_hosts_can_read,
    check_records,
    first_sentences,
    load_or_learn_vocabulary,
    make_row_options,
    open_data,
)
from .model import build_loop, fit_vocabulary, open_start, read_config
from .recipes import format_recipe, legacy_recipe_settings
from .settings import MAY_CHANGE, PretrainingSettings, make_phases
from .summary import export_model, fill_masks, print_results
from .training import PretrainingInputs, PretrainingTrainer


def run(
    settings: PretrainingSettings, callbacks: Sequence[Any] = (), *, is_temporary: bool = False
) -> None:
    """Starts or resumes a pre-training run, and prints the results.

    If a signal interrupts training, a checkpoint is saved before KeyboardInterrupt is raised.

    Args:
        settings: Settings of the run.
        callbacks: Keras callbacks; with several workers, each worker calls its own callbacks.
        is_temporary: Whether the caller deletes the model directory afterwards.
    """
    check_callbacks(callbacks)
    cluster = find_cluster(settings.worker_hosts, settings.task_index)
    if cluster is None:
        warn(uncoordinated_processes())
    with contextlib.ExitStack() as stack:
        devices = None
        if cluster is not None or settings.strategy == "multi_worker":
            # Connect the workers first, so that each one notices if another exits.
            devices = distribution.choose_strategy(
                settings.strategy,
                tpu=settings.tpu,
                cluster=cluster,
                wait_minutes=settings.worker_wait_minutes,
            )
        workers = devices.workers if devices else Workers()
        stack.enter_context(workers.connected())
        if not workers.is_chief:
            print_progress(
                f"This is {workers.name(workers.index)}; {workers.name(0)} prints progress and "
                "saves checkpoints."
            )
            stack.enter_context(progress_to(NOWHERE))
        local = ("model_dir", "cache_dir", "worker_hosts", "task_index", "worker_wait_minutes")
        flags = [item for item in settings.to_dict().items() if item[0] not in local]
        # Workers with different flags would wait for each other at different steps.
        numbers = {f"--{flag[0]}": zlib.crc32(repr(flag).encode()) for flag in flags}
        if different := workers.differences(numbers):
            raise ValueError(
                f"{listed(different, 3)}: the workers have different values. Run the same command "
                "on each worker."
            )
        directory = RunDirectory(
            settings.model_dir, is_chief=workers.is_chief, is_temporary=is_temporary
        )
        if not workers.is_chief:
            workers.wait()  # until the chief has written the shared files
        inputs = _open(settings, directory, devices, callbacks, stack)
        if workers.is_chief:
            workers.wait()
        if inputs is not None:
            train(inputs)
        workers.leave()  # waits until the chief has saved the results


def _open(
    settings: PretrainingSettings,
    directory: RunDirectory,
    devices: distribution.Distribution | None,
    callbacks: Sequence[Any],
    stack: contextlib.ExitStack,
) -> PretrainingInputs | None:
    """Opens the run; if it has finished, prints the results and returns ``None``."""
    directory.check_location(settings.files)
    recorded = {}
    if directory.has_progress():
        recorded = directory.saved_flags()
    else:
        check_outside("--model_dir", directory.path, [*settings.input, *settings.eval_input])
    is_done = directory.is_finished() and recorded["num_train_steps"] == settings.num_train_steps
    # A finished run may be on a read-only disk.
    if not is_done:
        directory.create()
        stack.enter_context(directory.locked())
    settings, start = open_start(settings, directory)
    legacy = legacy_recipe_settings(recorded)
    changed = directory.check_settings(settings.to_dict(), settings.may_change(is_done), legacy)
    if is_done:
        if changed:
            # Reading the inputs may write the index of the corpus.
            stack.enter_context(directory.locked())
            read_inputs(settings, directory, start, changed)
        print_progress(f"{directory.path} contains this run, which has finished.\n")
        print_results(read_json(directory.results), directory)
        return None
    _change_schedule(settings, directory, changed)
    # Connect to a TPU before reading the corpus, so that a failure is reported early.
    devices = devices or distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
    check_hosts_can_read(devices, settings.input_format)
    print_progress(f"Devices: {devices.description}.", flush=True)
    device_type = devices.device_type
    jit_compile = should_use_xla(settings.jit_compile, device_type)
    stack.enter_context(
        training_in_process(
            num_replicas=devices.strategy.num_replicas_in_sync,
            is_rewritten=is_rewritten(settings.precision, device_type, jit_compile),
            deterministic=settings.deterministic,
        )
    )
    read = read_inputs(settings, directory, start, changed)
    inputs = PretrainingInputs(settings, directory, devices, callbacks, *read, start)
    _describe(inputs)
    return inputs


def _change_schedule(
    settings: PretrainingSettings, directory: RunDirectory, changed: Sequence[str]
) -> None:
    """Validates, prints and records the changes of the schedule."""
    changed = [name for name in changed if name in MAY_CHANGE[SCHEDULE]]
    if not changed:
        return
    step, last, before = directory.newest_step(), settings.num_train_steps, directory.saved_flags()
    if last < step:
        raise ValueError(
            f"--num_train_steps={last}: expected at least {step:,}, the number of steps that "
            f"the run in {directory.path} has completed. Increase it, or use another "
            "--model_dir."
        )
    previous = dataclasses.replace(settings, **{name: before[name] for name in changed})
    if len(make_phases(settings)) != len(make_phases(previous)):
        raise ValueError(
            f"--num_train_steps={last} changes how many phases of --phases={settings.phases} have "
            f"steps in the run {directory.path}. Use a different number of steps."
        )
    values = {name: getattr(settings, name) for name in changed}
    for name, value in values.items():
        print_progress(f"From step {step:,}: --{name}={value} (was {before[name]}).", flush=True)
    directory.record_changes(step, values)


def _describe(inputs: PretrainingInputs) -> None:
    """Writes the model's description, checks records, and prints a summary."""
    settings, data, config = inputs.settings, inputs.data, inputs.config
    phase, is_chief = make_phases(settings)[0], inputs.devices.workers.is_chief
    if is_chief:
        inputs.describe_model(inputs.directory.path)
    check_records(settings, data, len(inputs.tokenizer.vocab), config.type_vocab_size, phase)
    if is_chief and isinstance(data.train, Corpus):
        lines = describe_rows(data.train, inputs.tokenizer, make_row_options(settings, phase))
        print_progress(*lines, sep="\n", flush=True)
    if flags := format_recipe(settings.recipe, settings.to_dict()):
        print_progress(f"--recipe={settings.recipe}: {flags}", flush=True)
    print_progress(
        f"Model: {settings.bert_config or settings.init_checkpoint}, "
        f"{parameter_count(config, settings.nsp):,} parameters, vocabulary "
        f"{config.vocab_size:,}, {settings.precision}.",
        flush=True,
    )


def read_inputs(
    settings: PretrainingSettings,
    directory: RunDirectory,
    start: Checkpoint | None,
    moved: Sequence[str],
) -> tuple[PretrainingData, BertTokenizer, BertConfig]:
    """Opens the data, tokenizer and config, and checks that they are those of the run.

    ``moved`` contains the flags whose paths have changed since the run started.
    """
    config = read_config(settings, start)
    data = open_data(settings, directory)
    size = min(settings.vocab_size or config.vocab_size, config.vocab_size)
    vocab = load_or_learn_vocabulary(settings, data, size, directory, start)
    config = fit_vocabulary(settings, config, vocab)
    fingerprints = {
        **data.fingerprints,
        "--vocab_file": fingerprint(vocab),
        "--bert_config": fingerprint(config.to_dict()),
    }
    if "vocab_file" in moved and settings.vocab_file:  # else vocab is the run's vocabulary
        fingerprints["--vocab_file"] = fingerprint(load_vocabulary(settings.vocab_file))
    # A resumed run does not need its initial checkpoint, which may have been deleted.
    if settings.init_checkpoint and ("init_checkpoint" in moved or not directory.has_progress()):
        first = open_checkpoint(settings.init_checkpoint)
        fingerprints["--init_checkpoint"] = first.fingerprint()
    directory.check_inputs(fingerprints)
    read = Tokenization(tuple(vocab), bool(settings.do_lower_case))
    if start is not None and start.tokenization is not None:
        read = start.tokenization
    tokenizer = read.with_special_tokens(settings.special_tokens_in_texts).to_tokenizer()
    return data, tokenizer, config


def train(inputs: PretrainingInputs) -> None:
    """Trains and exports the model, and writes and prints the results."""
    settings, directory = inputs.settings, inputs.directory
    loop = build_loop(settings, inputs.config, inputs.devices)
    training = PretrainingTrainer(inputs, loop)
    result = training.finish()
    if not training.workers.is_chief:
        training.callbacks.hooks.on_train_end()
        return
    if settings.export:
        export_model(loop.model, inputs.tokenizer, training.phases, directory.export)
    sentences = first_sentences(inputs.data.evaluated)
    results = {
        "step": training.step,
        "objective": settings.objective,
        "parameters": parameter_count(inputs.config, settings.nsp),
        "trained_tokens": _trained_tokens(training),
        "held_out": inputs.data.is_held_out,
        "evaluation": result._asdict() if result is not None else {},
        "best": training.best,
        "filled_masks": fill_masks(loop.model, inputs.tokenizer, sentences),
        "export": directory.export if settings.export else None,
    }
    # Written last, because this file marks the run as finished.
    write_json(directory.results, results)
    remove(directory.progress)
    # Called last, because callbacks such as EarlyStopping may change the weights here.
    training.callbacks.hooks.on_train_end()
    print_progress()
    print_results(results, directory)


def _trained_tokens(training: PretrainingTrainer) -> int | None:
    """Returns the number of tokens trained on, with padding; ``None`` with initial weights."""
    if training.settings.init_checkpoint:
        return None
    return sum(
        (min(training.step, phase.last_step) - phase.first_step) * phase.rows * phase.max_seq_length
        for phase in training.phases
        if phase.first_step < training.step
    )
