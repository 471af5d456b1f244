import itertools
from dataclasses import replace

import pytest

from bert_tf.pretraining.recipes import Phase, parse_phases, phases_of
from bert_tf.pretraining.settings import MAY_DIFFER

from .commands import parse


def test_phases_have_no_gap_and_no_overlap_whatever_the_rounding():
    for steps in range(1, 40):
        phases = parse_phases("32:0.3,64:0.3,128:0.4", steps, 8)
        assert phases[0].first_step == 0 and phases[-1].last_step == steps
        for before, after in itertools.pairwise(phases):
            assert before.last_step == after.first_step
        assert all(phase.first_step < phase.last_step for phase in phases)


def test_one_length_alone():
    assert parse_phases("128:1", 7, 8) == parse_phases("128", 7, 8) == [Phase(128, 0, 7, 8)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("128:0.5", "the shares add up to 0.5, expected 1"),
        ("long:1", "expected LENGTH:SHARE pairs such as 128:0.9,512:0.1, or .*, got 'long:1'"),
        ("", "got ''"),
        ("128:0.9,512:x", "got '512:x'"),
        ("0:1", "of 1 or more and shares between 0 and 1, got '0:1'"),
        ("128:1.5,512:-0.5", "got '128:1.5'"),
        ("128:1:x", "got '128:1:x'"),
        ("128:1:20:1", "got '128:1:20:1'"),
        ("128:1:0", "got '128:1:0'"),
    ],
)
def test_errors_of_phases(text, message):
    with pytest.raises(ValueError, match=message):
        parse_phases(text, 100, 8)


def test_shorter_phases_have_as_many_times_the_rows_as_fit():
    flags = ("--phases=12:0.25,32:0.25,128:0.5", "--num_train_steps=8", "--train_batch_size=3")
    phases = [Phase(12, 0, 2, 30), Phase(32, 2, 4, 12), Phase(128, 4, 8, 3)]
    settings = parse(*flags, "--recipe=five_minutes")[0]
    assert phases_of(settings) == phases
    one = parse(*flags, "--recipe=default")[0]
    assert phases_of(one) == [replace(phase, rows=3) for phase in phases]


def test_defaults():
    resolved, ignored = parse("--recipe=default")
    assert ignored == []
    assert (resolved.phases, resolved.bert_config, resolved.model_dir) == (
        "128:1",
        "bert-tiny",
        "runs/pretrain",
    )
    assert (resolved.num_train_steps, resolved.num_warmup_steps) == (3600, 360)
    shares = (resolved.masked_lm_prob, resolved.short_seq_prob, resolved.held_out_fraction)
    assert shares == (0.15, 0.1, 0.01)
    sizes = (resolved.train_batch_size, resolved.gradient_accumulation_steps, resolved.seed)
    assert (resolved.optimizer, resolved.learning_rate, *sizes) == ("adam", 1e-3, 16, 1, 12345)
    assert (resolved.masking, resolved.nsp, resolved.precision) == ("token", True, "float32")
    assert resolved.config_overrides == []


def test_googles_names():
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
def test_tfrecords_are_told_by_their_names(arguments, input_format):
    assert parse(*arguments)[0].input_format == input_format


def test_every_setting_that_matters_is_compared():
    resolved, _ = parse()
    assert set(resolved.to_dict()) > MAY_DIFFER
    assert set(resolved.to_dict()) - MAY_DIFFER == {
        *("input", "input_format", "tfds", "eval_input", "held_out_fraction"),
        *("vocab_file", "vocab_size", "do_lower_case", "bert_config", "precision", "nsp", "pairs"),
        "objective",
        *("max_predictions_per_seq", "masked_lm_prob", "short_seq_prob", "masking", "phases"),
        "mask_split",
        *("num_train_steps", "num_warmup_steps", "train_batch_size", "learning_rate"),
        *("gradient_accumulation_steps", "recipe", "config_overrides"),
        *("optimizer", "seed", "init_checkpoint", "weight_decay"),
    }


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--input=a.tfrecord", "--tfds=b"],
         "--tfds=b is text, and --input_format=tfrecord holds rows: leave one of them"),
        (["--phases=64:1", "--max_seq_length=64"], "--phases and --max_seq_length both set"),
        (["--train_batch_size=10", "--gradient_accumulation_steps=4"],
         "--train_batch_size=10 is not a multiple of --gradient_accumulation_steps=4"),
        (["--num_train_steps=10", "--num_warmup_steps=11"], "--num_warmup_steps=11 is more than -"),
        (["--mask_split=80,10"], "--mask_split=80,10: expected three percentages that add up to"),
        (["--mask_split=80,30,-10"], "--mask_split=80,30,-10: expected three percentages"),
        (["--mask_split=a,b,c"], "--mask_split=a,b,c: expected three percentages"),
        (["--vocab_file=v", "--vocab_size=9"], "--vocab_file has a size of its own"),
        (["--bert_config=bert-huge"], "--bert_config=bert-huge is neither a preset"),
        (["--input=a.tfrecord", "--phases=128:0.9,512:0.1"], "512:0.1 has several lengths, and"),
        (["--input=a.tfrecord", "--recipe=bert_base"], "512:0.1:76 has several lengths, and ro"),
    ],
)  # fmt: skip
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse(*arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--init_checkpoint=x"],
            ["--learning_rate=0.001, the default, is for weights that begin"],
        ),
        (["--init_checkpoint=x", "--learning_rate=5e-5"], []),
        ([], []),
    ],
)
def test_a_rate_for_random_weights_is_named_where_others_begin(arguments, said):
    sentences = parse(*arguments)[1]
    assert len(sentences) == len(said)
    assert all(map(str.startswith, sentences, said))


def test_flags_of_rows_that_records_hold_are_said_to_change_nothing():
    given = ("--masked_lm_prob=0.3", "--masking=whole_word", "--short_seq_prob=0")
    said = parse("--input=a.tfrecord", *given)[1]  # the share says how many predictions they have
    assert [sentence.split()[0] for sentence in said] == ["--masking", "--short_seq_prob"]
    given += ("--max_predictions_per_seq=20",)
    said = parse("--input=a.tfrecord", *given)[1]
    assert [sentence.split()[0] for sentence in said] == [
        *("--masked_lm_prob", "--masking", "--short_seq_prob")
    ]
    assert said[0].endswith("changes no row here: --input_format=tfrecord holds rows that are "
                            "masked.")  # fmt: skip
    assert parse("--input=a.txt", *given)[1] == parse("--input=a.tfrecord")[1] == []


def test_pairs_stay_without_their_loss_and_go_by_a_flag_of_their_own():
    for given, expected in (
        ((), (True, True)),
        (("--nsp=false",), (False, True)),
        (("--pairs=false",), (False, False)),
        (("--objective=ltr",), (False, True)),
        (("--recipe=hour",), (False, True)),
    ):
        settings = parse("--input=a.txt", *given)[0]
        assert (settings.nsp, settings.pairs) == expected, given
    with pytest.raises(ValueError, match=r"^--pairs=false leaves no next sentences to predict: le"):
        parse("--input=a.txt", "--pairs=false", "--nsp")
    with pytest.raises(
        ValueError, match=r"^--pairs=false makes rows of text, and --input_format=t"
    ):
        parse("--input=a.tfrecord", "--pairs=false")


def test_left_to_right_without_next_sentences_and_masks():
    given = ("--objective=ltr", "--input=a.txt", "--recipe=hour")
    settings = parse(*given, "--nsp=false")[0]
    assert settings == parse(*given)[0]
    # The recipe's share of masks says nothing here, and is no setting of the run.
    assert (settings.objective, settings.nsp, settings.masked_lm_prob) == ("ltr", False, 0.15)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--nsp", r"goes without next-sentence prediction, as in the paper \(section 5.1, LTR"),
        ("--masked_lm_prob=0.15", "masks nothing, every token predicts the one beside it: leave "),
        ("--max_predictions_per_seq=20", "leave --max_predictions_per_seq out"),
        ("--mask_split=100,0,0", "leave --mask_split out"),
        ("--masking=whole_word", "leave --masking out"),
        ("--input=a.tfrecord", "reads text, and --input_format=tfrecord holds masked rows"),
    ],
)
def test_what_one_direction_has_no_use_for(flag, message):
    with pytest.raises(ValueError, match=f"^--objective=ltr .*{message}"):
        parse("--objective=ltr", flag)
