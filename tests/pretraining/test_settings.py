import pytest

from bert_tf.pretraining.settings import MAY_DIFFER

from .commands import parse


def test_defaults():
    resolved, ignored = parse()
    assert ignored == []
    assert (resolved.phases, resolved.bert_config, resolved.model_dir) == (
        "128:1",
        "bert-tiny",
        "runs/pretrain",
    )
    assert resolved.num_warmup_steps == resolved.num_train_steps // 10


def test_googles_names():
    resolved, _ = parse(
        "--input_file=a.txt,b.txt",
        "--output_dir=out",
        "--bert_config_file=c.json",
        "--tpu_name=mine",
        "--iterations_per_loop=7",
        "--do_whole_word_mask",
    )
    assert resolved.input == ["a.txt", "b.txt"]
    assert (resolved.model_dir, resolved.bert_config, resolved.tpu) == ("out", "c.json", "mine")
    assert (resolved.steps_per_loop, resolved.masking) == (7, "whole_word")


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
def test_tfrecords_are_told_by_their_names(arguments, input_format):
    assert parse(*arguments)[0].input_format == input_format


def test_every_setting_that_matters_is_compared():
    resolved, _ = parse()
    assert set(resolved.to_dict()) > MAY_DIFFER
    assert set(resolved.to_dict()) - MAY_DIFFER == {
        *("input", "input_format", "tfds", "eval_input", "held_out_fraction"),
        *("vocab_file", "vocab_size", "do_lower_case", "bert_config", "precision", "nsp"),
        *("max_predictions_per_seq", "masked_lm_prob", "short_seq_prob", "masking", "phases"),
        *("num_train_steps", "num_warmup_steps", "train_batch_size", "learning_rate"),
        *("gradient_accumulation_steps", "optimizer", "seed", "init_checkpoint"),
    }


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--input=a", "--tfds=b"], "--input and --tfds both name a corpus"),
        (["--phases=64:1", "--max_seq_length=64"], "--phases and --max_seq_length both set"),
        (
            ["--do_whole_word_mask", "--masking=span"],
            "--do_whole_word_mask contradicts --masking=span",
        ),
        (
            ["--train_batch_size=10", "--gradient_accumulation_steps=4"],
            "--train_batch_size=10 is not a multiple of --gradient_accumulation_steps=4",
        ),
        (
            ["--num_train_steps=10", "--num_warmup_steps=11"],
            "--num_warmup_steps=11 is more than --num_train_steps=10",
        ),
        (["--vocab_file=v", "--vocab_size=9"], "--vocab_file has a size of its own"),
        (["--bert_config=bert-huge"], "--bert_config=bert-huge is neither a preset"),
        (["--held_out_fraction=1"], "--held_out_fraction=1.0: expected a number 0 or more and bel"),
        (["--held_out_fraction=-0.1"], "--held_out_fraction=-0.1: expected a number 0 or more"),
        (["--masked_lm_prob=0"], "--masked_lm_prob=0.0: expected a number above 0 and not above 1"),
        (["--short_seq_prob=1.1"], "--short_seq_prob=1.1: expected a number from 0 to 1"),
        (["--learning_rate=0"], "--learning_rate=0.0: expected a number above 0"),
        (["--learning_rate=inf"], "--learning_rate=inf: expected a number above 0"),
        (["--learning_rate=nan"], "--learning_rate=nan: expected a number above 0"),
        (["--save_checkpoints_minutes=-1"], "--save_checkpoints_minutes=-1.0: expected a number 0"),
        (["--save_checkpoints_minutes=nan"], "--save_checkpoints_minutes=nan: expected a number 0"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse(*arguments)
