"""Task type for tagging words with named entities or other tags."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf import features
from bert_tf.choices import FEATURE_BASED
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import Given, Values, conflicts_with, requires_flag, rule
from bert_tf.evaluation.metrics import (
    ENTITY_SCORES,
    LOSS,
    TAG_SCORES,
    Comparison,
    compare_entities,
    compare_tags,
    count_confusions,
    total,
)
from bert_tf.io.messages import did_you_mean, quote
from bert_tf.readers.tables import TableFile
from bert_tf.tasks.task import RANDOM, FormReader, Items, Task, label_counts, predict, tokenized
from bert_tf.tasks.training_options import NEEDS_DEV_SET, ClassWeights, parse_class_weights

from .entities import Entity, find_all, find_odd_tags, find_scored, is_tag
from .reader import read_conll, read_tagging

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.readers.examples import TaggedExample

_NO_ENTITY = "(none)"
_ALL_FEATURES = "all"
# The paper does not specify how the BiLSTM is trained.
_FEATURES_DEFAULTS = {"learning_rate": 1e-3, "num_train_epochs": 10, "lstm_units": 768}


def _are_variants(name: str, values: Values, given_flags: Given) -> str:
    """Rejects names that are not choices of layers."""
    variants, known = values[name], ", ".join(FEATURE_BASED)
    if variants is not None and not variants:
        return f"--{name} is empty: expected one or more of {known}, or {_ALL_FEATURES}."
    unknown = next((v for v in variants or () if v not in (*FEATURE_BASED, _ALL_FEATURES)), "")
    return unknown and (
        f"--{name}={unknown} is unknown{did_you_mean(unknown, FEATURE_BASED)}: expected one or "
        f"more of {known}, or {_ALL_FEATURES}."
    )


@dataclasses.dataclass(frozen=True)
class _Options(ClassWeights):
    character_spans: bool = flag_fields.switch(
        False,
        "tagging: read a text and a list of its entities, each like "
        '{"start": 0, "end": 3, "label": "PER"}, where end is the index after the last character '
        "(.jsonl, .json, .parquet).",
        only="tables",
        rules=[
            rule(
                lambda is_on, values: (
                    is_on and not TableFile(values["train_file"]).has_typed_fields
                ),
                "--{flag} requires lists of entities, which {train_file} cannot contain. Use a "
                "table in .jsonl, .json or .parquet.",
            )
        ],
        heading="Tags",
    )
    document_context: bool = flag_fields.switch(
        False,
        "ner: fill each row with the surrounding sentences of the document, as in the paper.",
        only="published",
        saved_in_task_file=True,
        advanced=True,
    )
    feature_based: str | None = flag_fields.words(
        None,
        "ner, tagging: train a two-layer BiLSTM on features of the frozen encoder, with one run "
        f"per choice of layers ({', '.join(FEATURE_BASED)} or {_ALL_FEATURES}), and compare the "
        f"runs (defaults: --learning_rate={_FEATURES_DEFAULTS['learning_rate']:g} "
        f"--num_train_epochs={_FEATURES_DEFAULTS['num_train_epochs']}).",
        rules=[
            _are_variants,
            NEEDS_DEV_SET,
            conflicts_with(
                *("hidden_dropout_prob", "freeze", "pooling", "sweep"),
                message="--{other} is not supported with --{flag}, which freezes the encoder. "
                "Remove the flag.",
            ),
        ],
        advanced=True,
    )
    lstm_units: int | None = flag_fields.integer(
        None,
        "--feature_based: number of BiLSTM units per direction; by default "
        f"{_FEATURES_DEFAULTS['lstm_units']}, as in the paper.",
        min_value=1,
        rules=[
            requires_flag("feature_based", "--{flag} requires --feature_based. Remove the flag.")
        ],
        advanced=True,
    )

    def __post_init__(self) -> None:
        """Sorts the choices of layers as in the paper and joins them with commas."""
        if isinstance(names := self.feature_based, list):
            variants = [name for name in FEATURE_BASED if name in names or _ALL_FEATURES in names]
            object.__setattr__(self, "feature_based", ",".join(variants))

    @property
    def variants(self) -> tuple[str, ...]:
        """Choices of layers for training on frozen features; () to fine-tune the encoder."""
        return tuple(self.feature_based.split(",")) if self.feature_based else ()


class TaggingTask(Task):
    """Tagging of the words in sentences.

    If the labels are entity tags (O, B-TYPE, I-TYPE; IOB1, IOB2, BIOES or BILOU), the scores are
    ``f1``, ``precision`` and ``recall`` over all entities, ``f1_TYPE`` per type, and ``accuracy``,
    the fraction of words with the correct tag. Invalid entity tags, such as misspelled ones, are
    scored as O. For other tags, such as parts of speech, the scores are ``accuracy`` and
    ``macro_f1``, the mean F1 of the tags that occur among labels or predictions.

    Words are tagged at their first token, without a CRF. With ``document_context``, rows are filled
    with the surrounding sentences of the document. The loss is the mean cross-entropy of the words
    in a batch.

    With ``feature_based``, a ``BertFeatureTagger`` is trained on the first given choice of layers
    (the paper's "Feature-based Approach with BERT"). The frozen encoder runs once per data set, and
    ``word_states`` stores the encoder's states in ``folder``.

    Source: Devlin et al. 2019, section 5.3.
    """

    kind = "tagging"
    published = ("ner",)
    Options = _Options
    model = "BertTokenClassifier"
    alternative_model = "BertFeatureTagger"
    text_form = "WORDS"
    num_texts = (1, 1)
    default_texts = ("words",)
    in_memory_columns = (("words",),)
    reads_words = True
    default_label = "tags"
    metrics = (*ENTITY_SCORES, *TAG_SCORES, LOSS)
    class_metrics = True
    classes = "tags"
    size_format = "{items:,} sentences in {rows:,} rows"
    truncation_note = (
        "{count:,} of the training sentences are read in several rows of {length} tokens "
        "(--max_seq_length)."
    )
    no_prediction = MappingProxyType({"id": "", "words": (), "tags": (), "scores": ()})
    output_suffixes = (*Task.output_suffixes, ".conll")
    read = staticmethod(read_tagging)

    @classmethod
    def changed_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the defaults of the BiLSTM: a higher learning rate and more epochs."""
        return _FEATURES_DEFAULTS if values["feature_based"] else {}

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Groups sentences by document if there are enough documents, else identical sentences."""
        documents = len({item.document for item in items})
        # With few documents, a single one would exceed the fraction. In tables, each row is a
        # document.
        if fraction * documents >= 1 and documents < len(items):
            return (lambda item: item.document), "whole documents"
        return (lambda item: item.words), RANDOM

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """Returns the reader for CoNLL's column format, unless the model was trained on texts."""
        reads_texts = columns.get("character_spans")
        return None if reads_texts else FormReader(read_conll, lambda path: True)

    def __init__(self, *data: Any, folder: str = "", **common: Any) -> None:
        from .word_states import WordStates

        self._states = WordStates(folder)  # shared by all copies
        super().__init__(*data, folder=folder, **common)

    def _apply(self, options: Any) -> None:
        variants = options.variants
        self._variant = variants[0] if variants else None
        self.model = self.alternative_model if variants else type(self).model
        super()._apply(options)

    @property
    def model_arguments(self) -> dict[str, Any]:
        """Arguments of the model, including the layers and LSTM units for frozen features."""
        arguments = super().model_arguments
        if not self._variant:
            return arguments
        return {**arguments, "variant": self._variant, "lstm_units": self.options.lstm_units}

    def loss(self) -> Any:
        import keras

        from bert_tf.tasks.losses import SmoothedCrossEntropy

        smoothing, weights = self.options.label_smoothing, None
        if self.options.class_weights:  # balanced weights depend on the number of words per tag
            counts = label_counts(self, None)
            weights = parse_class_weights(self.options.class_weights, self.labels, counts)
        if smoothing or weights:
            return SmoothedCrossEntropy(smoothing, list(weights.values()) if weights else None)
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=features.NO_LABEL
        )

    @property
    def default_metric(self) -> str:
        """F1 for entity tags, or accuracy for other tags."""
        return "f1" if self._has_entities else "accuracy"

    @property
    def unavailable_metrics(self) -> Sequence[str]:
        """Macro F1 for entity tags, or entity scores for other tags."""
        return ("macro_f1",) if self._has_entities else ENTITY_SCORES

    @property
    def logged_scores(self) -> Sequence[str]:
        """All scores, and the F1 of each entity type."""
        types = self.scored_classes if self._has_entities else ()
        return [*super().logged_scores, *(f"f1_{name}" for name in types)]

    @functools.cached_property
    def _odd(self) -> set[str] | None:
        """Invalid tags among entity tags; ``None`` if the tags are not entity tags."""
        counts = collections.Counter(
            tag for item in (self._train.items if self._train else ()) for tag in item.tags or ()
        )
        odd = {name for name in self.labels if not is_tag(name)}
        are_entities = any(is_tag(name) and name != "O" for name in self.labels)
        return odd if are_entities and odd <= set(find_odd_tags(counts)) else None

    @property
    def _has_entities(self) -> bool:
        return self._odd is not None

    def describe_constant_targets(self) -> str:
        if len(self.labels) == 1:  # Keras has no loss for one class
            tag = quote(self.labels[0])
            raise ValueError(
                f"{self.name}: every word has the tag {tag}: expected two or more different tags."
            )
        return ""

    @property
    def scored_classes(self) -> Sequence[str]:
        """The entity types or, for other tags, the tags."""
        if not self._has_entities:
            return self.labels
        label_entities = self._entities([[label] for label in self.labels])
        return sorted({entity.type for entities in label_entities for entity in entities})

    @classmethod
    def words_to_write(
        cls, labels: Sequence[str], items: Iterable[Any]
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yields the model's tags, then the words of each example, each with its source."""
        yield "a tag of the model", labels
        for item in items:
            yield f"row {item.id}", item.words

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """Adds the entities column for texts with character spans."""
        from bert_tf.evaluation.prediction_files import ENTITIES

        first = next(iter(items), None)
        has_spans = first.offsets if first else columns.get("character_spans")
        return {**cls.no_prediction, **({ENTITIES: None} if has_spans else {})}

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Examples:
        """Tokenizes sentences; the batches include tag ids, (B, S), if ``labelled`` is true."""
        from .rows import tagging_examples

        return tagging_examples(
            tokenizer,
            [item.words for item in items],
            tags=[self._tag_ids(item) for item in items] if labelled else None,
            documents=[item.document for item in items] if self.options.document_context else None,
            max_seq_length=max_seq_length,
        )

    @staticmethod
    def loss_weight(targets: Any) -> tf.Tensor:
        """Returns the number of tagged words, over which the loss is averaged."""
        import tensorflow as tf

        return tf.reduce_sum(tf.cast(targets != features.NO_LABEL, tf.float32))

    def example_classes(self, item: TaggedExample) -> Sequence[str]:
        return item.tags or ()

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        """Computes scores and finds the sentences with mistakes.

        The loss of a mistake is the sum of the losses of the sentence's words. Mistakes show all
        entities of the sentence or, for other tags, the incorrect words.
        """
        from bert_tf.evaluation.evaluation import Evaluation, predict_classes, worst_mistakes

        true = np.concatenate([self._tag_ids(item) for item in items])
        predicted, losses, _, fields = predict_classes(outputs, true, thresholds)
        names = iter([self.labels[number] for number in predicted.tolist()])
        tags = [[next(names) for _ in item.words] for item in items]
        sentence = np.repeat(np.arange(len(items)), [len(item.words) for item in items])
        losses = np.bincount(sentence, losses)
        show = self._show_entities if self._has_entities else _show_differences
        comparison = self._compare(items, tags, losses)

        def describe(index: int) -> tuple[dict[str, str], str, str]:
            return self.display_texts(items[index]), *show(items[index], tags[index])

        return Evaluation(
            **fields,
            scores=self.select_scores(comparison),
            mistakes=worst_mistakes(items, losses, ~np.asarray(comparison.is_correct), describe),
            comparison=comparison,
            confusion=count_confusions(true, predicted),
        )

    def _compare(
        self, items: Items, tags: Sequence[Sequence[str]], losses: np.ndarray | None = None
    ) -> Comparison:
        """Compares predicted tags with the labels; ``losses`` (N,) are the losses of sentences."""
        gold = [item.tags for item in items]
        if not self._has_entities:
            return compare_tags(gold, tags, losses)
        entities = zip(self._entities(gold), self._entities(tags), strict=True)
        return compare_entities(gold, tags, [*entities], losses)

    @staticmethod
    def display_texts(item: TaggedExample) -> dict[str, str]:
        return {"": " ".join(item.words)}

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, Any]:
        from .answer import answer_tags

        return answer_tags(outputs, thresholds)

    def answers(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[Mapping[str, Any]]:
        """Yields the tags and scores of each sentence, given the logits of all words."""
        from bert_tf.answering.classes import name_numbers

        answers = self.answer(outputs, thresholds)
        begins = np.cumsum([len(item.words) for item in items])[:-1]
        tags, scores = (np.split(answers[key].numpy(), begins) for key in ("tags", "scores"))
        for numbers, probabilities in zip(tags, scores, strict=True):
            yield {"tags": name_numbers(numbers, self.labels), "scores": probabilities.tolist()}

    def records(
        self, items: Items, answers: Iterable[Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yields words, tags and scores, and the entities of texts with character spans."""
        from bert_tf.evaluation.prediction_files import ENTITIES

        rows = list(answers)
        spans: Sequence[Any] = [[]] * len(rows)
        if self._has_entities:
            tags = [self._as_entities(row["tags"]) for row in rows]
            spans = find_scored(tags, np.concatenate([row["scores"] for row in rows]))
        for item, row, entities in zip(items, rows, spans, strict=True):
            record = {
                "words": item.words,
                "tags": tuple(row["tags"]),
                "scores": tuple(row["scores"]),
            }
            if item.offsets:
                record[ENTITIES] = [_in_text(item, *entity) for entity in entities]
            yield record

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Writes ``SET.conll`` and, for labeled entities, ``SET_entities.tsv``.

        If words or tags contain white space, which CoNLL's format does not support, ``SET.jsonl``
        replaces ``SET.conll``.
        """
        from bert_tf.evaluation.prediction_files import columns_suffix, write_file

        items = self.sets[set_name].items
        records = list(predict(self, inference, set_name, thresholds))
        suffix = columns_suffix([*self.labels, *(word for item in items for word in item.words)])
        columns = os.path.join(folder, f"{set_name}{suffix}")
        pairs = zip(items, records, strict=True)
        write_file(columns, ({**r, "expected": i.tags} if i.tags else r for i, r in pairs))
        if not (self._has_entities and set_name in self.dev_sets):
            return [columns]
        table = os.path.join(folder, f"{set_name}_entities.tsv")
        classes = self._compare(items, [record["tags"] for record in records]).classes
        scores = [("all", total(classes.values())), *classes.items()]
        write_file(table, [{"type": kind, **score.to_dict()} for kind, score in scores])
        return [columns, table]

    def _as_entities(self, tags: Sequence[str]) -> list[str]:
        """Replaces tags that are not entity tags with O."""
        return ["O" if tag in (self._odd or ()) else tag for tag in tags]

    def _entities(self, tags: Sequence[Sequence[str]]) -> list[list[Entity]]:
        return find_all(list(map(self._as_entities, tags)))

    def _show_entities(self, item: TaggedExample, tags: Sequence[str]) -> tuple[str, str]:
        """Formats the true and the predicted entities."""
        expected, predicted = (
            "; ".join(
                f"{entity.type}: {' '.join(item.words[entity.start : entity.end])}"
                for entity in entities
            )
            for entities in self._entities([item.tags or (), tags])
        )
        return expected or _NO_ENTITY, predicted or _NO_ENTITY

    def _tag_ids(self, item: TaggedExample) -> list[int]:
        return [self._ids[tag] for tag in item.tags or ()]

    def prepare_examples(self, model: Any, examples: Examples) -> Examples:
        """Replaces tokens with the frozen encoder's states if the model is feature-based."""
        if self._variant is None:
            return examples
        return self._states.encode(model, examples)

    def _outputs(self, inference: Inference, set_name: str) -> np.ndarray:
        """Returns the logits of all words of all sentences, (W, C) float32."""
        items = self.sets[set_name].items
        begins = np.cumsum([0, *(len(item.words) for item in items)])
        logits_of_words = np.zeros([begins[-1], len(self.labels)], np.float32)
        examples = self.prepare_examples(inference.model, tokenized(self, inference, set_name))
        for batch, logits in inference.outputs(examples):
            tagged = batch[features.WORD_INDEX] >= 0
            sentences = np.broadcast_to(batch[features.EXAMPLE_INDEX][:, None], tagged.shape)
            words = begins[sentences[tagged]] + batch[features.WORD_INDEX][tagged]
            logits_of_words[words] = logits[tagged]
        return logits_of_words


def _in_text(item: TaggedExample, entity: Entity, score: float) -> dict[str, Any]:
    """Returns an entity as a character span of its text."""
    start, _ = item.offsets[entity.start]
    _, end = item.offsets[entity.end - 1]
    span = {"start": start, "end": end, "label": entity.type, "text": item.text[start:end]}
    return {**span, "score": score}


def _show_differences(item: TaggedExample, tags: Sequence[str]) -> tuple[str, str]:
    """Formats the words with incorrect tags, with their true and predicted tags."""
    true = item.tags or ()
    incorrect = [index for index, tag in enumerate(tags) if tag != true[index]]
    expected, predicted = (
        " ".join(f"{item.words[index]}/{column[index]}" for index in incorrect)
        for column in (true, tags)
    )
    return expected, predicted
