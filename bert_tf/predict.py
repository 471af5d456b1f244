r"""Predicts on unlabelled files with a fine-tuned model.

    python -m bert_tf.predict --model_dir=runs/sst2 --input=reviews.tsv --output=predictions.tsv

    python -m bert_tf.predict --model_dir=a-hugging-face-classifier --input=pairs.csv \
        --text_columns=premise,hypothesis --output=predictions.jsonl

--model_dir is what ``bert_tf.finetune`` left, which says its task, columns, labels and thresholds;
or any other checkpoint with a task's head, for which --text_columns says what to read. --input is a
.tsv, .csv or .jsonl table (.gz too), for tagging also CoNLL's columns and for squad SQuAD's JSON;
labels that it has are not looked at. The predictions are in its order, one for each row, with its
ids or the rows' numbers, and the probability of each class; a row without text has an ``error``
instead.
"""

import inspect

from absl import flags

from bert_tf import command, flag_fields
from bert_tf.choices import PRECISIONS, STRATEGIES


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flags.DEFINE_string("model_dir", None, "The fine-tuned model.")
    flags.DEFINE_string("input", None, "The file to predict.")
    flags.DEFINE_string(
        "output",
        None,
        "The file to write, replaced where it exists: .tsv or .jsonl; tagging: .conll too, squad: "
        ".json too. Standard output, tab-separated, without it.",
    )
    flags.DEFINE_list(
        "text_columns",
        None,
        "The columns to read, by default the training's: one text or two; tagging: the words; "
        "multiple_choice: the context and the choices (in .jsonl: one list of them); squad: "
        "question,context.",
    )
    flags.DEFINE_string(
        "id_column",
        None,
        "The column of ids; by default the training's where the file has it, else rows are counted "
        "from 0.",
    )
    flags.DEFINE_string("encoding", "utf-8", "tagging: the encoding of a file in CoNLL's columns.")
    flags.DEFINE_bool(
        "skip_bad_rows",
        False,
        "List bad rows instead of an error at the first: the output has them without a prediction, "
        "and says why. Rows without text are always listed.",
    )
    flags.DEFINE_float(
        "threshold",
        None,
        "Instead of the model's own. multilabel: the least probability of a class that holds; "
        'squad: answer "" where its score is this much over the best answer\'s.',
    )
    flags.DEFINE_integer(
        "max_seq_length", None, "The most tokens of a row; by default the training's."
    )
    flags.DEFINE_integer("batch_size", 64, "Examples at once, over all devices.", lower_bound=1)
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
    )
    flags.DEFINE_enum("strategy", "auto", STRATEGIES, flag_fields.STRATEGY)
    flags.DEFINE_bool("allow_pickle", False, flag_fields.ALLOW_PICKLE)


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    values = flags.FLAGS
    for name in ("model_dir", "input"):
        if not values[name].value:
            raise ValueError(f"--{name} is missing: predict needs --model_dir and --input.")
    # Only now: --help and wrong flags answer without loading TensorFlow.
    from bert_tf.finetuning.prediction import predict_file
    from bert_tf.training.distribution import open_devices

    names = set(inspect.signature(predict_file).parameters)
    with open_devices(values.strategy, values.precision).scope():
        predict_file(**{name: values[name].value for name in names})


if __name__ == "__main__":
    define_flags()
    command.run(main)
