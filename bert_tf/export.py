r"""Exports a model to TensorFlow Serving: strings in, answers out, the tokenizer inside.

    python -m bert_tf.export --model=runs/sst2 --output=exports/sst2/1

    python -m bert_tf.export --model=all-MiniLM-L6-v2 --output=exports/minilm/1 --normalize \
        --weights=float16

    docker run -p 8501:8501 -v $PWD/exports/sst2:/models/sst2 -e MODEL_NAME=sst2 tensorflow/serving

--model is anything that ``bert_tf.load`` reads, with its vocabulary; a run of ``bert_tf.finetune``
records how to serve it. --output is a new directory whose name is a number, the version. It holds a
SavedModel, which answers without this library, and in assets.extra/ a model card (README.md) and
sample requests with their answers.

| the model's head     | what serving_default answers                                           |
|----------------------|------------------------------------------------------------------------|
| classes, one number  | the class's name and all probabilities; the number; of text or pairs   |
| a tag for each token | entities with their places in the text                                 |
| spans                | question and context: the answer with its place, and others            |
| multiple choice      | the choice that follows the text                                       |
| masked LM            | guesses for each literal [MASK]                                        |
| none                 | embeddings: mean, [CLS], pooled and --layers                           |

With --onnx the directory, of any name, holds an ONNX file in place of the SavedModel: the model on
ids, with the tokenizer's files, the labels and samples next to it (pip install 'bert_tf[onnx]').

A model of sentence embeddings also compares texts with others and, with --corpus=FILE, searches.

Every model also has a signature for ids from a tokenizer of one's own; masked LM also has one for
embeddings and one for next sentences, tags one for words that are split already.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_tf import paths
from bert_tf.choices import ONNX_PRECISIONS, PRECISIONS, QUANTIZATIONS, WEIGHTS
from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_rules import Given, Values, needs, required, without
from bert_tf.untrusted import check_model_name

if TYPE_CHECKING:
    from bert_tf.interchange.checkpoint import Checkpoint
    from bert_tf.modeling.base import BertModel
    from bert_tf.saved_models.comparison import Difference
    from bert_tf.saved_models.exporting import Exported
    from bert_tf.saved_models.onnx_files import OnnxExport
    from bert_tf.saved_models.search import Corpus
    from bert_tf.saved_models.served import ExportOptions

# The flags that are fields of ``ExportOptions``.
_OPTIONS = (
    *("max_seq_length", "precision", "weights", "pair", "top_k", "layers", "normalize"),
    "embedding_dims",
    *("doc_stride", "max_query_length", "n_best", "max_answer_length", "raw_probabilities"),
    "transformers_signature",
    *("max_rows", "max_bytes", "max_masks", "allowed_batch_sizes"),
)
# The most texts of a corpus that static vectors are judged on, and the runs that a time is the
# mean of.
_MOST_JUDGED, _TIMES = 1000, 20
# What a table of static vectors has no place for: it has a size and numbers of its own.
_NOT_OF_STATIC = (*(name for name in _OPTIONS if name != "max_seq_length"), "tflite")
# What ONNX files have no place for: they take ids, and --onnx says how they compute.
_NOT_OF_ONNX = (
    *(name for name in _NOT_OF_STATIC if name not in ("layers", "normalize", "embedding_dims")),
    "corpus",
)


def _of_spans(what: str) -> Any:
    return flag_fields.integer(None, f"Spans: {what}; by default the training's.")


_NEEDED = required("export needs --model and --output")


def _is_version(name: str, values: Values, given: Given) -> str:
    output = values[name].rstrip("/")
    version = os.path.basename(output)
    if values["onnx"] or (version.isascii() and version.isdecimal()):
        return ""
    return (
        f"--{name}={values[name]} does not end in a number, which TensorFlow Serving finds a "
        f"version by: name {output}/1."
    )


def _is_name(name: str, values: Values, given: Given) -> str:
    check_model_name(values[name])
    return ""


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Every flag; of the signatures ``None`` is what the directory says, else the default."""

    model: str = flag_fields.string(
        None,
        "The model: a run, a checkpoint of any format that bert_tf.load takes, hf://OWNER/NAME, or "
        "tiny.",
        rules=[_NEEDED],
        other_name="checkpoint",
    )
    output: str = flag_fields.string(
        None, "The version's directory, such as exports/mine/1.", rules=[_NEEDED, _is_version]
    )
    name: str = flag_fields.string(
        "bert",
        "The model's name in a server, a part of the address that clients call.",
        rules=[_is_name],
    )
    max_seq_length: int | None = flag_fields.integer(
        None,
        "The most tokens of a row, [CLS] and [SEP] included; by default the training's of a "
        "fine-tuned model, that of sentence embeddings, else all of the model's positions.",
    )
    pair: bool | None = flag_fields.switch(
        None,
        "Classes and numbers: whether serving_default takes text and text_pair; by default as the "
        "model was fine-tuned.",
    )
    raw_probabilities: bool | None = flag_fields.switch(
        None,
        "Serve the model's own probabilities, not calibrated by the temperature that was fitted on "
        "dev.",
    )
    transformers_signature: bool | None = flag_fields.switch(
        None,
        "Give serving_default the inputs and outputs that SavedModels of transformers' TFBert "
        "classes had (input_ids, attention_mask, token_type_ids; logits), so that their clients "
        "go on; the signature named strings then takes strings.",
    )
    top_k: int | None = flag_fields.integer(
        None, "Masked LM: the guesses for each [MASK]; 5 by default."
    )
    layers: Sequence[str] | None = flag_fields.words(
        None,
        "Embeddings: blocks whose states are returned too, -1 for the last and 0 for the lowest.",
    )
    normalize: bool | None = flag_fields.switch(None, "Embeddings: scale them to length 1.")
    embedding_dims: int | None = flag_fields.integer(None, flag_fields.EMBEDDING_DIMS, least=1)
    doc_stride: int | None = _of_spans("tokens between the starts of two windows of a context")
    max_query_length: int | None = _of_spans("the most tokens of a question")
    n_best: int | None = _of_spans("how many answers are given to a question")
    max_answer_length: int | None = _of_spans("the most tokens of an answer")
    precision: str | None = flag_fields.choice(
        None, PRECISIONS, "The arithmetic; float32 by default."
    )
    weights: str | None = flag_fields.choice(
        None,
        WEIGHTS,
        "How the weights are stored; float32 by default. bfloat16 and float16 take half of the "
        "space, int8 a quarter.",
    )
    max_rows: int | None = flag_fields.integer(
        None,
        "Refuse requests of more rows; by default no limit, but a server that batches refuses "
        "more than 64.",
    )
    max_bytes: int | None = flag_fields.integer(
        None, "Refuse requests with more bytes of text in a row; by default no limit."
    )
    max_masks: int | None = flag_fields.integer(
        None, "Masked LM: refuse requests with more [MASK] in a text; by default no limit."
    )
    allowed_batch_sizes: Sequence[str] | None = flag_fields.words(
        None, "The sizes that a server pads its batches to, as 8,16,32,64; by default none."
    )
    tflite: str | None = flag_fields.choice(
        None,
        QUANTIZATIONS,
        "Also write assets.extra/tokens.tflite, the encoder for TF Lite, which takes ids. none: "
        "float32 weights. int8: matrix products in int8, too.",
    )
    onnx: str | None = flag_fields.choice(
        None,
        ONNX_PRECISIONS,
        "Write an ONNX file that takes ids instead of a SavedModel. int8: matrix products in int8, "
        "by ONNX Runtime's dynamic quantisation.",
        rules=[
            without(
                *_NOT_OF_ONNX,
                says="--{other} means nothing with --{flag}, whose file takes ids and has its own "
                "precision: leave one of the two out.",
            )
        ],
    )
    corpus: str | None = flag_fields.string(
        None,
        "Sentence embeddings: texts that the signature search finds: a .csv, .tsv, .jsonl, .json "
        "or .parquet table (.gz too), or a .txt with one on each line. Equal texts count once.",
    )
    corpus_column: str = flag_fields.string(
        "text", "The column of a --corpus that is a table.", rules=[needs("corpus")]
    )
    delimiter: str | None = flag_fields.delimiter("a --corpus that is a", rules=[needs("corpus")])
    encoding: str = flag_fields.encoding("a --corpus that is text", rules=[needs("corpus")])
    nearest: int = flag_fields.integer(
        10, "--corpus: how many texts are found.", least=1, rules=[needs("corpus")]
    )
    static_dims: int | None = flag_fields.integer(
        None,
        "Sentence embeddings, with --corpus: export a table of this many numbers for each piece "
        "of the vocabulary instead of the model: a text's vector is the mean of its pieces', in a "
        "hundredth of the time. How much of the model's similarities is kept is printed.",
        least=1,
        rules=[
            needs("corpus"),
            without(
                *_NOT_OF_STATIC,
                says="--{other} means nothing with --{flag}, which exports a table of float32 "
                "vectors of length 1 instead of the model: leave one of the two out.",
            ),
        ],
    )


def define_flags(values: flags.FlagValues | None = None) -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(ExportSettings, flags.FLAGS if values is None else values)


def main(argv: Sequence[str]) -> None:
    """Exports, and prints what is where."""
    del argv
    settings = flag_fields.checked(ExportSettings, flags.FLAGS)
    files = [settings.corpus] if settings.corpus else []
    paths.check_inputs(files=files, checkpoints=[settings.model])
    run(settings)


def run(
    settings: ExportSettings, model: "BertModel | None" = None
) -> "Exported | OnnxExport | None":
    """Exports a checkpoint, or a ``model`` in memory; prints what is where.

    Of a table of static vectors ``None`` is returned.
    """
    output = settings.output.rstrip("/")
    # TensorFlow loads here, after the flags were found good.
    from bert_tf.files import check_new
    from bert_tf.interchange.load import load_with_report
    from bert_tf.interchange.recognition import open_checkpoint
    from bert_tf.interchange.saving import checkpoint_of
    from bert_tf.saved_models import export
    from bert_tf.saved_models.onnx_files import check_installed

    if settings.onnx:
        check_installed()
    check_new(output)
    if model is None:
        print(f"Reading {settings.model}.", flush=True)
        checkpoint = open_checkpoint(settings.model)
        options = _options(checkpoint, settings)
        model, report = load_with_report(checkpoint)
        if model.preprocessor is None:
            raise ValueError(report.notes[-1])  # which says why
        for sentence in report.sentences(settings.model):
            print(sentence)
    else:
        checkpoint = checkpoint_of(model)
        settings = dataclasses.replace(settings, model=checkpoint.path)  # for errors
        options = _options(checkpoint, settings)
    print(f"Exporting a {checkpoint.model.class_name}.", flush=True)
    if settings.onnx:
        return _write_onnx(model, options, output, settings)
    if settings.static_dims:
        _export_static(model, options, output, settings)
        return None
    exported = export(
        model,
        output,
        options=options,
        name=settings.name,
        tflite=settings.tflite,
        corpus=_corpus(model, options, settings),
    )
    _report(exported)
    return exported


def _options(checkpoint: "Checkpoint", settings: ExportSettings) -> "ExportOptions":
    """The flags, else what the directory says, else the defaults."""
    from bert_tf.finetuning.run import export_options
    from bert_tf.saved_models.signatures import classes_with_option
    from bert_tf.tasks.task_file import task_of

    if checkpoint.tokenization is None:
        raise ValueError(
            f"{checkpoint.path} has no vocabulary ({' '.join(checkpoint.notes)}): put its "
            "vocab.txt into the directory."
        )
    values = {name: getattr(settings, name) for name in _OPTIONS}
    given = {name: value for name, value in values.items() if value is not None}
    for name in given:
        meant_for = classes_with_option(name)
        if meant_for and checkpoint.model.model_class not in meant_for:
            raise ValueError(
                f"--{name} means nothing to a {checkpoint.model.class_name}, which "
                f"{checkpoint.path} holds: leave it out (it is for "
                f"{' and '.join(model_class.__name__ for model_class in meant_for)})."
            )
    for name, example in (("layers", "-1,-2"), ("allowed_batch_sizes", "8,16,32")):
        if name not in given:
            continue
        try:
            given[name] = tuple(int(number) for number in given[name])
        except ValueError:
            raise ValueError(
                f"--{name}={','.join(map(str, given[name]))}: expected whole numbers such as "
                f"{example}."
            ) from None
    options = export_options(task_of(checkpoint))
    return dataclasses.replace(options, **given)


def _corpus(
    model: "BertModel", options: "ExportOptions", settings: ExportSettings
) -> "Corpus | None":
    """What is to be searched, read and embedded; its size is checked before."""
    if settings.corpus is None:
        return None
    from bert_tf.saved_models.search import Corpus, check_size
    from bert_tf.tasks.embedding import open_embedder

    texts = _corpus_texts(settings)
    check_size(len(texts), options.embedding_dims or model.embedding_size, settings.nearest)
    embedder = open_embedder(
        model,
        options.max_seq_length,
        embedding_dims=options.embedding_dims,
        name=settings.model,
    )
    return Corpus(texts, embedder.directions(texts, "Corpus"), settings.nearest)


def _corpus_texts(settings: ExportSettings) -> list[str]:
    """The different texts of a ``--corpus``; blank lines of a .txt are none."""
    from bert_tf.readers.examples import BadRows, filled_text
    from bert_tf.readers.records import LINES, LINES_COLUMN
    from bert_tf.readers.tables import TableFile, check_delimiter, read_columns

    path = str(settings.corpus)
    is_lines = path.removesuffix(".gz").endswith(".txt")
    column = LINES_COLUMN if is_lines else settings.corpus_column
    delimiter = check_delimiter(settings.delimiter)
    table = TableFile(path, settings.encoding, delimiter, LINES if is_lines else None)
    bad = BadRows(path, skip=None)
    rows = read_columns(table, [column], bad)
    if is_lines:
        rows = ((place, row) for place, row in rows if row.values[0].strip())
    try:
        found = bad.collect(rows, lambda row: filled_text(row.values[0], repr(column)))
    except ValueError as error:
        if is_lines or repr(column) not in str(error):
            raise
        # The column may be the default, which nobody named.
        raise ValueError(f"--corpus_column={column}: {error}") from error
    return list(dict.fromkeys(found))


def _export_static(
    model: "BertModel", options: "ExportOptions", output: str, settings: ExportSettings
) -> None:
    """Exports static vectors; says what is left of the model's similarities, and how fast it is."""
    import time

    import numpy as np
    import tensorflow as tf

    from bert_tf.files import move_new, scratch_directory
    from bert_tf.metrics.formulas import spearman_correlation
    from bert_tf.saved_models.search import Corpus
    from bert_tf.saved_models.static import TABLE, Static, export_static, static_table
    from bert_tf.tasks.embedding import open_embedder

    dims, size = settings.static_dims or 0, model.embedding_size
    embedder = open_embedder(model, options.max_seq_length, name=settings.model)
    if dims > size:
        raise ValueError(f"--static_dims={dims}: expected {size} at most, as vectors have so many.")
    texts = _corpus_texts(settings)
    tokenizer = model.preprocessor.tokenizer
    pieces = tokenizer.tokenize(tf.constant(texts)).flat_values.numpy()
    table = static_table(model, dims, np.bincount(pieces, minlength=tokenizer.vocab_size))
    static = Static(tokenizer, table)
    vectors = static.directions(tf.constant(texts)).numpy()
    corpus = Corpus(texts, vectors, settings.nearest)
    judged = texts[:: -(-len(texts) // _MOST_JUDGED)]
    # It takes its place when all is measured: the same command goes again after an interrupt.
    with scratch_directory(output) as folder:
        made = os.path.join(folder, "1")
        oldest = export_static(static, made, corpus, settings.name)
        embedder.directions(judged[:1], "The first text")  # which is mostly tracing
        began = time.perf_counter()
        theirs = embedder.directions(judged, "The model's vectors")
        seconds = [time.perf_counter() - began]
        embed = tf.saved_model.load(made).signatures["embed"]
        ours = embed(text=tf.constant(judged))["sentence_embedding"].numpy()
        for batch in (judged, judged[:1]):
            began = time.perf_counter()
            for _ in range(_TIMES):
                embed(text=tf.constant(batch))
            seconds.append((time.perf_counter() - began) / _TIMES)
        move_new(made, output)
    kept = "is not compared with the model's: that takes three texts."
    if len(judged) > 2:  # two have one similarity, which is in no order
        above = np.triu_indices(len(judged), 1)
        share = spearman_correlation(*((found @ found.T)[above] for found in (theirs, ours)))
        kept = f"is the model's to {share:.3f} (Spearman)."
    print(
        f"Static: {dims} numbers for each of {len(table):,} pieces ({TABLE} has them for NumPy).\n"
        f"The order of the similarities of {len(judged):,} texts {kept}\n"
        f"One text takes {seconds[2] * 1000:.2f} ms; {len(judged) / seconds[1]:,.0f} "
        f"texts a second, the model's {len(judged) / seconds[0]:,.0f}.\n{output}: embed, search; "
        f"TensorFlow Serving {oldest} and later run it."
    )


def _write_onnx(
    model: "BertModel",
    options: "ExportOptions",
    output: str,
    settings: ExportSettings,
) -> "OnnxExport":
    from bert_tf.files import size_of, whole_directory
    from bert_tf.interchange.checkpoint import Tokenization
    from bert_tf.interchange.tokenizer_files import write_tokenization
    from bert_tf.saved_models.onnx_files import write_onnx
    from bert_tf.saved_models.precision import max_seq_length

    tokenizer = model.preprocessor.tokenizer
    with whole_directory(output) as folder:
        tokenization = Tokenization(tuple(tokenizer.vocab), tokenizer.do_lower_case)
        write_tokenization(folder, tokenization, max_seq_length(model, options))
        exported = write_onnx(
            model,
            folder,
            tokenizer=tokenizer,
            options=options,
            precision=settings.onnx or "float32",
            name=settings.name,
        )
    inputs, answers = exported.signature.inputs, exported.differences
    print(f"model.onnx: {', '.join(inputs)} -> {', '.join(answers)}")
    print(f"{output}: {size_of(output) / 1e6:,.1f} MB.")
    print("Differences of ONNX Runtime's answers to the samples from Keras' in float32:")
    _report_differences(exported.differences)
    print(f"\nWhat comes next:\n  python -m bert_tf.verify {output}\n  less {output}/README.md")
    return dataclasses.replace(exported, path=output)


def _report_differences(differences: "Mapping[str, Difference]") -> None:
    from bert_tf.saved_models.comparison import describe

    for output, difference in differences.items():
        print(f"  {output}: {describe(difference)}")


def _report(exported: "Exported") -> None:
    from bert_tf.files import size_of

    print("Signatures:")
    for name, signature in exported.signatures.items():
        answers = ", ".join(exported.outputs[name])
        print(f"  {name}: {', '.join(signature.inputs)} -> {answers}")
    print(f"{exported.path}: {size_of(exported.path) / 1e6:,.1f} MB.")
    print(f"TensorFlow Serving {exported.oldest_serving} and later run it.")
    for what, by_output in exported.differences.items():
        if what.endswith(".tflite"):
            size = size_of(os.path.join(exported.path, what))
            print(f"{what}: {size / 1e6:,.1f} MB.")
        print(f"Differences of {what} from float32 on the samples:")
        _report_differences(by_output)
    print(f"\nWhat comes next:\n  python -m bert_tf.verify {exported.path}")
    if "://" not in exported.path:
        folder = os.path.dirname(os.path.abspath(exported.path))
        print(
            f"  docker run -p 8501:8501 -v {folder}:/models/{exported.name} "
            f"-e MODEL_NAME={exported.name} tensorflow/serving"
        )
    print(f"  less {os.path.join(exported.path, 'assets.extra', 'README.md')}")


if __name__ == "__main__":
    define_flags()
    command.run(main)
