"""How long a step takes, and the precision that is chosen by it."""

import types

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.files import read_json
from bert_tf.pretraining import run as run_module
from bert_tf.pretraining import timing
from bert_tf.training import checkpoints, distribution
from bert_tf.training.run_directory import RunDirectory

from . import commands

CONFIG = BertConfig(**commands.TINY)


@pytest.fixture(autouse=True)
def float32_afterwards():
    yield
    distribution.set_precision("float32", "CPU")


def auto(inputs, tmp_path, **changes):
    return commands.parse(*commands.arguments(inputs, tmp_path, precision="auto", **changes))[0]


def test_a_long_step_is_timed_on_a_few_rows(inputs, tmp_path, monkeypatch):
    settings = commands.parse(*commands.arguments(inputs, tmp_path, train_batch_size=32))[0]
    devices, phase = distribution.choose_strategy("one_device"), timing.phases_of(settings)[0]

    rows = []
    loop = types.SimpleNamespace(
        distribute=lambda batches: rows.append(len(next(iter(batches))["input_mask"])),
        train=lambda iterator, steps: None,
    )
    monkeypatch.setattr(timing, "build_loop", lambda *_: loop)

    def timed(*times):
        clock = iter(times)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
        found = timing.step_seconds(settings, CONFIG, devices, phase)
        assert list(clock) == []
        return found

    # 1, 2 and 3 seconds of eight rows.
    assert timed(0.0, 1.0, 5.0, 7.0, 10.0, 13.0) == 2.0 * 32 / 8
    # Where those are quick, then the whole batch.
    assert timed(*[0.0, 0.5] * 4, 0.0, 4.0, 0.0, 2.0, 0.0, 3.0) == 3.0
    assert rows == [8, 8, 32]


def test_no_more_rows_are_timed_at_once_than_a_run_has(inputs, tmp_path, monkeypatch):
    flags = {"train_batch_size": 32, "gradient_accumulation_steps": 8}
    settings, timed = auto(inputs, tmp_path, **flags), []

    def seconds(settings, config, devices, phase, rows):
        timed.append((rows, settings.gradient_accumulation_steps))
        return 0.1

    monkeypatch.setattr(timing, "_rows_seconds", seconds)
    devices, phase = distribution.choose_strategy("one_device"), timing.phases_of(settings)[0]
    timing.step_seconds(settings, CONFIG, devices, phase)
    assert timed == [(4, 1), (32, 8)]
    # Of four replicas on two machines, the share of one.
    four = types.SimpleNamespace(num_replicas_in_sync=4)
    timing.choose_precision(settings, CONFIG, devices._replace(strategy=four, hosts=2))
    assert timed[2:] == [(1, 1), (8, 8)] * 2


@pytest.mark.parametrize("fastest", ["float32", "bfloat16"])
def test_the_faster_precision_is_chosen_and_printed(fastest, inputs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        timing,
        "step_seconds",
        lambda settings, *_: 0.125 if settings.precision == fastest else 0.25,
    )
    devices = distribution.choose_strategy("one_device")
    chosen = timing.choose_precision(auto(inputs, tmp_path), CONFIG, devices)
    assert chosen.precision == fastest
    seconds = {name: "0.125" if name == fastest else "0.25" for name in ("float32", "bfloat16")}
    assert capsys.readouterr().out == (
        f"Precision: {fastest} ({seconds['float32']} s a step in float32, "
        f"{seconds['bfloat16']} s a step in bfloat16).\n"
    )


def test_nothing_is_measured_for_a_tpu_nor_without_auto(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "step_seconds", None)
    tpu = distribution.Distribution(tf.distribute.get_strategy(), "TPU", "a core")
    settings = auto(inputs, tmp_path)
    assert timing.choose_precision(settings, CONFIG, tpu).precision == "bfloat16"
    given = commands.parse(*commands.arguments(inputs, tmp_path, precision="float32"))[0]
    assert timing.choose_precision(given, CONFIG, tpu) is given


def test_as_many_steps_as_there_is_time_for(inputs, tmp_path, monkeypatch, capsys):
    options = {"max_hours": 0.1, "recipe": "budget", "num_train_steps": None}
    options |= {"max_seq_length": None, "phases": "12:0.25,24:0.75"}
    given = commands.arguments(inputs, tmp_path, **options)
    settings = commands.parse(*given)[0]
    assert (settings.nsp, settings.masked_lm_prob, settings.precision) == (False, 0.3, "auto")
    lengths = {12: 0.1, 24: 0.3}
    monkeypatch.setattr(timing, "step_seconds", lambda *given: lengths[given[3].max_seq_length])
    devices = distribution.choose_strategy("one_device")
    chosen = timing.choose_steps(settings, CONFIG, devices)
    # 342 of 360 s, a quarter of the steps of 0.1 s and three of 0.3 s
    assert (chosen.num_train_steps, chosen.num_warmup_steps) == (1368, 136)
    assert capsys.readouterr().out == (
        "Schedule: 1,368 steps, as one takes 0.25 s and --max_hours=0.1 leaves 95% of the time "
        "for them.\n"
    )
    with pytest.raises(ValueError, match="--max_hours=0.1: the steps of 2 workers cannot be timed"):
        timing.choose_steps(settings, CONFIG, devices._replace(hosts=2))


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (["--max_hours=1", "--num_train_steps=5"], "--max_hours and --num_train_steps both set"),
        (["--max_hours=1", "--num_warmup_steps=5"], "--max_hours and --num_warmup_steps both set"),
        (["--recipe=budget", "--input=a"], "--recipe=budget needs --max_hours, the time that"),
    ],
)
def test_hours_and_steps_contradict(flags, sentence):
    with pytest.raises(ValueError, match=sentence):
        commands.parse(*flags)


def test_a_run_keeps_the_steps_and_the_precision_that_it_chose(
    inputs, tmp_path, monkeypatch, capsys
):
    directory, made = RunDirectory(str(tmp_path / "run")), []
    monkeypatch.setattr(run_module, "_PretrainingRun", lambda settings, *_: made.append(settings))
    seconds = {"float32": 20.0, "bfloat16": 10.0}
    monkeypatch.setattr(timing, "step_seconds", lambda settings, *_: seconds[settings.precision])

    def start(max_hours=0.006, precision="auto"):  # 21.6 s
        options = {"max_hours": max_hours, "precision": precision, "num_train_steps": None}
        given = commands.arguments(inputs, directory.path, **options)
        run_module.run(commands.parse(*given)[0])

    start()
    said = capsys.readouterr().out
    assert "Precision: bfloat16" in said and "Schedule: 2 steps" in said
    path = f"{directory.checkpoints}/{checkpoints.directory_name(1)}"
    checkpoints.write(path, 1, {"model/weight": tf.constant([1.0])}, {})
    # The other would be faster now, and nothing is measured again.
    seconds |= {"float32": 0.5, "bfloat16": 1.0}
    start()
    start(precision="bfloat16")
    assert capsys.readouterr().out == ""
    for settings in made:
        assert (settings.num_train_steps, settings.precision) == (2, "bfloat16")
    assert len(made) == 3 and read_json(directory.flags)["precision"] == "bfloat16"
    with pytest.raises(ValueError, match=r"--max_hours=0.5 \(was 0.006\)"):
        start(max_hours=0.5)
    with pytest.raises(ValueError, match=r"--precision=float32 \(was bfloat16\)"):
        start(precision="float32")
