r"""Writes a BERT's hidden states of text: a vector for each token, or one for each line.

    python -m bert_tf.extract_features --model=all-MiniLM-L6-v2 --input='text/*.gz' \
        --pooling=mean --output=embeddings

A line is a sentence, or two with " ||| " between them. The same command resumes one that was
stopped; docs/guides/features.md describes the files.
"""

from bert_tf.cli import command
from bert_tf.extraction.settings import ExtractionSettings, resolve
from bert_tf.io import paths


def main(settings: ExtractionSettings) -> None:
    """Runs the command."""
    settings = resolve(**vars(settings))
    paths.check_inputs(texts=settings.input, checkpoints=[settings.model], output=settings.output)
    # TensorFlow loads here, after the flags were found good.
    command.load_tensorflow()
    from bert_tf.extraction.run import run

    run(settings)


if __name__ == "__main__":
    command.run(main, ExtractionSettings)
