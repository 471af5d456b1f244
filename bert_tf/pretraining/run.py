"""A pre-training run, from its model directory to its results: its stages, and how it resumes."""

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import flag_fields
from bert_tf.config import PRESETS, BertConfig
from bert_tf.files import read_json, write_json
from bert_tf.interchange import model_directory
from bert_tf.interchange.checkpoint import Checkpoint, Tokenization
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines.vocabulary import MASK_TOKEN, casing_note, load_vocabulary
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.saved_models.fill_mask import fill_masks as fill
from bert_tf.saved_models.fill_mask import masked_lm_logits
from bert_tf.saved_models.served import ExportOptions, Served
from bert_tf.training import checkpoints, distribution, loop
from bert_tf.training.background_saving import BackgroundSaving
from bert_tf.training.bad_steps import BadStepError, Trend
from bert_tf.training.progress import Interruption, Progress, Summaries
from bert_tf.training.run_directory import RunDirectory, fingerprint
from bert_tf.training.throughput import throughput

from .cost import estimate_step, parameter_count
from .data import (
    PretrainingData,
    check_records,
    evaluation_batches,
    first_sentences,
    load_or_learn_vocabulary,
    open_data,
    predictions_per_row,
    report_share,
    training_batches,
)
from .model import (
    build_loop,
    fit_vocabulary,
    initialise_pretrainer,
    open_start,
    pretrainer_spec,
    read_config,
)
from .settings import MAY_DIFFER, PATHS, Phase, PretrainingSettings, parse_phases

_SHOWN_GUESSES = 5


def _hide_word(sentence: str) -> tuple[str, str] | None:
    """Hides a word, of four letters or more, near the middle of a sentence: the text, and the word.

    >>> _hide_word("The court of appeals has jurisdiction over civil cases.")
    ('The court of appeals has [MASK] over civil cases.', 'jurisdiction')
    """
    if MASK_TOKEN in sentence:  # a text about BERT
        return None
    words = list(re.finditer(r"\b[A-Za-z]{4,}\b", sentence))
    if not words:
        return None
    middle = len(sentence) / 2
    word = min(words, key=lambda match: abs((match.start() + match.end()) / 2 - middle))
    return sentence[: word.start()] + MASK_TOKEN + sentence[word.end() :], word.group()


def _fill_masks(
    model: BertPretrainer, tokenizer: BertTokenizer, sentences: Sequence[str]
) -> list[dict[str, Any]]:
    """Lets the model guess a hidden word of each sentence: texts, words, guesses, probabilities."""
    hidden = [pair for pair in map(_hide_word, sentences) if pair is not None]
    if not hidden:
        return []
    served = Served(
        model=model,
        call=lambda inputs: model(inputs, training=False),
        encode=lambda inputs: model.encoder(inputs, training=False),
        tokenizer=tokenizer,
        max_seq_length=model.config.max_position_embeddings,
        options=ExportOptions(top_k=_SHOWN_GUESSES),
        guess=lambda states: masked_lm_logits(model.masked_lm, states),
    )
    filled = fill(served, tf.constant([text for text, _ in hidden]))
    # (B, M, K): the first mask's guesses; a text too long for the positions may have lost its mask.
    return [
        {
            "text": text,
            "word": word,
            "guesses": [guess.decode() for guess in filled["tokens"][row, 0].numpy()],
            "probabilities": filled["scores"][row, 0].numpy().tolist(),
        }
        for row, (text, word) in enumerate(hidden)
        if filled["counts"][row] == 1
    ]


def _bar(share: float, width: int = 30) -> str:
    return ("█" * round(share * width)).ljust(width, "·")


def _show(results: dict[str, Any], directory: RunDirectory) -> None:
    """Prints the results of a finished run, and the commands that come next."""
    evaluation = results["evaluation"]
    if evaluation:
        rows = [("masked LM", "masked_lm", "the most frequent token")]
        if evaluation["next_sentence_rows"]:
            rows.append(("next sentence", "next_sentence", "the majority label"))
        where = "Held-out accuracy" if results["held_out"] else "Accuracy on the training records"
        print(
            f"{where} after {results['step']:,} steps, "
            f"{evaluation['masked_lm_predictions']:,} predictions:"
        )
        for label, key, guess in rows:
            accuracy = evaluation[f"{key}_accuracy"]
            baseline = evaluation[f"{key}_baseline"]
            print(f"  {label:<14}{accuracy:6.1%}  {_bar(accuracy)}")
            print(f"  {'':<14}{baseline:6.1%}  {_bar(baseline)}  always guessing {guess}")
    if results.get("best"):  # which earlier releases did not keep
        print(
            f"The best evaluation while training was after step {results['best']['step']:,} (loss "
            f"{results['best']['loss']:.3f}); its weights: {directory.best}"
        )
    if results["filled_masks"]:
        print("\nMasks filled in held-out sentences:")
        for filled in results["filled_masks"]:
            guesses = ", ".join(
                f"{guess} {probability:.0%}"
                for guess, probability in zip(
                    filled["guesses"], filled["probabilities"], strict=True
                )
            )
            print(f"  {filled['text']}\n    guesses: {guesses}   (was: {filled['word']})")
    # A release that had no --export wrote no such key, and always exported.
    is_exported = results.get("export", directory.export) is not None
    print(
        f"\nResults: {directory.results}\n"
        + (f"SavedModel: {directory.export}\n" if is_exported else "")
        + f"\nWhat comes next:\n  tensorboard --logdir {directory.logs}\n"
        + (
            f"  saved_model_cli show --dir {directory.export} --tag_set serve --all\n"
            if is_exported
            else f"  python -m bert_tf.export --checkpoint={directory.path} --output=...\n"
        )
        + "  python -m bert_tf.pretrain --help"
    )


_REPORT_SECONDS = 2.0
_MAX_STEPS_PER_LOOP = 500
_SHOWN_WAIT = 0.05
_EVAL_STEPS_WHILE_TRAINING = 20


def run(settings: PretrainingSettings) -> None:
    """Does what is left to do of the run that the settings describe, and prints its results.

    Raises:
        KeyboardInterrupt: the run was stopped; a checkpoint is kept.
    """
    distribution.check_one_worker()
    directory = RunDirectory(settings.model_dir)
    directory.check_place(
        {
            f"--{name}": getattr(settings, name)
            for name in sorted(PATHS)
            if name != "bert_config" or settings.bert_config not in PRESETS
        }
    )
    with contextlib.ExitStack() as stack:
        # A finished run may be on a disk that cannot be written to.
        if not directory.is_finished():
            directory.create()
            stack.enter_context(directory.locked())
        settings, start = open_start(settings, directory)
        # Of TFRecords no contents are compared.
        paths = PATHS - {"input", "eval_input"} if settings.input_format == "tfrecord" else PATHS
        moved = directory.check_settings(
            settings.to_dict(), MAY_DIFFER, paths, flag_fields.defaults(PretrainingSettings)
        )
        if directory.is_finished():
            if moved:
                stack.enter_context(directory.locked())  # the corpus' index may be written
                _open_inputs(settings, directory, start, moved)
            print(f"{directory.path} holds this run, finished.\n")
            _show(read_json(directory.results), directory)
            return
        _PretrainingRun(settings, directory, start, moved).finish()


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
    vocab = load_or_learn_vocabulary(settings, data, config.vocab_size, directory, start)
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
        first = open_checkpoint(settings.init_checkpoint, settings.allow_pickle)
        fingerprints["--init_checkpoint"] = first.fingerprint()
    directory.check_inputs(fingerprints)
    return data, vocab, config


@dataclasses.dataclass
class _Position:
    """Where the data of a phase goes on: (epoch, pool, row) of the next row."""

    phase: int = 0
    start: tuple[int, int, int] = (0, 0, 0)


class _PretrainingRun:
    """The state that the stages of a run share: data, model, loop, checkpoints."""

    def __init__(
        self,
        settings: PretrainingSettings,
        directory: RunDirectory,
        start: Checkpoint | None,
        moved: Sequence[str],
    ) -> None:
        self.settings = settings
        self.directory = directory
        self.interruption = Interruption()
        self.phases = parse_phases(settings.phases, settings.num_train_steps)
        # A TPU that cannot be reached is told before the corpus is read.
        self.devices = distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
        print(f"Devices: {self.devices.description}.", flush=True)
        if settings.deterministic:
            tf.config.experimental.enable_op_determinism()
        self.data, vocab, self.config = _open_inputs(settings, directory, start, moved)
        lower = bool(settings.do_lower_case)
        if note := casing_note(vocab, lower):
            print(note, flush=True)
        self.tokenization = Tokenization(tuple(vocab), lower)
        self._describe(directory.path)
        if self.data.records:
            check_records(settings, self.data, len(vocab), self.phases[0].max_seq_length)
        self.tokenizer = BertTokenizer(vocab, do_lower_case=lower)
        report_share(settings, self.data, self.tokenizer, self.phases[0])
        self.loop = build_loop(settings, self.config, self.devices)
        name = settings.bert_config or settings.init_checkpoint
        print(
            f"Model: {name}, {parameter_count(self.config, settings.nsp):,} "
            f"parameters, vocabulary {self.config.vocab_size:,}, {settings.precision}.",
            flush=True,
        )
        self.start = start
        self.summaries = Summaries(directory.logs)
        # By length: the same batches each time, and seconds to build.
        self.evaluated: dict[int, tf.data.Dataset | None] = {}
        self.position = _Position()
        self.saved_step = -1
        self.saved_at = time.monotonic()
        self.rewinds = 0
        self.saving = BackgroundSaving()
        self.best: dict[str, Any] = {}

    def _describe(self, path: str) -> None:
        spec = pretrainer_spec(self.settings.nsp)
        model_directory.write_description(path, self.config, spec, tokenization=self.tokenization)

    def finish(self) -> None:
        """Trains what is left, evaluates, exports, fills masks and writes the results."""
        self._restore()
        with self.interruption, self.saving:
            for number, phase in enumerate(self.phases):
                if self.loop.step < phase.last_step:
                    if self.position.phase != number:
                        self.position = _Position(number)
                    self._train(number, phase)
        figures = self._evaluate(self.settings.max_eval_steps, self.phases[-1].max_seq_length)
        if self.settings.export:
            self._export()
        sentences = [] if self.data.held_out is None else first_sentences(self.data.held_out)
        results = {
            "step": self.loop.step,
            "parameters": parameter_count(self.config, self.settings.nsp),
            "held_out": self.data.is_held_out,
            "evaluation": figures,
            "best": self.best,
            "filled_masks": _fill_masks(self.loop.model, self.tokenizer, sentences),
            "export": self.directory.export if self.settings.export else None,
        }
        # Last: that it is there says that everything before is.
        write_json(self.directory.results, results)
        print()
        _show(results, self.directory)

    def _export(self) -> None:
        # One without results is a killed run's, and on an object store perhaps half of one.
        remove_export(self.directory.export)
        # Positions beyond were never trained.
        longest = max(phase.max_seq_length for phase in self.phases)
        export(
            self.loop.model,
            self.directory.export,
            tokenizer=self.tokenizer,
            options=ExportOptions(max_seq_length=longest),
        )

    # --- Training --------------------------------------------------------------------------

    def _batches(self, number: int, phase: Phase) -> Iterator[Any]:
        """The batches of a phase from the position on, for the loop."""
        batches = training_batches(
            self.settings, self.data, self.tokenizer, phase, number, self.position.start
        )
        return self.loop.distribute(batches)

    def _train(self, number: int, phase: Phase) -> None:
        settings = self.settings
        iterator = self._batches(number, phase)
        label = f"Training at length {phase.max_seq_length}"
        progress = Progress(label, phase.last_step, "steps", self.loop.step)
        steps_per_loop = settings.steps_per_loop or 1
        compiled = False
        while self.loop.step < phase.last_step:
            left = phase.last_step - self.loop.step
            until_save = -self.loop.step % settings.save_checkpoints_steps
            steps = min(steps_per_loop, left, until_save or settings.save_checkpoints_steps)
            began = time.monotonic()
            try:
                result = self.loop.train(iterator, steps)
            except BadStepError as error:
                if settings.on_bad_step != "rewind":
                    raise
                progress.say(f"{error.bad}.")
                self._rewind(number, error)
                iterator = self._batches(number, phase)
                continue
            seconds = time.monotonic() - began
            epoch, pool, row = result.cursor
            self.position = _Position(number, (epoch, pool, row + 1))
            # The first call's time is mostly compilation, and says nothing of the next.
            if not settings.steps_per_loop and compiled:
                wanted = round(steps * _REPORT_SECONDS / seconds)
                steps_per_loop = min(max(1, wanted), 2 * steps_per_loop, _MAX_STEPS_PER_LOOP)
            for bad in result.skipped:
                progress.say(f"{bad}: skipped.")
            if len(result.skipped) < steps:
                self._report(progress, phase, result, steps, seconds if compiled else None)
            compiled = True
            if self.interruption.requested or self._is_checkpoint_due(phase):
                self._save()
            if self.interruption.requested:
                progress.close()
                self.saving.wait()
                print(f"Stopped at step {self.loop.step:,}. The same command goes on from there.")
                raise KeyboardInterrupt
        progress.close()

    def _report(
        self,
        progress: Progress,
        phase: Phase,
        result: loop.TrainingResult,
        steps: int,
        seconds: float | None,
    ) -> None:
        """Shows and writes the figures of some steps; no speed without the seconds they took."""
        figures = result._asdict()
        del figures["cursor"], figures["skipped"]
        waited = figures.pop("waited")
        step = figures.pop("step")
        tokens = figures.pop("tokens")
        shown = {"loss": f"{result.loss:.3f}", "MLM accuracy": f"{result.masked_lm_accuracy:.3f}"}
        if self.settings.nsp:
            shown["NSP accuracy"] = f"{result.next_sentence_accuracy:.3f}"
        if seconds is not None:
            settings, length = self.settings, phase.max_seq_length
            cost = estimate_step(
                self.config,
                batch_size=settings.train_batch_size,
                max_seq_length=length,
                max_predictions_per_seq=predictions_per_row(settings, length),
                nsp=settings.nsp,
            )
            speed = throughput(
                seconds=seconds,
                waited=waited,
                tokens=tokens,
                examples=steps * settings.train_batch_size,
                flops=steps * cost.flops,
                devices=self.devices.strategy.num_replicas_in_sync,
                peak_tflops=settings.peak_tflops,
            )
            figures |= speed
            shown["tokens/s"] = f"{speed['tokens_per_second']:,.0f}"
            if speed["input_wait_share"] >= _SHOWN_WAIT:
                shown["waiting for input"] = f"{speed['input_wait_share']:.0%}"
            if "mfu" in speed:
                shown["MFU"] = f"{speed['mfu']:.1%}"
        progress.update(step, shown)
        self.summaries.write("train", step, figures)

    def _is_checkpoint_due(self, phase: Phase) -> bool:
        minutes = (time.monotonic() - self.saved_at) / 60
        return (
            self.loop.step % self.settings.save_checkpoints_steps == 0
            or self.loop.step == phase.last_step
            or minutes >= self.settings.save_checkpoints_minutes
        )

    # --- Checkpoints -----------------------------------------------------------------------

    def _save(self) -> None:
        if self.loop.step == self.saved_step:
            return
        position = {**dataclasses.asdict(self.position), "trend": self.loop.trend}
        self.saving.save(
            self.directory.checkpoints,
            self.loop.step,
            self.loop.state(),
            position,
            keep=self.settings.keep_checkpoints,
        )
        self.summaries.flush()
        self.saved_step = self.loop.step
        self.saved_at = time.monotonic()
        self.rewinds = 0
        # Who asked to stop is not kept waiting.
        if not self.interruption.requested:
            phase = self.phases[self.position.phase]
            figures = self._evaluate(_EVAL_STEPS_WHILE_TRAINING, phase.max_seq_length)
            if figures:
                self.summaries.write("eval", self.loop.step, figures)
                self._keep_best(figures["masked_lm_loss"] + figures["next_sentence_loss"])

    def _keep_best(self, loss: float) -> None:
        """Keeps the weights if this is the best evaluation of its phase: lengths differ in theirs.

        They are in a model directory of their own, so that they load as the run's newest do.
        """
        phase, step = self.position.phase, self.loop.step
        if self.best and self.best["phase"] == phase and self.best["loss"] <= loss:
            return
        self.best = {"step": step, "phase": phase, "loss": loss}
        tf.io.gfile.makedirs(self.directory.best)
        self._describe(self.directory.best)
        weights = {
            name: value for name, value in self.loop.state().items() if name.startswith("model/")
        }
        folder = os.path.join(self.directory.best, model_directory.CHECKPOINTS)
        self.saving.save(folder, step, weights, self.best, keep=1, at_same_step=True)

    def _restore_best(self) -> None:
        folder = os.path.join(self.directory.best, model_directory.CHECKPOINTS)
        try:
            found = checkpoints.find_latest(folder)
        except ValueError:
            print(f"{self.directory.best} is damaged: the next evaluation is the best so far.")
            found = None
        if found is not None and found.step > self.loop.step:
            checkpoints.delete_all(folder)  # it comes again
            found = None
        self.best = found.extra if found is not None else {}

    def _restore(self) -> None:
        restored = checkpoints.restore_latest(self.directory.checkpoints, self.loop.state())
        if restored is None:
            if self.start is not None:
                for sentence in initialise_pretrainer(self.loop.model, self.start):
                    print(sentence, flush=True)
            return
        for warning in restored.warnings:
            print(warning)
        position: dict[str, Any] = restored.extra
        epoch, pool, row = position["start"]
        self.position = _Position(position["phase"], (epoch, pool, row))
        # Earlier versions kept none.
        self.loop.trend = Trend(*position.get("trend", Trend()))
        self.saved_step = self.loop.step
        self._restore_best()
        print(f"Going on from the checkpoint at step {self.loop.step:,}.", flush=True)

    def _rewind(self, number: int, error: BadStepError) -> None:
        """Restores the newest checkpoint and skips the data up to behind a bad step's batch.

        Raises the error where no checkpoint of the phase is there, or this was done too often since
        the last one.
        """
        self.rewinds += 1
        if self.saved_step < 0 or self.rewinds > self.settings.max_bad_steps:
            raise error
        self.saving.wait()
        self._restore()
        if self.position.phase != number:
            raise error
        epoch, pool, row = error.bad.cursor
        self.position = _Position(number, (epoch, pool, row + 1))

    def _evaluate(self, max_steps: int, max_seq_length: int) -> dict[str, float]:
        if max_seq_length not in self.evaluated:
            self.evaluated[max_seq_length] = evaluation_batches(
                self.settings,
                self.data,
                self.tokenizer,
                max_seq_length,
                self.devices.strategy.num_replicas_in_sync,
            )
        batches = self.evaluated[max_seq_length]
        if batches is None:
            return {}
        figures = self.loop.evaluate(batches, max_steps)._asdict()
        if not self.data.evaluates_next_sentence:
            figures.update((name, 0) for name in figures if name.startswith("next_sentence"))
        return figures
