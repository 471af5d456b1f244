r"""Writes a BERT model's hidden states for lines of text: one vector per token or one per line.

    python -m bert_tf.extract_features --model=all-MiniLM-L6-v2 --input='text/*.gz' \
        --pooling=mean --output=embeddings

A line is one text, or a pair separated by " ||| ". To resume an interrupted extraction, rerun the
command. docs/guides/features.md describes the output files.
"""

from bert_tf.cli import command
from bert_tf.extraction.settings import ExtractionSettings, resolve
from bert_tf.io import paths


def main(settings: ExtractionSettings) -> None:
    """Runs the command."""
    settings = resolve(**vars(settings))
    paths.check_inputs(texts=settings.input, checkpoints=[settings.model], output=settings.output)
    # TensorFlow is loaded after all flags and paths are checked.
    command.load_tensorflow()
    from bert_tf.extraction.run import run

    run(settings)


if __name__ == "__main__":
    command.run(main, ExtractionSettings)
