"""``--init_checkpoint``: what a pre-training starts from, its config, vocabulary and weights."""

import dataclasses

from bert_tf.interchange.checkpoint import Checkpoint, ModelSpec
from bert_tf.interchange.load import select
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.interchange.weights import assign
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.training.run_directory import RunDirectory

from .settings import PretrainingSettings


def open_start(
    settings: PretrainingSettings, directory: RunDirectory | None = None
) -> tuple[PretrainingSettings, Checkpoint | None]:
    """Opens the checkpoint that a run starts from, if it starts from one.

    Args:
        settings: as the flags say.
        directory: the run's. Once it holds a checkpoint of its own, all that is needed lies there,
            and the one that the run started from may be gone.

    Returns:
        The settings, their casing the checkpoint's; and the checkpoint, ``None`` without
        ``--init_checkpoint``.

    Raises:
        ValueError: the checkpoint cannot be read, or the flags contradict it.
    """
    if not settings.init_checkpoint:
        return settings, None
    under_way = directory is not None and directory.has_checkpoint()
    path = directory.path if directory is not None and under_way else settings.init_checkpoint
    checkpoint = open_checkpoint(path, settings.allow_pickle)
    tokenization = checkpoint.tokenization
    if tokenization is None:
        if not settings.vocab_file or settings.do_lower_case is None:
            raise ValueError(
                f"{path} has no vocabulary to go on with ({' '.join(checkpoint.notes)}): give it "
                "by --vocab_file, and its casing by --do_lower_case."
            )
        return settings, checkpoint
    if settings.vocab_file and not under_way:
        raise ValueError(f"{path} has a vocabulary of its own: leave --vocab_file out.")
    lower = tokenization.do_lower_case
    if settings.do_lower_case not in (None, lower):
        raise ValueError(
            f"--do_lower_case={settings.do_lower_case} contradicts {path}, whose do_lower_case is "
            f"{lower}: leave the flag out."
        )
    return dataclasses.replace(settings, do_lower_case=lower), checkpoint


def pretrainer_spec(nsp: bool) -> ModelSpec:
    """The model that a run trains."""
    return ModelSpec("BertPretrainer", {"mlm": True, "nsp": nsp, "pooler": nsp})


def initialise_pretrainer(model: BertPretrainer, checkpoint: Checkpoint) -> list[str]:
    """Gives a model the weights of a checkpoint; a head that it lacks stays new.

    Returns:
        Sentences on what was new, or was not used.

    Raises:
        ValueError: a weight of the encoder is missing, or has another shape.
    """
    tensors, report = select(checkpoint, pretrainer_spec(model.nsp))
    assign(model, tensors)
    return report.sentences(checkpoint.path)
