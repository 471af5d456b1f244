"""Parameters, memory and time of a model."""

import pytest

from benchmarks.machine import step_flops
from bert_tf.config import PRESETS, BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining import cost
from bert_tf.pretraining.settings import Phase
from bert_tf.training import distribution

from .commands import parse


@pytest.mark.parametrize("nsp", [True, False])
def test_parameter_count_equals_built_model(nsp):
    config = BertConfig.from_preset("bert-tiny", vocab_size=101)
    built_model = BertPretrainer(config, nsp=nsp)
    built = sum(int(v.value.shape.num_elements()) for v in built_model.trainable_variables)
    assert cost.parameter_count(config, nsp) == built


def test_published_sizes():
    # Encoders of the released checkpoints without the two heads: 110M and 340M in the paper.
    assert cost.parameter_count(BertConfig.from_preset("bert-base")) == 110_106_428
    assert cost.parameter_count(BertConfig.from_preset("bert-large")) == 336_226_108
    assert len({cost.parameter_count(BertConfig.from_preset(n)) for n in PRESETS}) == 25


def test_flops_equal_explicit_count():
    config = BertConfig(
        vocab_size=10, hidden_size=4, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8,
    )  # fmt: skip
    products = []  # (m, k, n) of every matrix product of one row's forward pass
    for _ in range(2):
        products += [(5, 4, 4)] * 4  # query, key, value, output
        products += [(5, 2, 5), (5, 5, 2)] * 2  # scores and context of each head
        products += [(5, 4, 8), (5, 8, 4)]
    products += [(1, 4, 4), (2, 4, 4), (2, 4, 10)]  # pooler, masked-LM dense, logits
    expected = 3 * 3 * sum(2 * m * k * n for m, k, n in products)
    assert step_flops(config, rows=3, length=5, predictions=2) == expected


def test_memory_decreases_with_replicas_accumulation_and_remat():
    config, phase = BertConfig(), Phase(512, 0, 9, 64)

    def memory(*flags, replicas=1, device="CPU"):
        settings = parse("--input=a", "--max_seq_length=512", "--train_batch_size=64", *flags)[0]
        return cost.memory_bytes(settings, config, phase, replicas, device) - weights

    weights = 16 * 110_106_428
    baseline, layer, inputs = memory(), 512 * (12 * 768 + 3 * 3072 + 3 * 12 * 512), 512 * 768
    assert baseline == 64 * 4 * (12 * layer + 3 * 77 * 30522)
    assert memory(replicas=4) == baseline // 4
    assert memory("--gradient_accumulation_steps=8") == baseline // 8
    assert baseline - memory("--remat") == 64 * 4 * (11 * layer - 12 * inputs)
    # On CPU only the matrix products are bfloat16.
    assert memory("--precision=bfloat16") == baseline
    assert memory("--precision=bfloat16", "--jit_compile=false", device="GPU") == baseline // 2


@pytest.mark.parametrize(("device", "rows", "length", "temporaries"),
                         [("GPU", 256, 128, 11.4e9), ("TPU", 32, 512, 4.37e9)])  # fmt: skip
def test_memory_with_xla_approximates_compiler_allocation(device, rows, length, temporaries):
    """For an H100 and for a v5e, as in benchmarks/NOTES.md."""
    flags = (f"--max_seq_length={length}", f"--train_batch_size={rows}", "--precision=bfloat16")
    settings, phase = parse("--input=a", *flags)[0], Phase(length, 0, 9, rows)
    memory = cost.memory_bytes(settings, BertConfig(), phase, 1, device) - 12 * 110_106_428
    assert 0.9 * temporaries < memory < 1.1 * temporaries


def test_long_step_is_timed_on_few_rows(monkeypatch):
    flags = ("--input=a", "--train_batch_size=32", "--gradient_accumulation_steps=8")
    settings, timed, took = parse(*flags)[0], [], [1.0]

    def seconds(settings, config, devices, phase, rows):
        timed.append((rows, settings.gradient_accumulation_steps))
        return took[0]

    monkeypatch.setattr(cost, "_measure_step", seconds)
    devices, phase = distribution.choose_strategy("one_device"), Phase(128, 0, 9, 32)
    # At most as many rows as in a run.
    assert cost._estimate_step(settings, None, devices, phase) == 1.0 * 32 / 4
    took[0] = 0.1  # fast, so the full batch is timed
    assert cost._estimate_step(settings, None, devices, phase) == 0.1
    assert timed == [(4, 1), (4, 1), (32, 8)]


def test_cost_report(monkeypatch, capsys):
    monkeypatch.setattr(cost, "_estimate_step", lambda *given: 0.5)
    flags = ("--bert_config=bert-mini", "--vocab_size=1000", "--input=a", "--train_batch_size=256")
    cost.report_cost(parse(*flags, "--num_train_steps=100")[0])
    printed = capsys.readouterr().out
    assert "256 rows and 32,768 tokens per step, about 3.9 GiB of memory per device." in printed
    assert "about 0.5 s per step (65,536 tokens/s), 50s for 100 steps." in printed
    assert printed.endswith("Estimated time: 50s. Nothing was written.\n")
