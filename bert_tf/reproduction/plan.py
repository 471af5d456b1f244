"""What a reproduction has to run, each run once, and the cell that each place of a table takes."""

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import tensorflow as tf

from bert_tf.cli.flag_fields import as_words, nearest, parse_words
from bert_tf.config import PRESETS, BertConfig
from bert_tf.files import sizes_fingerprint
from bert_tf.finetuning.resolution import settings_from_words as finetuning_settings
from bert_tf.finetuning.settings import FEATURES_DEFAULTS
from bert_tf.interchange import hub
from bert_tf.paths import of_model
from bert_tf.pipelines.masking import default_max_predictions
from bert_tf.pretraining.recipes import RECIPES
from bert_tf.pretraining.rules import OF_MASKS, overridden
from bert_tf.pretraining.settings import settings_from_words as pretraining_settings
from bert_tf.tasks.kinds import KINDS
from bert_tf.tasks.kinds import TASKS as KIND_OF

from .score_table import Cell
from .settings import PERPLEXITY, TABLES, TASKS, Column, Row, Settings, Table

_SHARES = sorted({row.at for table in TABLES.values() for row in table.rows})
_VOCAB_BYTES = 20_000_000  # taken evenly from the whole text
_ROW, _SQUAD_ROW = 128, 384
_OF_TEXT = ("input_format", "do_lower_case")  # flags of pretrain that say how text is read
_PLACES = {
    "data_dir",
    "train_file",
    "dev_file",
    "backward_checkpoint",
}  # flags by which no cell is known
Key = tuple[int, Column]  # a row's number and a column
T = TypeVar("T")


def _phases(recipe: str) -> str:
    return str(RECIPES[recipe]["phases"])


def _checked(flag: str, settings_of: Callable[[Sequence[str]], T], words: Sequence[str]) -> T:
    """The settings of a run; what is refused in them is refused before any run."""
    try:
        return settings_of(words)
    except ValueError as error:
        raise ValueError(f"--{flag}: {error}") from error


class _TooSmallError(ValueError):
    """A model that cannot be divided as a row says."""


def _sizes(size: str, row: Row, own: Mapping[str, str]) -> dict[str, int]:
    """What a row makes of the sizes: a wider model has more heads, each as wide as before."""
    blocks, hidden = PRESETS[size][:2]
    usual = BertConfig.from_preset(size).num_attention_heads
    if not (own_heads := own.get("num_attention_heads", str(usual))).isdecimal():
        raise ValueError(f"--pretrain_flags: num_attention_heads={own_heads} is no number.")
    heads = int(own_heads)
    if min(blocks * row.blocks, heads * row.heads * row.width) < 1:
        raise _TooSmallError(f"{size} has too few blocks or heads for the row {row.name!r}")
    found: dict[str, int] = {}
    if row.blocks != 1:
        found["num_hidden_layers"] = round(blocks * row.blocks)
    if row.heads != 1 or row.width != 1:
        found["num_attention_heads"] = round(heads * row.heads * row.width)
    if row.width != 1:
        found["hidden_size"] = hidden // heads * found["num_attention_heads"]
        found["intermediate_size"] = 4 * found["hidden_size"]
    return found


class Run(NamedTuple):
    """A process of one of the library's commands, which is done when ``product`` is there."""

    name: str
    command: str
    flags: Mapping[str, str]
    product: str
    needs: tuple[str, ...] = ()  # runs by name; at equal time, the one to be equal to is last
    equal_time: bool = False


class Place(NamedTuple):
    """A place in a table: its cell and the run that computes it, or a note why there is none."""

    cell: Cell | None
    run: str
    note: str
    other_task: bool = False


class Plan:
    """The runs by name, each behind those that it needs; the places of each table."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.size not in PRESETS:
            near = nearest(settings.size, PRESETS)
            raise ValueError(
                f"--size={settings.size} is no preset{near}: expected one such as bert-base."
            )
        recipe = settings.size.replace("-", "_")  # a size of the paper's has one
        self._recipe = recipe if recipe in RECIPES else ""
        named = [p for each in settings.input or () for p in sorted(tf.io.gfile.glob(each))]
        self._corpus, self._first_file = sorted({*named}), named[:1]
        chosen = [name for name in TABLES if name in (settings.table or TABLES)]
        are_tuned = all(TABLES[name].uses_checkpoint for name in chosen)
        self.reads_text = not (settings.checkpoint and are_tuned)
        if self.reads_text and not self._corpus:
            raise ValueError(
                f"--input={','.join(settings.input or ())} names no file: give the text to "
                "pre-train on, paths or globs separated by commas."
            )
        self._text = {"input": ",".join(settings.input or ())}
        # By what files are known, so that no run of others is taken for one of theirs.
        self.inputs = {"the files of --input": sizes_fingerprint(self._corpus)}
        self.checkpoint = ""
        if settings.checkpoint:
            path = settings.checkpoint
            path = hub.directory_of(path, False) if hub.is_name(path) else of_model(path)
            path = path.rstrip("/")
            files = tf.io.gfile.glob(f"{path}/*" if tf.io.gfile.isdir(path) else f"{path}*")
            files = sorted(each for each in files if not tf.io.gfile.isdir(each))
            self.checkpoint = f"{os.path.basename(path)}: {sizes_fingerprint(files)}"
            self.inputs["the files of --checkpoint"] = self.checkpoint
        self._vocab = os.path.join(settings.output_dir, "vocab.txt")
        # Every command reads the text alike.
        own = parse_words(settings.pretrain_flags, "--pretrain_flags")
        self._reading = {flag: own[flag] for flag in _OF_TEXT if flag in own}
        flags = {"vocab_size": str(settings.vocab_size), "max_bytes": str(_VOCAB_BYTES)}
        flags |= {**self._reading, **self._text, "output": self._vocab}
        vocab = Run("vocab", "vocab", flags, self._vocab)
        self.runs = {"vocab": vocab}
        self._batches: dict[tuple[str, ...], int] = {}  # of fine-tunings, by their flags
        self.trained: dict[str, Cell] = {}  # what a pre-training itself is judged by
        self.places: dict[str, dict[Key, Place]] = {}
        for name in chosen:
            pairs = itertools.product(enumerate(TABLES[name].rows), TABLES[name].columns)
            self.places[name] = {
                (number, column): self._place(TABLES[name], row, column)
                for (number, row), column in pairs
            }

    def _pretraining(self, table: Table, row: Row) -> tuple[dict[str, str], str, str]:
        """What a row's pre-training is known by: its flags, its corpus; the name of its run."""
        settings, text, needs = self._settings, self._text, ["vocab"]
        one_length = {"phases": f"{settings.max_seq_length or _ROW}:1"}
        flags = {"bert_config": settings.size, "num_train_steps": str(settings.steps)}
        flags |= {"train_batch_size": str(settings.train_batch_size), **one_length}
        if self._recipe:
            # The recipe's 10,000 steps of warm-up are of a million.
            warmup = str(math.ceil(settings.steps / 100))
            flags |= {"recipe": self._recipe, "num_warmup_steps": warmup}
            if settings.max_seq_length is None:
                # Masks of a row are as many as the recipe's only where it masks as much.
                flags["phases"] = "128:0.9,512:0.1" if row.equal_time else _phases(self._recipe)
        flags |= parse_words(settings.pretrain_flags, "--pretrain_flags")
        flags |= parse_words(row.pretrain)
        if flags.get("objective", "mlm") != "mlm":
            flags = {flag: value for flag, value in flags.items() if flag not in OF_MASKS}
        name = "_".join(row.pretrain.replace("--", "").split()) or "base"
        texts = [*filter(None, flags.get("config_overrides", "").split(","))]
        if sizes := _sizes(settings.size, row, own := overridden(texts)):
            flags["config_overrides"] = ",".join(f"{k}={v}" for k, v in {**own, **sizes}.items())
            name = "_".join(f"{k}={v}" for k, v in sizes.items())
        if table.one_file:
            text, name = {"input": self._first_file[0]}, "one_file"
            flags |= one_length
        known = {**flags, "vocab_size": str(settings.vocab_size)}
        if row.equal_time:
            known["equal_time"] = "true"
            needs.append(self._pretraining(TABLES["glue"], TABLES["glue"].rows[0])[2])
        if row.static_masks:
            known["static_masks"], name = "true", "static"
            needs.append(self._records(text, pretraining_settings(as_words(flags)).masked_lm_prob))
            text = {"input": self.runs[needs[-1]].product, "input_format": "tfrecord"}
        if name == "base":
            flags["keep_steps"] = ",".join(f"{share * settings.steps:.0f}" for share in _SHARES)
        directory = os.path.join(settings.output_dir, "pretrain", name)
        flags |= {**text, "vocab_file": self._vocab, "model_dir": directory, "export": "false"}
        flags |= {"keep_checkpoints": "1", "cache_dir": os.path.join(settings.output_dir, "corpus")}
        product = os.path.join(directory, "results.json")
        if f"pretrain/{name}" not in self.runs:
            _checked("pretrain_flags", pretraining_settings, as_words(flags))
        run = Run(f"pretrain/{name}", "pretrain", flags, product, (*needs,), row.equal_time)
        corpus = sizes_fingerprint(self._first_file if table.one_file else self._corpus)
        cell = Cell(" ".join(as_words(known)), str(settings.steps), corpus, PERPLEXITY[0], "", "")
        self.trained[run.name] = cell
        self.runs.setdefault(run.name, run)
        return known, corpus, run.name

    def _records(self, text: Mapping[str, str], masked: float) -> str:
        length = self._settings.max_seq_length or _ROW
        product = os.path.join(self._settings.output_dir, "static.tfrecord")
        flags = {**self._reading, **text, "vocab_file": self._vocab, "output_file": product}
        flags |= {"max_seq_length": str(length), "masked_lm_prob": f"{masked:g}"}
        flags |= {"max_predictions_per_seq": str(default_max_predictions(length, masked))}
        run = Run("records", "create_pretraining_data", flags, product, ("vocab",))
        return self.runs.setdefault(run.name, run).name

    def _there(self, name: str) -> str | None:
        path = os.path.join(self._settings.data_dir, name)
        return next((path + e for e in ("", ".gz", ".zip") if tf.io.gfile.exists(path + e)), None)

    def _place(self, table: Table, row: Row, column: Column) -> Place:
        settings, task = self._settings, column[0]
        try:
            known, corpus, trained = self._pretraining(table, row)
        except _TooSmallError as error:
            return Place(None, "", str(error))
        step = f"{row.at * settings.steps:.0f}"
        if column == PERPLEXITY:
            return Place(self.trained[trained], trained, "")
        sources = [each for each in TASKS[task] if all(map(self._there, each["files"]))]
        if not sources:
            lacking = next(name for name in TASKS[task][0]["files"] if not self._there(name))
            return Place(None, "", f"no {lacking} in --data_dir")
        source, flags = sources[0], {"restarts": str(settings.seeds), "export": "false"}
        length = settings.max_seq_length or _SQUAD_ROW
        paths = [str(self._there(f)) for f in source["files"]]
        more = {"data": settings.data_dir, "length": length, "stride": min(128, length // 2)}
        own = parse_words(source["flags"].format(*paths, **more))
        more_flags = parse_words(settings.finetune_flags, "--finetune_flags")
        if is_frozen := "feature_based" in row.finetune:
            more_flags = parse_words(settings.feature_flags, "--feature_flags")
            if "feature_based" not in KINDS[KIND_OF[own["task"]]].flags:
                return Place(None, "", f"the row {row.name!r} only tags words")
        flags |= {**more_flags, **parse_words(row.finetune)}
        if self._recipe and not (more_flags or settings.max_examples or is_frozen):
            flags |= {} if "num_train_epochs" in flags else {"sweep": "paper"}
        names = row.finetune.replace("--", "").split()
        if table.uses_checkpoint and not (is_frozen or "num_train_epochs" in row.finetune):
            names.append("as_many_epochs")
            # As often as the BiLSTM on frozen features sees them.
            tuned = parse_words(settings.feature_flags, "--feature_flags")
            most = str(FEATURES_DEFAULTS["num_train_epochs"])
            flags.pop("sweep", None)
            flags["num_train_epochs"] = tuned.get("num_train_epochs", most)
        words = (*as_words(flags | own | {"init_checkpoint": settings.checkpoint or "new"}),)
        if words not in self._batches:
            flag = "feature_flags" if is_frozen else "finetune_flags"
            self._batches[words] = _checked(flag, finetuning_settings, words).train_batch_size
        if settings.max_examples and "num_train_epochs" not in flags:
            flags["max_steps"] = str(max(1, settings.max_examples // self._batches[words]))
        needs: tuple[str, ...] = (trained,)
        checkpoint = os.path.dirname(self.runs[trained].product)
        names = [trained.split("/")[1], *names]
        if row.backward:
            second = self._pretraining(table, row._replace(pretrain=row.backward))[2]
            needs, known = (*needs, second), {**known, "backward": row.backward}
            own["backward_checkpoint"] = os.path.dirname(self.runs[second].product)
            names.append(second.split("/")[1])
        if row.at != 1:
            checkpoint = os.path.join(checkpoint, "steps", step)
            names.append(f"step={step}")
        if table.uses_checkpoint and settings.checkpoint:
            checkpoint, step, corpus, needs = settings.checkpoint, "", self.checkpoint, ()
            known = {"init_checkpoint": settings.weights}
            names[0] = "checkpoint"
        told = " ".join(as_words({**flags, **{key: own[key] for key in own.keys() - _PLACES}}))
        self.inputs[f"the files of {task}"] = data = sizes_fingerprint(paths)
        cell = Cell(" ".join(as_words(known)), step, corpus, task, data, told)
        run = "finetune/" + "_".join([*names, task.lower().replace(" ", "_")])
        directory = os.path.join(settings.output_dir, run)
        flags |= {**own, "init_checkpoint": checkpoint, "model_dir": directory}
        self.runs[run] = Run(run, "finetune", flags, f"{directory}/results.json", needs)
        return Place(cell, run, source.get("note", ""), source.get("other_task", False))
