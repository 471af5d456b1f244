import itertools
from dataclasses import replace

import pytest

from bert_tf.pretraining.settings import Phase, make_phases, parse_phases

from .commands import parse


def test_phases_are_contiguous_despite_rounding():
    for steps in range(1, 40):
        phases = parse_phases("32:0.3,64:0.3,128:0.4", steps, 8)
        assert phases[0].first_step == 0 and phases[-1].last_step == steps
        for before, after in itertools.pairwise(phases):
            assert before.last_step == after.first_step
        assert all(phase.first_step < phase.last_step for phase in phases)


def test_single_length():
    assert parse_phases("128:1", 7, 8) == parse_phases("128", 7, 8) == [Phase(128, 0, 7, 8)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("128:0.5", "expected fractions that add up to 1, got 0.5"),
        ("long:1", "expected LENGTH:FRACTION or .*, such as 128:0.9,512:0.1, .*, got 'long:1'"),
        ("", "got ''"),
        ("128:0.9,512:x", "got '512:x'"),
        ("0:1", "with fractions from 0 to 1, got '0:1'"),
        ("128:1.5,512:-0.5", "got '128:1.5'"),
        ("128:1:x", "got '128:1:x'"),
        ("128:1:20:1", "got '128:1:20:1'"),
        ("128:1:0", "got '128:1:0'"),
    ],
)
def test_invalid_phases_raise_error(text, message):
    with pytest.raises(ValueError, match=message):
        parse_phases(text, 100, 8)


def test_shorter_phases_use_larger_batches():
    flags = ("--phases=12:0.25,32:0.25,128:0.5", "--num_train_steps=8", "--train_batch_size=3")
    phases = [Phase(12, 0, 2, 30), Phase(32, 2, 4, 12), Phase(128, 4, 8, 3)]
    settings = parse(*flags, "--recipe=five_minutes")[0]
    assert make_phases(settings) == phases
    one = parse(*flags, "--recipe=default")[0]
    assert make_phases(one) == [replace(phase, rows=3) for phase in phases]


def test_defaults():
    resolved, notes = parse("--recipe=default")
    expected = {
        "phases": "128:1", "bert_config": "bert-tiny", "model_dir": "runs/pretrain",
        "num_train_steps": 3600, "num_warmup_steps": 360, "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1, "held_out_fraction": 0.01, "train_batch_size": 16,
        "gradient_accumulation_steps": 1, "seed": 12345, "optimizer": "adam",
        "learning_rate": 1e-3, "masking": "token", "nsp": True, "precision": "float32",
        "config_overrides": [],
    }  # fmt: skip
    assert expected.keys() <= resolved.to_dict().keys() and notes == []
    assert {name: resolved.to_dict()[name] for name in expected} == expected


def test_flag_names_of_reference():
    resolved, _ = parse(
        "--input_file=a.txt,b.txt", "--output_dir=out", "--bert_config_file=c.json",
        "--tpu_name=mine", "--random_seed=7",
    )  # fmt: skip
    assert resolved.input == ["a.txt", "b.txt"]
    assert (resolved.model_dir, resolved.bert_config, resolved.tpu) == ("out", "c.json", "mine")
    assert resolved.seed == 7


@pytest.mark.parametrize(
    ("arguments", "input_format"),
    [
        (["--input=gs://a/x.tfrecord-00000-of-00002,b/*.tfrecord"], "tfrecord"),
        (["--input=a.tfrecord", "--input_format=jsonl"], "jsonl"),
        (["--input=a.tfrecord,b.txt"], None),
        (["--input=tfrecords/a.txt"], None),
        ([], None),
    ],
)
def test_tfrecord_format_is_inferred_from_file_names(arguments, input_format):
    assert parse(*arguments)[0].input_format == input_format


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--input=a.tfrecord", "--tfds=b"],
         "--tfds=b needs text, but TFRecord files .* contain rows that are already masked. Pass "
         "the original text as --input, or remove the flag"),
        (["--phases=64:1", "--max_seq_length=64"], "--phases and --max_seq_length both set the "
         "length"),
        (["--train_batch_size=10", "--gradient_accumulation_steps=4"],
         "--train_batch_size=10 is not a multiple of --gradient_accumulation_steps=4"),
        (["--train_batch_size=15", "--worker_hosts=a:1,b:1"],
         "--train_batch_size=15: expected a multiple of the number of --worker_hosts"),
        (["--num_train_steps=10", "--num_warmup_steps=11"], "--num_warmup_steps=11: expected at "
         "most --num_train_steps=10"),
        *(([f"--mask_split={wrong}"], f"--mask_split={wrong}: expected percentages of "
           r"\[MASK\], random and unchanged tokens that add up to 100, such as 80,10,10")
          for wrong in ("80,10", "80,30,-10", "a,b,c")),
        (["--vocab_file=v", "--vocab_size=9"], "--vocab_file defines the vocabulary size. Remove "
         "--vocab_size"),
        (["--bert_config=bert-huge"], "--bert_config=bert-huge: expected a preset"),
        (["--input=a.tfrecord", "--phases=128:0.9,512:0.1"], "512:0.1 has several lengths, but "
         "TFRecord files .* have one"),
        (["--input=a.tfrecord", "--recipe=bert_base"], "512:0.1:76 has several lengths, but "
         "TFRecord files .* have one"),
        (["--pairs=false", "--nsp"], "^--pairs=false excludes next-sentence prediction. Remove "
         "--nsp"),
        (["--input=a.tfrecord", "--pairs=false"], "^--pairs=false needs text, but TFRecord files "),
        (["--objective=ltr", "--nsp"],
         r"^--objective=ltr excludes next-sentence prediction, as in the paper \(section "
         r"5.1, LTR & No NSP\)"),
        (["--objective=ltr", "--masked_lm_prob=0.15"],
         "masks no tokens; each token predicts the next one. Remove --masked_lm_prob"),
        (["--objective=ltr", "--mask_split=100,0,0", "--masking=whole_word"],
         "Remove --masking and --mask_split"),
        (["--objective=ltr", "--max_predictions_per_seq=20"], "Remove --max_predictions_per_seq"),
        *((["--config_overrides=initializer_range=0.1," + wrong],
           f"expected NAME=VALUE with a name out of .* got '{wrong}'")
          for wrong in ("size=3", "hidden_size", "hidden_size=1.5", "vocab_size=9")),
        (["--init_checkpoint=a", "--config_overrides=hidden_dropout_prob=0,hidden_size=8"],
         "--init_checkpoint defines hidden_size. Remove the override"),
        (["--objective=ltr", "--input=a.tfrecord"], "needs text, but TFRecord files "),
    ],
)  # fmt: skip
def test_invalid_flags_raise_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse(*arguments)


_RATE = (
    "--learning_rate=0.001, the default, is intended for random initial weights. For pre-trained "
    "weights, use a lower value such as 5e-5."
)
_RECORDS = "has no effect: the rows of --input_format=tfrecord are already masked."


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        ("", []),
        ("--init_checkpoint=x", [_RATE]),
        ("--init_checkpoint=x --learning_rate=5e-5", []),
        ("--input=a.tfrecord", []),
        ("--input=a.txt --masked_lm_prob=0.3 --masking=whole_word", []),
        # The flag sets the number of predictions per row, unless another flag does.
        ("--input=a.tfrecord --masked_lm_prob=0.3 --short_seq_prob=0",
         [f"--short_seq_prob {_RECORDS}"]),
        ("--input=a.tfrecord --masked_lm_prob=0.3 --masking=token --max_predictions_per_seq=20",
         [f"--masked_lm_prob {_RECORDS}", f"--masking {_RECORDS}"]),
    ],
)  # fmt: skip
def test_ineffective_flags_are_reported(arguments, notes):
    found = parse(*arguments.split())[1]
    assert len(found) == len(notes) and all(map(str.startswith, found, notes))


def test_pairs_are_independent_of_nsp_flag():
    for flags, expected in (
        ((), (True, True)),
        (("--nsp=false",), (False, True)),
        (("--pairs=false",), (False, False)),
        (("--objective=ltr",), (False, True)),
        (("--recipe=hour",), (False, True)),
    ):
        settings = parse("--input=a.txt", *flags)[0]
        assert (settings.nsp, settings.pairs) == expected, flags


def test_left_to_right_disables_nsp_and_masking():
    flags = ("--objective=ltr", "--input=a.txt", "--recipe=hour")
    settings = parse(*flags, "--nsp=false")[0]
    assert settings == parse(*flags)[0]
    # The recipe's masking settings have no effect here, and are not settings of the run.
    assert (settings.objective, settings.nsp, settings.masked_lm_prob) == ("ltr", False, 0.15)
