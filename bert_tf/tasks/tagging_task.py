"""Tagging as a task of fine-tuning: named entities, or any other tag for each word."""

import collections
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.decoding import likeliest, log_probabilities
from bert_tf.evaluation.calibration import of_classes
from bert_tf.evaluation.evaluation import (
    Evaluation,
    Inference,
    Thresholds,
    is_constant,
    temperature_of,
    worst_mistakes,
)
from bert_tf.evaluation.prediction_files import ENTITIES, TABLES, Record, columns_suffix, write_file
from bert_tf.evaluation.scores import (
    ENTITY_SCORES,
    Comparison,
    compare_entities,
    compare_tags,
    confusion_matrix,
    total,
)
from bert_tf.modeling import BertFeatureTagger, BertTokenClassifier
from bert_tf.modeling.base import TEMPERATURE, BertModel
from bert_tf.pipelines import length_buckets
from bert_tf.pipelines.tagging import tagging_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.conll import read_conll
from bert_tf.readers.entities import Entity, find_all, find_odd_tags, find_scored, is_tag
from bert_tf.readers.examples import TaggedExample
from bert_tf.readers.own_data import read_tagging
from bert_tf.untrusted import quote

from .losses import SmoothedCrossEntropy, parse_class_weights
from .task import FormReader, Items, Task, TrainingOptions
from .task_file import TaskFile
from .word_states import WordStates

_NO_ENTITY = "(none)"


class TaggingTask(Task):
    """Sentences of words with a tag each.

    Where the labels are those of entities (O, B-TYPE, I-TYPE; IOB1, IOB2, BIOES or BILOU), entities
    are scored: ``f1``, ``precision`` and ``recall`` over all, ``f1_TYPE`` of each type, and
    ``accuracy``, the share of words with the right tag. Odd tags among them, as misspelt ones,
    count as O. Of other tags, as parts of speech, it is ``accuracy`` and ``macro_f1``, the mean F1
    of the tags that are true or predicted somewhere.

    Source: Devlin et al. 2019, section 5.3: no layer joins neighbouring tags, and each word is
    tagged at its first piece. With ``document_context`` a row is filled with its sentence's
    neighbours in the document. The loss is the mean cross-entropy of a batch's words.

    A training's ``variant`` asks for ``BertFeatureTagger``, section 5.3's "Feature-based Approach
    with BERT": the frozen encoder is run on each data set once (``word_states``), and what it gives
    is kept in ``folder``.
    """

    model_class: type[BertModel] = BertTokenClassifier
    other_model_class = BertFeatureTagger
    classes = "tags"
    smoothed_loss = SmoothedCrossEntropy
    usual_loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=features.NO_LABEL
    )
    counted = "{items:,} sentences in {rows:,} rows"
    output_suffixes = (*TABLES, ".conll")
    read_table = staticmethod(read_tagging)

    def __init__(
        self, *data: Any, document_context: bool = False, folder: str = "", **common: Any
    ) -> None:
        self._document_context = document_context
        self._states = WordStates(folder)
        super().__init__(*data, **common)

    def _fit(self, training: TrainingOptions) -> None:
        self.model_class = BertFeatureTagger if training.variant else BertTokenClassifier
        super()._fit(training)

    def _model_arguments(self) -> dict[str, Any]:
        variant, units = self.training.variant, self.training.lstm_units
        own = {} if variant is None else {"variant": variant, "lstm_units": units}
        return {**super()._model_arguments(), **own}

    @property
    def usual_headline(self) -> str:
        """F1 of entities."""
        return "f1" if self._has_entities else "accuracy"

    @property
    def no_scores(self) -> Sequence[str]:
        """Scores that the task does not have: entities and other tags have scores of their own."""
        return ("macro_f1",) if self._has_entities else ENTITY_SCORES

    @functools.cached_property
    def _odd(self) -> set[str] | None:
        """The tags that are none of entities; ``None`` where the others are none either."""
        counts = collections.Counter(
            tag for item in (self._train.items if self._train else ()) for tag in item.tags or ()
        )
        odd = {name for name in self.labels if not is_tag(name)}
        are_entities = any(is_tag(name) and name != "O" for name in self.labels)
        return odd if are_entities and odd <= set(find_odd_tags(counts)) else None

    @property
    def _has_entities(self) -> bool:
        return self._odd is not None

    def _nothing_to_learn(self) -> str:
        if len(self.labels) == 1:  # of which Keras computes no loss
            tag = quote(self.labels[0])
            raise ValueError(f"{self.name}: every word has the tag {tag}: expected two or more.")
        return ""

    def _too_long(self) -> str:
        return (
            "{count:,} of the training sentences are read in several rows of {length} tokens "
            "(--max_seq_length)."
        )

    @property
    def judged_classes(self) -> Sequence[str]:
        """The types of entities, or the tags."""
        if not self._has_entities:
            return self.labels
        found = self._entities([[label] for label in self.labels])
        return sorted({entity.type for entities in found for entity in entities})

    @property
    def options(self) -> Mapping[str, Any]:
        """True if a row has its sentence's neighbours."""
        return {"document_context": self._document_context}

    @staticmethod
    def own_form(name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """CoNLL's columns."""
        return FormReader(functools.partial(read_conll, convert_to="IOB2"), lambda path: True)

    @classmethod
    def words_to_write(
        cls, labels: Sequence[str], items: Iterable[Any]
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """The tags, and each example's words."""
        yield "a tag of the model", labels
        for item in items:
            yield f"row {item.id}", item.words

    @classmethod
    def empty_record(cls, words: Sequence[str] = ()) -> Record:
        """No tags."""
        return {"id": "", "words": tuple(words), "tags": (), "scores": ()}

    @classmethod
    def record_columns(cls, labels: Sequence[str], items: Iterable[Any], task: TaskFile) -> Record:
        """Words, tags and their probabilities; of texts that have spans, these."""
        first = next(iter(items), None)
        has_spans = first.places if first else task.columns.get("character_spans")
        return {**cls.empty_record(), **({ENTITIES: None} if has_spans else {})}

    def _rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> length_buckets.Examples:
        """Rows with labels (B, S)."""
        return tagging_examples(
            tokenizer,
            [item.words for item in items],
            tags=[self._tag_ids(item) for item in items] if labelled else None,
            documents=[item.document for item in items] if self._document_context else None,
            max_seq_length=max_seq_length,
        )

    def _loss_class_weights(self, asked: str) -> Sequence[float] | None:
        """Of tags, by the words that have them."""
        return list(parse_class_weights(asked, self.labels, self.label_counts(None)).values())

    @staticmethod
    def loss_weight(targets: Any) -> tf.Tensor:
        """The words that are tagged."""
        return tf.reduce_sum(tf.cast(targets != features.NO_LABEL, tf.float32))

    def _names_of(self, item: TaggedExample) -> Sequence[str]:
        return item.tags or ()

    def _judge(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        """Scores; a mistake is a sentence, its loss the sum of its words'.

        A mistake of entities shows all that are in the sentence, of other tags the wrong words.
        """
        true = np.concatenate([self._tag_ids(item) for item in items])
        predicted = outputs.argmax(1)
        losses = -log_probabilities(outputs).numpy()[np.arange(len(true)), true]
        temperature = temperature_of(thresholds, outputs, true)
        tags = self._tags_by_sentence(items, predicted)
        sentence = np.repeat(np.arange(len(items)), [len(item.words) for item in items])
        losses = np.bincount(sentence, losses)
        show = self._show_entities if self._has_entities else _show_differences
        comparison = self._compare(items, tags, losses)

        def describe(at: int) -> tuple[dict[str, str], str, str]:
            return self._shown_texts(items[at]), *show(items[at], tags[at])

        return Evaluation(
            scores=self._scores(comparison),
            constant=is_constant(true, predicted),
            mistakes=worst_mistakes(items, losses, ~np.asarray(comparison.right), describe),
            comparison=comparison,
            thresholds={TEMPERATURE: temperature},
            calibrate=functools.partial(of_classes, outputs, true, temperature),
            confusion=confusion_matrix(true, predicted, len(self.labels)),
        )

    def _compare(
        self, items: Items, tags: Sequence[Sequence[str]], losses: np.ndarray | None = None
    ) -> Comparison:
        """A set's tags with the predicted ones, by sentence; ``losses`` (N,) are the sentences'."""
        gold = [item.tags for item in items]
        if not self._has_entities:
            return compare_tags(gold, tags, losses)
        entities = zip(self._entities(gold), self._entities(tags), strict=True)
        return compare_entities(gold, tags, [*entities], losses)

    def _shown_texts(self, item: TaggedExample) -> dict[str, str]:
        return {"": " ".join(item.words)}

    def _records(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[dict[str, Any]]:
        labels, scores = (v.numpy() for v in likeliest(outputs, thresholds.get(TEMPERATURE, 1.0)))
        tags = self._tags_by_sentence(items, labels)
        shares = np.split(scores, np.cumsum([len(item.words) for item in items])[:-1])
        spans = (
            find_scored(list(map(self._as_entities, tags)), scores)
            if self._has_entities
            else [[]] * len(items)
        )
        for item, found, own, entities in zip(items, tags, shares, spans, strict=True):
            record = {"words": item.words, "tags": tuple(found), "scores": tuple(own.tolist())}
            if item.places:
                record[ENTITIES] = [_in_text(item, *entity) for entity in entities]
            yield record

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Writes ``SET.conll`` and, of entities to evaluate on, ``SET_entities.tsv``.

        Words or tags with blanks, which CoNLL's columns cannot hold, are written as ``SET.jsonl``.
        """
        items = self._sets[set_name].items
        records = list(self.predict(inference, set_name, thresholds))
        suffix = columns_suffix([*self.labels, *(word for item in items for word in item.words)])
        columns = os.path.join(folder, f"{set_name}{suffix}")
        pairs = zip(items, records, strict=True)
        write_file(columns, ({**r, "expected": i.tags} if i.tags else r for i, r in pairs))
        if not (self._has_entities and set_name in self.dev_sets):
            return [columns]
        table = os.path.join(folder, f"{set_name}_entities.tsv")
        found = self._compare(items, [record["tags"] for record in records]).classes
        scores = [("all", total(found.values())), *found.items()]
        write_file(table, [{"type": kind, **score.to_dict()} for kind, score in scores])
        return [columns, table]

    def _as_entities(self, tags: Sequence[str]) -> list[str]:
        """The tags with O in place of those that are none of entities."""
        return ["O" if tag in (self._odd or ()) else tag for tag in tags]

    def _entities(self, tags: Sequence[Sequence[str]]) -> list[list[Entity]]:
        return find_all(list(map(self._as_entities, tags)))

    def _show_entities(self, item: TaggedExample, tags: Sequence[str]) -> tuple[str, str]:
        """The true and the predicted entities."""
        expected, found = (
            "; ".join(
                f"{entity.type}: {' '.join(item.words[entity.start : entity.end])}"
                for entity in entities
            )
            for entities in self._entities([item.tags or (), tags])
        )
        return expected or _NO_ENTITY, found or _NO_ENTITY

    def _tag_ids(self, item: TaggedExample) -> list[int]:
        return [self._ids[tag] for tag in item.tags or ()]

    def _tags_by_sentence(self, items: Items, predicted: np.ndarray) -> list[list[str]]:
        tags = iter(predicted.tolist())
        return [[self.labels[next(tags)] for _ in item.words] for item in items]

    def prepared(self, model: Any, examples: length_buckets.Examples) -> length_buckets.Examples:
        """Of frozen features the examples with what the model's encoder gives for them."""
        if self.training.variant is None:
            return examples
        return self._states.of(model, examples)

    def _outputs(self, inference: Inference, set_name: str) -> np.ndarray:
        """The logits of all words of all sentences, (W, C) float32."""
        items = self._sets[set_name].items
        begins = np.cumsum([0, *(len(item.words) for item in items)])
        found = np.zeros([begins[-1], len(self.labels)], np.float32)
        examples = self.prepared(inference.model, self._tokenized_set(inference, set_name))
        for batch, logits in inference.outputs(examples):
            tagged = batch[features.WORD_INDEX] >= 0
            sentences = np.broadcast_to(batch[features.EXAMPLE_INDEX][:, None], tagged.shape)
            words = begins[sentences[tagged]] + batch[features.WORD_INDEX][tagged]
            found[words] = logits[tagged]
        return found


def _in_text(item: TaggedExample, entity: Entity, score: float) -> Record:
    """An entity as characters of its text."""
    start, end = item.places[entity.start][0], item.places[entity.end - 1][1]
    where = {"start": start, "end": end, "label": entity.type, "text": item.text[start:end]}
    return {**where, "score": score}


def _show_differences(item: TaggedExample, tags: Sequence[str]) -> tuple[str, str]:
    """The words whose tags are wrong, with their true and with their predicted ones."""
    true = item.tags or ()
    wrong = [index for index, tag in enumerate(tags) if tag != true[index]]
    expected, found = (
        " ".join(f"{item.words[index]}/{column[index]}" for index in wrong)
        for column in (true, tags)
    )
    return expected, found
