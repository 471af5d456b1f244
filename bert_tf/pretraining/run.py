"""A pre-training run, from its model directory to its results: its stages."""

import contextlib
import dataclasses
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint, Tokenization
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.config import PRESETS, BertConfig
from bert_tf.files import check_outside, read_json, read_json_object, remove, write_json
from bert_tf.pipelines.pretraining import corpus_lines
from bert_tf.pipelines.sources import Corpus
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training import distribution
from bert_tf.training.distribution import Workers, find_cluster
from bert_tf.training.loop import BadStepError, StepResults
from bert_tf.training.progress import Progress, Summaries
from bert_tf.training.run_directory import RunDirectory, fingerprint
from bert_tf.training.trainer import Callbacks, Trainer, check_callbacks

from .cost import parameter_count
from .data import (
    Batches,
    PretrainingData,
    check_hosts_can_read,
    check_records,
    first_sentences,
    load_or_learn_vocabulary,
    open_data,
)
from .model import (
    build_loop,
    fit_vocabulary,
    initialise_pretrainer,
    open_start,
    pretrainer_spec,
    read_config,
)
from .objective import PretrainingLoop, training_result
from .recipes import Phase, as_flags, phases_of
from .results import export_model, fill_masks, show
from .saving import Position, Saving
from .settings import MAY_DIFFER, PATHS, SCHEDULE, PretrainingSettings

_SHOWN_WAIT = 0.05
_EVAL_STEPS_WHILE_TRAINING = 20


def run(
    settings: PretrainingSettings, callbacks: Sequence[Any] = (), *, is_temporary: bool = False
) -> None:
    """Does what is left to do of the run that the settings describe, and prints its results.

    ``callbacks`` are Keras'; of several workers each calls its own. ``is_temporary``: the model
    directory is gone after it. A run that is stopped, by KeyboardInterrupt, has kept a checkpoint.
    """
    check_callbacks(callbacks)
    cluster = find_cluster(settings.worker_hosts, settings.task_index)
    with contextlib.ExitStack() as stack:
        devices = None
        if cluster is not None or settings.strategy == "multi_worker":
            # The workers meet first: from then on all of them hear of one that ends.
            devices = distribution.choose_strategy(
                settings.strategy, tpu=settings.tpu, cluster=cluster
            )
        workers = devices.workers if devices else Workers()
        if not workers.is_chief:
            print(f"This is {workers.name(workers.index)}; {workers.name(0)} prints and writes.")
            stack.enter_context(
                contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w")))
            )
        stack.enter_context(workers.connected())
        own = ("model_dir", "cache_dir", "worker_hosts", "task_index")
        flags = {name: value for name, value in settings.to_dict().items() if name not in own}
        # One that differs would wait for another step.
        workers.check_same(zlib.crc32(repr(flags).encode()), "flags")
        directory = RunDirectory(settings.model_dir, is_chief=workers.is_chief)
        directory.is_temporary = is_temporary
        if not workers.is_chief:
            workers.wait()  # until the chief has written what all of them read
        begun = _begin(settings, directory, devices, stack)
        if workers.is_chief:
            workers.wait()
        if begun is not None:
            begun.finish(callbacks)
        workers.wait()  # none ends before the chief has written


def _begin(
    settings: PretrainingSettings,
    directory: RunDirectory,
    devices: distribution.Distribution | None,
    stack: contextlib.ExitStack,
) -> "_PretrainingRun | None":
    """Opens what the run reads and writes; shows it and returns None where it is finished."""
    directory.check_place(
        {
            f"--{name}": getattr(settings, name)
            for name in sorted(PATHS)
            if name != "bert_config" or settings.bert_config not in PRESETS
        }
    )
    if not directory.has_progress():
        check_outside("--model_dir", directory.path, [*settings.input, *settings.eval_input])
    kept = directory.kept_flags() if directory.has_progress() else {}
    is_whole = directory.is_finished() and kept["num_train_steps"] == settings.num_train_steps
    # A finished run may be on a disk that cannot be written to.
    if not is_whole:
        directory.create()
        stack.enter_context(directory.locked())
    settings, start = open_start(settings, directory)
    # Of TFRecords no contents are compared.
    paths = PATHS - {"input", "eval_input"} if settings.input_format == "tfrecord" else PATHS
    schedule = {"gradient_accumulation_steps"} if is_whole else SCHEDULE
    moved = directory.check_settings(settings.to_dict(), MAY_DIFFER | schedule, paths)
    if is_whole:
        if moved:
            stack.enter_context(directory.locked())  # the corpus' index may be written
            _open_inputs(settings, directory, start, moved)
        print(f"{directory.path} holds this run, finished.\n")
        show(read_json(directory.results), directory)
        return None
    if kept:
        _change_schedule(settings, kept, directory)
    return _PretrainingRun(settings, directory, devices, start, moved)


def _change_schedule(
    settings: PretrainingSettings, kept: dict[str, Any], directory: RunDirectory
) -> None:
    """Says and keeps what of the schedule is another than before; refuses what cannot be."""
    before = {name: kept[name] for name in sorted(SCHEDULE)}
    changed = {name: getattr(settings, name) for name in before}
    changed = {name: value for name, value in changed.items() if value != before[name]}
    if not changed:
        return
    step, last = directory.newest_step(), settings.num_train_steps
    if last < step:
        raise ValueError(
            f"--num_train_steps={last} is less than the {step:,} steps that the run in "
            f"{directory.path} has made: give as many or more, or name another --model_dir."
        )
    if len(phases_of(settings)) != len(phases_of(dataclasses.replace(settings, **before))):
        raise ValueError(
            f"--num_train_steps={last} leaves --phases={settings.phases} another number of phases "
            f"that have steps than the run in {directory.path} has: give another number."
        )
    for name, value in changed.items():
        print(f"From step {step:,} on: --{name}={value} (was {before[name]}).", flush=True)
    directory.keep_changes(step, changed)


def _open_inputs(
    settings: PretrainingSettings,
    directory: RunDirectory,
    start: Checkpoint | None,
    moved: Sequence[str],
) -> tuple[PretrainingData, list[str], BertConfig]:
    """Opens the data, the vocabulary and the config, and checks that they are the run's.

    ``moved`` are the flags that name other paths than at the start.
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
    if "vocab_file" in moved and settings.vocab_file:  # a start of its own has been taken before it
        fingerprints["--vocab_file"] = fingerprint(load_vocabulary(settings.vocab_file))
    # Once the run has a checkpoint of its own, the one that it started from may be gone.
    if settings.init_checkpoint and ("init_checkpoint" in moved or not directory.has_progress()):
        first = open_checkpoint(settings.init_checkpoint)
        fingerprints["--init_checkpoint"] = first.fingerprint()
    directory.check_inputs(fingerprints)
    return data, vocab, config


class _PretrainingRun(Trainer):
    """The state that the stages of a run share: data, model, loop, checkpoints."""

    loop: PretrainingLoop

    def __init__(
        self,
        settings: PretrainingSettings,
        directory: RunDirectory,
        devices: distribution.Distribution | None,
        start: Checkpoint | None,
        moved: Sequence[str],
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.phases = phases_of(settings)
        # A TPU that cannot be reached is told before the corpus is read.
        self.devices = devices or distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
        super().__init__(self.devices.workers, is_temporary=directory.is_temporary)
        check_hosts_can_read(self.devices, settings.input_format)
        print(f"Devices: {self.devices.description}.", flush=True)
        if settings.deterministic:
            tf.config.experimental.enable_op_determinism()
        self.data, vocab, self.config = _open_inputs(settings, directory, start, moved)
        lower = bool(settings.do_lower_case)
        self.tokenization = Tokenization(tuple(vocab), lower)
        if self.workers.is_chief:
            self._describe(directory.path)
        check_records(settings, self.data, len(vocab), self.phases[0])
        self.tokenizer = BertTokenizer(vocab, do_lower_case=lower)
        if self.workers.is_chief and isinstance(self.data.train, Corpus):
            names = ("masking", "short_seq_prob", "pairs", "seed")
            rows = {name: getattr(settings, name) for name in names}
            rows["max_seq_length"] = self.phases[0].max_seq_length
            print(*corpus_lines(self.data.train, self.tokenizer, **rows), sep="\n", flush=True)
        if flags := as_flags(settings.recipe, settings.to_dict()):
            print(f"--recipe={settings.recipe}: {flags}", flush=True)
        name = settings.bert_config or settings.init_checkpoint
        print(
            f"Model: {name}, {parameter_count(self.config, settings.nsp):,} "
            f"parameters, vocabulary {self.config.vocab_size:,}, {settings.precision}.",
            flush=True,
        )
        self.start = start
        self.summaries = Summaries(directory.logs if self.workers.is_chief else None)
        replicas = self.devices.strategy.num_replicas_in_sync
        self.data_batches = Batches(settings, self.data, self.tokenizer, replicas)

    def _describe(self, path: str) -> None:
        spec = pretrainer_spec(self.settings.nsp)
        described = Checkpoint(path, "bert_tf", self.config, spec, tokenization=self.tokenization)
        model_directory.write_description(described, path)

    def finish(self, callbacks: Sequence[Any]) -> None:
        """Trains what is left, evaluates, exports, fills masks and writes the results."""
        self.loop = build_loop(self.settings, self.config, self.devices)
        self.saving = Saving(
            *(self.settings, self.directory, self.loop, self.workers, self.background),
            self._describe,
        )
        restored = self.saving.restore()
        if not restored and self.start is not None:
            for sentence in initialise_pretrainer(self.loop.model, self.start):
                print(sentence, flush=True)
        self.callbacks = self._make_callbacks(callbacks)
        self.callbacks.begin()
        judged, ended = self._done(restored)
        with self.interruption, self.background:
            if not judged:
                self._judge(self.phases[self.saving.position.phase])
            # A change of the steps makes no phase come again that was left.
            first = self.saving.position.phase
            for number, phase in list(enumerate(self.phases))[first:]:
                if self.loop.step < phase.last_step and not ended:
                    if self.saving.position.phase != number:
                        self.saving.position = Position(number)
                    self.number, self.phase = number, phase
                    label = f"Training at length {phase.max_seq_length}"
                    if self.train(label, phase.last_step):
                        print(f"A callback ended the training at step {self.loop.step:,}.")
                        break
        figures = self._evaluate(self.settings.max_eval_steps, self.phases[-1])
        if not self.workers.is_chief:
            self.callbacks.end()
            return
        if self.settings.export:
            export_model(self.loop.model, self.tokenizer, self.phases, self.directory.export)
        sentences = first_sentences(self.data.evaluated)
        results = {
            "step": self.loop.step,
            "objective": self.settings.objective,
            "parameters": parameter_count(self.config, self.settings.nsp),
            "trained_tokens": self._trained_tokens(),
            "held_out": self.data.is_held_out,
            "evaluation": figures,
            "best": self.saving.best,
            "filled_masks": fill_masks(self.loop.model, self.tokenizer, sentences),
            "export": self.directory.export if self.settings.export else None,
        }
        # Last: that it is there says that everything before is.
        write_json(self.directory.results, results)
        remove(self.directory.progress)
        # Not before: a callback may set other weights then, as EarlyStopping does.
        self.callbacks.end()
        print()
        show(results, self.directory)

    def _trained_tokens(self) -> int | None:
        """The tokens of all steps, with padding; ``None`` where the start saw others before."""
        if self.settings.init_checkpoint:
            return None
        return sum(
            (min(self.loop.step, phase.last_step) - phase.first_step)
            * phase.rows
            * phase.max_seq_length
            for phase in self.phases
            if phase.first_step < self.loop.step
        )

    def _make_callbacks(self, callbacks: Sequence[Any]) -> Callbacks:
        """Caller of the callbacks; an epoch lasts from checkpoint to checkpoint."""
        every = self.settings.save_checkpoints_steps
        if callbacks:
            with self.devices.strategy.scope():
                # The optimizer is for callbacks to look at.
                self.loop.model.compile(self.loop.optimizer, jit_compile=False)
        epochs = -(-self.phases[-1].last_step // every)
        return Callbacks(callbacks, self.loop.model, steps_per_epoch=every, epochs=epochs)

    @property
    def step(self) -> int:
        """The updates that are made."""
        return self.loop.step

    def batches(self) -> Iterator[Any]:
        """The batches of the phase from the position on."""
        reached = self.saving.position.reached
        return self.loop.distribute(self.data_batches.training(self.phase, self.number, reached))

    def next_pause(self) -> int:
        """The next step with a checkpoint."""
        return self.saving.next_due()

    def is_pause_due(self) -> bool:
        """True if it is time for a checkpoint."""
        return self.saving.is_due(self.phase)

    def note_end(self) -> None:
        """So that the same command goes on behind the training."""
        self._keep_progress(ended=self.step)

    def remedy(self, error: BadStepError) -> Exception:
        """Says what to do about a bad step."""
        self.background.wait()
        rate = f"--learning_rate={self.settings.learning_rate / 10:g}"
        said = f"go on from the checkpoint before it with {rate}"
        if not self.directory.has_progress():
            said = f"no checkpoint was saved before it, so begin anew with a lower rate, {rate}"
        return BadStepError(error.bad, said)

    def note(self, progress: Progress, results: StepResults, seconds: float | None) -> None:
        """Shows the results of some steps, and writes them for TensorBoard."""
        self.saving.position = self.saving.position.behind(results.cursors)
        steps = len(results.losses)
        result = training_result(results)
        figures = result._asdict()
        del figures["cursors"], figures["waited"], figures["predictions"]
        step, tokens = figures.pop("step"), figures.pop("tokens")
        predicts = "MLM" if self.settings.objective == "mlm" else "next-token"
        accuracy = f"{result.masked_lm_accuracy:.3f}"
        shown = {"loss": f"{result.loss:.3f}", f"{predicts} accuracy": accuracy}
        if self.settings.nsp:
            shown["NSP accuracy"] = f"{result.next_sentence_accuracy:.3f}"
        if seconds is not None:
            speed = results.speed(
                seconds=seconds,
                tokens=tokens,
                examples=steps * self.phase.rows,
                devices=self.devices.strategy.num_replicas_in_sync,
            )
            figures |= speed
            shown["tokens/s"] = f"{speed['tokens_per_second']:,.0f}"
            if (share := speed.get("input_wait_share", 0.0)) >= _SHOWN_WAIT:
                shown["waiting for input"] = f"{share:.0%}"
        progress.update(step, shown)
        self.summaries.write("train", step, figures)
        self.callbacks.end_step(step - 1, result.loss, steps=steps, others=figures)

    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Saves, then evaluates what was saved."""
        if not self.saving.save():
            return
        self.summaries.flush()
        # Skip the evaluation when the user interrupted.
        if not stops:
            figures = self._judge(self.phases[self.saving.position.phase])
            every, last = self.settings.save_checkpoints_steps, self.phases[-1].last_step
            ends = ends or self.callbacks.stops  # which may be for what the evaluation has shown
            if ends or self.loop.step % every == 0 or self.loop.step == last:
                self.callbacks.end_epoch(_with_loss(figures))

    def _judge(self, phase: Phase) -> dict[str, float]:
        """Evaluates what has been saved, and keeps it where it is the best."""
        figures = self._evaluate(_EVAL_STEPS_WHILE_TRAINING, phase)
        if figures:
            self.summaries.write("eval", self.loop.step, figures)
            self.saving.keep_best(_loss_of(figures))
        self._keep_progress(evaluated=self.loop.step)
        return figures

    def _done(self, restored: bool) -> tuple[bool, bool]:
        """True if the step has its evaluation, if one is due; whether a callback ended there.

        The process before may have been killed or stopped between a checkpoint and its evaluation.
        """
        step = self.loop.step
        done = {name: at for name, at in self._progress().items() if at == step}
        last = self.phases[self.saving.position.phase].last_step
        is_due = restored and step in (last, self.saving.next_due(-1))
        own = [not is_due or "evaluated" in done, "ended" in done]
        told = self.workers.gather(own)[0]  # the chief's: it alone writes that file
        if self.workers.is_chief and done != self._progress():
            write_json(self.directory.progress, done)  # the rest is of checkpoints that are gone
        return bool(told[0]), bool(told[1])

    def _progress(self) -> dict[str, Any]:
        path = self.directory.progress
        return read_json_object(path) if tf.io.gfile.exists(path) else {}

    def _keep_progress(self, **done: int) -> None:
        if self.workers.is_chief:
            write_json(self.directory.progress, {**self._progress(), **done})

    def _evaluate(self, max_steps: int, phase: Phase) -> dict[str, float]:
        """Evaluates on batches of a phase, if there is anything to evaluate on."""
        if not self.data.evaluated:
            return {}
        self.callbacks.begin_evaluation()
        figures = self.loop.evaluate(self.data_batches.evaluation(phase), max_steps)._asdict()
        if not self.data.evaluates_next_sentence:
            figures |= dict.fromkeys((n for n in figures if n.startswith("next_sentence")), 0)
        self.callbacks.end_evaluation(_with_loss(figures))
        return figures


def _with_loss(figures: dict[str, float]) -> dict[str, float]:
    """As callbacks hear of an evaluation: with the loss by the name that Keras has for it."""
    return {"loss": _loss_of(figures), **figures} if figures else {}


def _loss_of(figures: dict[str, float]) -> float:
    """The loss that decides which weights are the best: what is trained for."""
    return figures["masked_lm_loss"] + figures["next_sentence_loss"]
