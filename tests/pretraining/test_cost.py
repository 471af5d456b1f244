import pytest

from bert_tf.config import PRESETS, BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining import cost
from bert_tf.pretraining.data import predictions_per_row
from bert_tf.pretraining.model import read_config
from bert_tf.training import distribution

from .commands import parse


@pytest.mark.parametrize("nsp", [True, False])
def test_parameters_are_those_of_the_built_model(nsp):
    config = BertConfig.from_preset("bert-tiny", vocab_size=101)
    model = BertPretrainer(config, nsp=nsp)
    built = sum(int(v.value.shape.num_elements()) for v in model.trainable_variables)
    assert cost.parameter_count(config, nsp) == built


def test_published_sizes():
    # The released checkpoints' encoders without the two heads: 110M and 340M in the paper.
    assert cost.parameter_count(BertConfig.from_preset("bert-base")) == 110_106_428
    assert cost.parameter_count(BertConfig.from_preset("bert-large")) == 336_226_108
    assert len({cost.parameter_count(BertConfig.from_preset(n)) for n in PRESETS}) == 25


def test_flops_against_a_count_written_out():
    config = BertConfig(
        vocab_size=10,
        hidden_size=4,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
    )
    step = cost.estimate_step(config, batch_size=3, max_seq_length=5, max_predictions_per_seq=2)
    products = []  # (m, k, n) of every matrix product of one row's forward pass
    for _ in range(2):
        products += [(5, 4, 4)] * 4  # query, key, value, output
        products += [(5, 2, 5), (5, 5, 2)] * 2  # scores and context of each head
        products += [(5, 4, 8), (5, 8, 4)]
    products += [(1, 4, 4), (2, 4, 4), (2, 4, 10)]  # pooler, masked-LM dense, logits
    assert step.flops == 3 * 3 * sum(2 * m * k * n for m, k, n in products)
    without_pooler = cost.estimate_step(
        config, batch_size=3, max_seq_length=5, max_predictions_per_seq=2, nsp=False
    )
    assert step.flops - without_pooler.flops == 3 * 3 * 2 * 4 * 4
    assert step.tokens == 15


def test_padding_that_is_left_out_is_not_counted():
    sizes = {"batch_size": 4, "max_seq_length": 128, "max_predictions_per_seq": 20}
    full = cost.estimate_step(BertConfig(), **sizes)
    assert cost.estimate_step(BertConfig(), **sizes, real=(4 * 128, 4 * 20)) == full
    shorter = {**sizes, "max_seq_length": 96, "max_predictions_per_seq": 15}
    left_out = cost.estimate_step(BertConfig(), **sizes, real=(4 * 96, 4 * 15))
    assert left_out.flops == cost.estimate_step(BertConfig(), **shorter).flops < full.flops
    assert left_out.memory_bytes == full.memory_bytes


def test_memory_falls_with_replicas_and_accumulation():
    def memory(**changes):
        sizes = {"batch_size": 64, "max_seq_length": 128, "max_predictions_per_seq": 20, **changes}
        return cost.estimate_step(BertConfig(), **sizes).memory_bytes

    weights = 16 * 110_106_428
    whole = memory() - weights
    assert memory(replicas=4) - weights == whole // 4
    assert memory(gradient_accumulation_steps=8) - weights == whole // 8


def test_recomputation_keeps_one_layer_and_the_inputs_of_all():
    sizes = {"batch_size": 8, "max_seq_length": 512, "max_predictions_per_seq": 76}
    whole, less = (
        cost.estimate_step(BertConfig(), **sizes, remat=remat).memory_bytes
        for remat in (False, True)
    )
    layer, inputs = 512 * (12 * 768 + 3 * 3072 + 3 * 12 * 512), 512 * 768
    assert whole - less == 8 * 4 * (11 * layer - 12 * inputs)
    assert less < whole / 2


@pytest.mark.parametrize(("device", "size"), [("CPU", 4), ("GPU", 2)])
def test_a_report_counts_what_the_device_keeps(device, size, monkeypatch, capsys):
    """On a CPU only the products are bfloat16."""
    found = distribution.choose_strategy("one_device")._replace(device_type=device)
    monkeypatch.setattr(distribution, "choose_strategy", lambda *given, **named: found)
    monkeypatch.setattr(cost, "step_seconds", lambda *given: 0.5)
    flags = ("--bert_config=bert-mini", "--vocab_size=1000", "--precision=bfloat16", "--input=a")
    settings = parse(*flags, "--train_batch_size=256", "--num_train_steps=100")[0]
    cost.report_cost(settings)
    estimate = cost.estimate_step(
        read_config(settings), batch_size=256, max_seq_length=128,
        max_predictions_per_seq=predictions_per_row(settings, 128), bytes_per_activation=size,
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert f"; about {estimate.memory_bytes / 2**30:,.1f} GiB of memory on each" in printed
    assert "about 0.5 s a step (65,536 tokens/s" in printed
    assert printed.endswith("Estimated time: 50s. Nothing was written.\n")
