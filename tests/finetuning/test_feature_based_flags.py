import pytest

from bert_tf.finetuning.settings import PAPERS_F1
from bert_tf.modeling.feature_based import VARIANTS

from .small_runs import parse

NER = ("--task=ner", "--train_file=a", "--init_checkpoint=c")


def test_the_variants_are_those_of_the_layer():
    assert tuple(PAPERS_F1) == VARIANTS


def test_defaults():
    settings, _ = parse(*NER, "--feature_based=concat_last_four")
    assert (settings.variants, settings.lstm_units) == (("concat_last_four",), 768)
    assert (settings.learning_rate, settings.num_train_epochs) == (1e-3, 10)
    assert (settings.train_batch_size, settings.export) == (32, False)
    settings, _ = parse(
        *NER, "--feature_based=last", "--learning_rate=5e-4", "--num_train_epochs=3",
        "--lstm_units=8",
    )  # fmt: skip
    assert (settings.learning_rate, settings.num_train_epochs) == (5e-4, 3)
    assert settings.lstm_units == 8


def test_without_it_nothing_changes():
    settings, _ = parse(*NER)
    assert (settings.variants, settings.feature_based, settings.lstm_units) == ((), None, None)
    assert (settings.learning_rate, settings.num_train_epochs) == (5e-5, 3)


def test_several_come_in_the_tables_order():
    settings, _ = parse(*NER, "--feature_based=last,embeddings,last")
    assert settings.feature_based == "embeddings,last"
    assert parse(*NER, "--feature_based=all")[0].variants == VARIANTS


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--feature_based=lst"], r"--feature_based=lst is unknown \(did you mean last\?\): exp"),
        (["--feature_based="], "--feature_based is empty: expected embeddings, second_to_last, "),
        (["--feature_based=last", "--freeze=2"], "--freeze is for fine-tuning, and with --feature"),
        (["--feature_based=last", "--sweep=paper"], "--sweep is for fine-tuning, and with --featu"),
        (["--feature_based=last", "--export"], "--export writes no SavedModel of --feature_based"),
        (["--feature_based=last", "--dev_fraction=0"], "--feature_based needs something to evalua"),
        (["--lstm_units=8"], "--lstm_units is the width of --feature_based's BiLSTM, which is not"),
    ],
)
def test_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(*NER, *given)


def test_other_tasks():
    with pytest.raises(ValueError, match=r"--feature_based means nothing to --task=mrpc: leave it"):
        parse("--task=mrpc", "--data_dir=g", "--init_checkpoint=c", "--feature_based=last")
