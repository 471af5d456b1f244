"""From settings to what is trained: the config, and the model in its loop."""

import keras

from bert_tf.config import PRESETS, BertConfig
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines import vocabulary
from bert_tf.pretraining_settings import PretrainingSettings
from bert_tf.training import distribution, loop, optimizers, schedules
from bert_tf.training.phases import parse_phases


def resolve_config(settings: PretrainingSettings, vocab: list[str]) -> BertConfig:
    """The model's config: the preset with the vocabulary's size, or the file's as it stands.

    Raises:
        ValueError: the vocabulary is larger than the file's ``vocab_size``, or a phase is longer
            than the positions.
    """
    if settings.bert_config in PRESETS:
        config = BertConfig.from_preset(settings.bert_config, vocab_size=len(vocab))
    else:
        config = BertConfig.from_json(settings.bert_config)
        vocabulary.check_vocabulary_fits(vocab, config.vocab_size, settings.bert_config)
    for phase in parse_phases(settings.phases, settings.num_train_steps):
        if phase.max_seq_length > config.max_position_embeddings:
            raise ValueError(
                f"Rows of {phase.max_seq_length} tokens are longer than the model's "
                f"{config.max_position_embeddings} positions (max_position_embeddings)."
            )
    return config


def build_loop(
    settings: PretrainingSettings, config: BertConfig, devices: distribution.Distribution
) -> loop.PretrainingLoop:
    """Builds the model, its optimizer and the loop round them, on the devices."""
    distribution.set_precision(settings.precision, devices.device_type)
    # Keras draws initial weights from process-wide state: the only use of it in a run.
    keras.utils.set_random_seed(settings.seed)
    with devices.strategy.scope():
        model = BertPretrainer(config, nsp=settings.nsp)
        schedule = schedules.WarmupLinearDecay(
            settings.learning_rate, settings.num_warmup_steps, settings.num_train_steps
        )
        optimizer = optimizers.create_optimizer(
            settings.optimizer, schedule, model.trainable_variables
        )
    return loop.PretrainingLoop(
        model,
        optimizer,
        devices.strategy,
        seed=settings.seed,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
    )
