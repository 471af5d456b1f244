"""``--mode=eval``: a process next to a training, which evaluates its checkpoints as they come.

It reads the run's directory without its lock, and writes to MODEL_DIR/eval alone:

| path         | what                                                                         |
|--------------|------------------------------------------------------------------------------|
| flags.json   | what it evaluates: the run's settings; inputs.json is the run's, too         |
| corpus/      | the index of ``--eval_input``                                                |
| logs         | TensorBoard's event files                                                    |
| results.json | the figures of each checkpoint that it evaluated, and which was the best     |
| export/STEP  | the SavedModel of the best                                                   |
"""

import contextlib
import functools
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.files import read_json_object, write_json
from bert_tf.interchange import model_directory
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models.exporting import remove_export
from bert_tf.training import checkpoints, distribution
from bert_tf.training.loop import model_state
from bert_tf.training.pretraining import Evaluator
from bert_tf.training.progress import Progress, duration
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.summaries import Summaries
from bert_tf.training.workers import check_one_worker

from .data import check_hosts_can_read, open_evaluation_data
from .evaluation import HeldOut, loss_of
from .model import set_arithmetic
from .results import PREDICTED, export_model
from .rules import BY_CHANGE
from .saving import Position
from .settings import MAY_DIFFER, PATHS, PretrainingSettings, phases_of, settings_of_run

_POLL_SECONDS = 2.0
# Figures are compared over as many rows; what --change changes of a run, changes none.
_MAY_DIFFER = (MAY_DIFFER | BY_CHANGE) - {"max_eval_steps", "eval_batch_size"}


def evaluate(settings: PretrainingSettings, given: Collection[str]) -> None:
    """Evaluates a run's checkpoints, until it has ended or none came for ``--eval_timeout``.

    The run's own settings hold but for those that are ``given``; of these only such may differ as
    have nothing to do with data, model and figures.
    """
    check_one_worker()
    if settings.worker_hosts:
        raise ValueError("--mode=eval runs on one machine: leave --worker_hosts out.")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = RunDirectory(settings.model_dir)
        run.check_place({})
        if not _wait(run.has_progress, f"the first checkpoint in {run.path}", settings):
            raise TimeoutError(
                f"{settings.model_dir} got no checkpoint within {_timeout(settings)} "
                "(--eval_timeout): start the training, or name the --model_dir of one."
            )
        settings = settings_of_run(run.kept_flags(), run.flags, settings, given)
        run.compare_settings(settings.to_dict(), MAY_DIFFER, PATHS)
        directory = RunDirectory(run.evaluation)
        directory.check_place({})
        directory.create()
        with directory.locked("an evaluation"):
            directory.check_settings(settings.to_dict(), _MAY_DIFFER, PATHS)
            directory.check_inputs(read_json_object(run.inputs))
            _Evaluation(settings, run, directory).follow()
    except KeyboardInterrupt:
        print("Stopped. The same command evaluates the rest.", flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(has_come: Callable[[], bool], what: str, settings: PretrainingSettings) -> bool:
    """Waits for something, ``--eval_timeout`` at most; returns whether it came."""
    began = time.monotonic()
    is_said = False
    while not has_come():
        if time.monotonic() - began >= settings.eval_timeout * 60:
            return False
        if not is_said:
            print(f"Waiting for {what}, {_timeout(settings)} at most.", flush=True)
            is_said = True
        time.sleep(_POLL_SECONDS)
    return True


def _timeout(settings: PretrainingSettings) -> str:
    return duration(settings.eval_timeout * 60)


class _Evaluation:
    """The evaluation of a run's checkpoints, one after the other."""

    def __init__(
        self, settings: PretrainingSettings, run: RunDirectory, directory: RunDirectory
    ) -> None:
        self._settings = settings
        self._run = run
        self._directory = directory
        self._phases = phases_of(settings)
        devices = distribution.choose_strategy(settings.strategy, tpu=settings.tpu)
        check_hosts_can_read(devices, settings.input_format)
        print(f"Devices: {devices.description}.", flush=True)
        if settings.deterministic:
            tf.config.experimental.enable_op_determinism()
        data = open_evaluation_data(settings, run, directory.corpus)
        config, _ = model_directory.read_description(run.path)
        vocab = load_vocabulary(run.vocabulary)
        self._tokenizer = BertTokenizer(vocab, do_lower_case=bool(settings.do_lower_case))
        set_arithmetic(settings, devices.device_type)
        with devices.strategy.scope():
            self._model = BertPretrainer(config, nsp=settings.nsp)
        self._evaluator = Evaluator(self._model, devices.strategy)
        replicas = devices.strategy.num_replicas_in_sync
        self._held_out = HeldOut(settings, data, self._tokenizer, replicas)
        self._summaries = Summaries(directory.path)
        self._evaluated: dict[int, dict[str, Any]] = {}
        self._exported: int | None = None
        self._read_results()
        # The manifests of those that are of no use.
        self._skipped: set[str] = set()

    def _read_results(self) -> None:
        """Takes over what an earlier process evaluated, and which it exported."""
        path = self._directory.results
        if not tf.io.gfile.exists(path):
            return
        try:
            results = read_json_object(path)
            for one in results["checkpoints"]:
                step, phase, loss = int(one["step"]), int(one["phase"]), float(one["loss"])
                figures = {"step": step, "phase": phase, "loss": loss}
                self._evaluated[step] = {**one, **figures, "manifest": str(one["manifest"])}
            # By its name alone: the directory may be mounted elsewhere now.
            exported = os.path.basename(results["export"] or "")
            for step in self._evaluated:
                if exported == str(step):
                    self._exported = step
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is not what an evaluation writes: move it away to evaluate the "
                "checkpoints again."
            ) from error

    def follow(self) -> None:
        """Evaluates what is there and what comes, oldest first, to the end of the run."""
        while True:
            last = max(self._evaluated, default=0)
            _wait(
                lambda: self._run.is_finished() or bool(self._new()),
                f"a checkpoint after step {last:,}",
                self._settings,
            )
            # In this order: what was saved before the end is seen.
            is_finished = self._run.is_finished()
            if new := self._new():
                self._evaluate(*next(iter(new.items())))
            elif is_finished:
                print("The run is finished.")
                break
            else:
                print(
                    f"No checkpoint came for {_timeout(self._settings)} (--eval_timeout), and the "
                    "run is not finished: the same command resumes."
                )
                break
        if best := self._best():
            print(
                f"The best of {len(self._evaluated)} checkpoints is that of step "
                f"{best['step']:,}, with the loss {best['loss']:.3f}."
            )
        print(
            f"Results: {self._directory.results}\n"
            f"Curves of both: tensorboard --logdir {self._run.path}"
        )

    def _new(self) -> dict[int, str]:
        """The steps of checkpoints that are not evaluated, and their manifests; oldest first."""
        return {
            step: manifest
            for step, manifest in checkpoints.finished(self._run.checkpoints).items()
            if self._evaluated.get(step, {}).get("manifest") != manifest
            and manifest not in self._skipped
        }

    def _evaluate(self, step: int, manifest: str) -> None:
        """Evaluates a checkpoint, and exports it if it is the best; then its results are kept."""
        try:
            state = model_state(self._model)
            extra = checkpoints.restore(self._run.checkpoints, step, state, "model/")
        except checkpoints.UnusableError as error:
            print(f"Skipped the checkpoint of step {step:,}: {error}.", flush=True)
            self._skipped.add(manifest)
            return
        phase = Position.from_json(extra).phase
        max_steps = self._settings.max_eval_steps
        progress = Progress(f"Evaluating step {step:,}", max_steps, "batches")
        reporting = functools.partial(self._evaluator.evaluate, report=progress.update)
        length = self._phases[phase].max_seq_length
        figures = self._held_out.figures(reporting, max_steps, length)
        progress.close()
        loss = loss_of(figures)
        record = {"step": step, "phase": phase, "loss": loss, "manifest": manifest}
        self._evaluated[step] = {**record, "evaluation": figures}
        is_best = self._best() is self._evaluated[step]
        old = self._exported
        if is_best and self._settings.export:
            export_model(self._model, self._tokenizer, self._phases, self._export_path(step))
            self._exported = step
        elif old == step:  # of other weights, before the training began anew
            self._exported = None
        self._summaries.write("logs", step, {"loss": loss, **figures})
        self._write_results()
        if old is not None and old != self._exported:
            with contextlib.suppress(ValueError):  # what somebody put there stays
                remove_export(self._export_path(old))
        predicted = PREDICTED[self._settings.objective]
        accuracy = f"{figures['masked_lm_accuracy']:.1%}"
        shown = f"Step {step:,}: loss {loss:.3f}, {predicted} {accuracy}"
        if figures["next_sentence_rows"]:
            shown += f", next sentence {figures['next_sentence_accuracy']:.1%}"
        print(shown + (", the best so far." if is_best else "."), flush=True)

    def _best(self) -> Mapping[str, Any]:
        """The lowest loss of the last phase, as the losses of lengths differ; empty without any."""
        numbers = [one for one in self._evaluated.values() if math.isfinite(one["loss"])]
        return min(numbers, key=lambda one: (-one["phase"], one["loss"], one["step"]), default={})

    def _export_path(self, step: int) -> str:
        return os.path.join(os.path.dirname(self._directory.export), str(step))

    def _write_results(self) -> None:
        best = {key: value for key, value in self._best().items() if key != "evaluation"}
        export = None if self._exported is None else self._export_path(self._exported)
        evaluated = [self._evaluated[step] for step in sorted(self._evaluated)]
        results = {"best": best, "export": export, "checkpoints": evaluated}
        write_json(self._directory.results, results)
