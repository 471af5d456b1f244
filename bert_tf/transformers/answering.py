"""``pipeline``: texts in, answers out, in the form of transformers' records.

The model is run as ``bert_tf.Predictor`` runs it (``tasks.inference``), and ``heads.classes`` makes
probabilities of its logits. What is here is what transformers (4.46, ``pipelines/``) says of them.

Letters: B batch, S sequence, C classes, M masks of a row, V vocabulary, H hidden.
"""

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.heads import classes
from bert_tf.heads.entities import Labels, join_words
from bert_tf.interchange import hugging_face
from bert_tf.pipelines.columns import row_examples
from bert_tf.tasks.inference import batch_outputs

from . import auto
from .encoding import BatchEncoding
from .inputs import TENSORS

_LOGGER = logging.getLogger("bert_tf")
Answer = dict[str, Any]
# Texts whose numbers are held at once: of a masked word they are as many as the vocabulary.
_TEXTS_AT_ONCE = 256
# The column of the tokens to guess.
_IS_MASK = "is_mask"


class Asked(NamedTuple):
    """A text's rows, and what makes its answer of the numbers that the model has for each."""

    rows: BatchEncoding
    answer: Callable[[list[np.ndarray]], Any]


class Pipeline:
    """A model and its tokenizer, called on texts; options of a call win over those given here.

    Of all pipelines ``batch_size`` is an option: so many rows are computed at once.
    """

    #: The class of ``auto`` that loads a model by its name.
    auto_class = "TFAutoModel"
    #: The model of the hub that answers where none is given, as there; "": there is none.
    default_model = "distilbert/distilbert-base-cased"
    #: The option that says how long a row may be.
    length_option = "max_length"

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = {k: value for k, value in options.items() if k not in _WITHOUT_MEANING}

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """The answer to a text, or a list of answers to a list of texts."""
        one = _is_one(inputs)
        found = self.answers([inputs] if one else inputs, **{**self.options, **options})
        return found[0] if one else found

    def answers(self, texts: Iterable[Any], batch_size: int = 64, **options: Any) -> list[Any]:
        """The answers to texts, in order."""
        asked, found = (self._asked(text, options) for text in texts), []
        while part := list(itertools.islice(asked, _TEXTS_AT_ONCE)):
            numbers = iter(self._numbers([one.rows for one in part], batch_size))
            found += [one.answer([next(numbers) for _ in one.rows["input_ids"]]) for one in part]
        return found

    def ask(self, text: Any, **options: Any) -> Asked:
        """What the model is to be run on for a text; options without a name are the tokenizer's."""
        raise NotImplementedError

    def _asked(self, text: Any, options: Mapping[str, Any]) -> Asked:
        """What ``ask`` gives, whose rows are no longer than the model has positions."""
        asked = self.ask(text, **options)
        longest, most = max(map(len, asked.rows["input_ids"])), self._positions
        if longest > most:
            raise ValueError(
                f"The text {text!r:.60} is {longest} tokens, and the model has {most} positions: "
                f"give {self.length_option}={most}, which cuts it."
            )
        return asked

    @property
    def _positions(self) -> int:
        positions: int = self.model.config.max_position_embeddings
        return positions

    @staticmethod
    def read(model: Any, rows: Mapping[str, Any]) -> Any:
        """What is read of the model for a batch of rows: its logits."""
        return _outputs(model, rows).logits

    def _numbers(self, rows: Sequence[BatchEncoding], batch_size: int) -> list[np.ndarray]:
        """What is read of the model for each row, with what is read of its padding behind it."""

        def column(name: str) -> np.ndarray:
            return np.concatenate([ids for some in rows for ids in some[name]]).astype(np.int32)

        names = self.tokenizer.model_input_names
        columns = {name: (column(name), 0) for name in names}
        ids, _ = columns["input_ids"]
        lengths = np.array([len(ids) for some in rows for ids in some["input_ids"]], np.int32)
        columns |= {
            "input_ids": (ids, self.tokenizer.pad_token_id),
            _IS_MASK: ((ids == self.tokenizer.mask_token_id).astype(np.int32), 0),
        }
        examples = row_examples(lengths, columns, int(lengths.max()))
        found: dict[int, np.ndarray] = {}
        for batch, numbers in batch_outputs(self.model, examples, batch_size, self.read):
            found.update(zip(batch[features.EXAMPLE_INDEX].tolist(), numbers, strict=True))
        return [found[place] for place in range(len(lengths))]


def _is_one(inputs: Any) -> bool:
    """Whether it is one text or example; what is no list of them is one that ``ask`` refuses."""
    goes_over = hasattr(inputs, "__iter__") or hasattr(inputs, "__getitem__")
    return isinstance(inputs, str | Mapping) or not goes_over


def _with_texts(example: Any, *names: str) -> Any:
    """An example that is a dict with texts by these names."""
    texts = example if isinstance(example, Mapping) else {}
    if any(not isinstance(texts.get(name), str) for name in names):
        raise ValueError(
            f"The pipeline was given {example!r:.100}: expected a dict whose texts are named "
            f"{' and '.join(map(repr, names))}."
        )
    return example


def _outputs(model: Any, rows: Mapping[str, Any]) -> Any:
    return model({name: rows[name] for name in TENSORS if name in rows})


class TextClassificationPipeline(Pipeline):
    """A class and its probability for a text or a pair of texts."""

    auto_class = "TFAutoModelForSequenceClassification"
    default_model = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """The answers; of one text in a list, as there, but where the call says ``top_k``."""
        found = super().__call__(inputs, **options)
        return [found] if isinstance(inputs, str) and "top_k" not in options else found

    def ask(
        self,
        text: Any,
        top_k: Any = "best",
        return_all_scores: bool = False,
        function_to_apply: str | None = None,
        **options: Any,
    ) -> Asked:
        """Answers ``label`` and ``score``; with ``top_k`` a list of so many, ``None`` for all."""
        texts = [[text]]
        if isinstance(text, Mapping):
            pair = _with_texts(text, "text").get("text_pair")
            texts = [[text["text"]]] if pair is None else [[text["text"]], [pair]]
        if function_to_apply not in (None, *_FUNCTIONS):
            raise ValueError(
                f"function_to_apply is {function_to_apply!r}: expected one of "
                f"{', '.join(_FUNCTIONS)}."
            )
        config = self.model.config

        def answer(rows: list[np.ndarray]) -> Any:
            (logits,) = rows
            function = function_to_apply or _function(config.problem_type, len(logits))
            found = [
                {"label": config.id2label[at], "score": float(score)}
                for at, score in enumerate(np.asarray(_FUNCTIONS[function](logits)))
            ]
            if return_all_scores:
                return found
            found.sort(key=lambda answer: answer["score"], reverse=True)
            return found[0] if top_k == "best" else found[:top_k]

        return Asked(self.tokenizer(*texts, **options), answer)


def _function(problem: str | None, count: int) -> str:
    if problem == hugging_face.REGRESSION:
        return "none"
    return "sigmoid" if problem == hugging_face.SEVERAL_CLASSES or count == 1 else "softmax"


_FUNCTIONS: Mapping[str, Callable[[np.ndarray], Any]] = MappingProxyType(
    {
        "none": lambda logits: logits,
        "sigmoid": classes.probabilities_of_several,
        "softmax": classes.probabilities,
    }
)


class TokenClassificationPipeline(Pipeline):
    """The entities of a text, token by token or put together."""

    auto_class = "TFAutoModelForTokenClassification"
    default_model = "dbmdz/bert-large-cased-finetuned-conll03-english"

    def ask(
        self,
        text: str,
        aggregation_strategy: str | None = None,
        grouped_entities: bool = False,
        ignore_labels: Sequence[str] = ("O",),
        ignore_subwords: bool = False,
        stride: int | None = None,
        **options: Any,
    ) -> Asked:
        """Answers a dict for each entity.

        Of a token ("none"): ``entity``, ``score``, ``index``, ``word``, ``start``, ``end``; of
        tokens put together: ``entity_group``, ``score``, ``word``, ``start``, ``end``.
        """
        grouped = ("first" if ignore_subwords else "simple") if grouped_entities else "none"
        strategy = aggregation_strategy or grouped
        if stride is not None:
            raise ValueError(
                "The pipeline reads no text in windows, which stride would be of: cut texts that "
                f"are longer than {self.tokenizer.model_max_length} tokens before."
            )
        if strategy not in _OF_WORD:
            raise ValueError(
                f"aggregation_strategy is {strategy!r}: expected one of {', '.join(_OF_WORD)}."
            )
        has_length = self.tokenizer.model_max_length < 10**6
        rows = self.tokenizer([text], truncation=has_length or None, **options)

        def answer(logits: list[np.ndarray]) -> list[Answer]:
            names, row = self.model.config.id2label, rows.encodings[0]
            probabilities = classes.probabilities(logits[0]).numpy()
            words = self._words(row, strategy)
            if not words:
                return []
            scores = np.array([_OF_WORD[strategy](probabilities[word]) for word in words])
            best, shares = scores.argmax(-1), scores.max(-1, initial=0.0)
            if strategy == "none":
                found = [
                    {"entity": names[int(label)], "score": share, "index": word[0]}
                    for label, share, word in zip(best, shares, words, strict=True)
                ]
                places = words
            else:
                labels = _labels([names[at] for at in range(probabilities.shape[-1])])
                groups = join_words(best, np.zeros_like(best), shares, labels)
                spans = zip(groups.first.numpy(), groups.last.numpy(), strict=True)
                places = [list(itertools.chain(*words[a : b + 1])) for a, b in spans]
                found = [
                    {"entity_group": kind.decode(), "score": score}
                    for kind, score in zip(groups.types.numpy(), groups.scores.numpy(), strict=True)
                ]
            return [
                {**one, **self._place(text, row, tokens)}
                for one, tokens in zip(found, places, strict=True)
                if next(iter(one.values())) not in ignore_labels
            ]

        return Asked(rows, answer)

    def _words(self, row: Any, strategy: str) -> list[list[int]]:
        """The places of each word's tokens, or of each token alone."""
        words: list[list[int]] = []
        for at, token in enumerate(row.tokens):
            if row.special_tokens_mask[at]:
                continue
            start, end = row.offsets[at]
            is_piece = len(token) != end - start and row.ids[at] != self.tokenizer.unk_token_id
            if is_piece and words and strategy not in ("none", "simple"):
                words[-1].append(at)
            else:
                words.append([at])
        return words

    def _place(self, text: str, row: Any, tokens: list[int]) -> Answer:
        """The text of tokens, with its own for one that is [UNK], and where it is."""
        offsets = [row.offsets[at] for at in tokens]
        unknown = self.tokenizer.unk_token_id
        words = [
            text[start:end] if row.ids[at] == unknown else row.tokens[at]
            for at, (start, end) in zip(tokens, offsets, strict=True)
        ]
        word = self.tokenizer.convert_tokens_to_string(words)
        return {"word": word, "start": offsets[0][0], "end": offsets[-1][1]}


NerPipeline = TokenClassificationPipeline


# Of the probabilities of a word's tokens, (T, C), those of the word.
_OF_WORD: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        **dict.fromkeys(("none", "simple", "first"), lambda tokens: tokens[0]),
        "max": lambda tokens: tokens[tokens.max(1).argmax()],
        "average": lambda tokens: tokens.mean(0),
    }
)


def _labels(names: Sequence[str]) -> Labels:
    """What labels mean there: ``B-`` begins an entity, and every label has a type, O among them."""
    kinds = [name[2:] if name.startswith(("B-", "I-")) else name for name in names]
    return Labels(
        [name.split("-", 1)[-1] for name in names],
        [kinds.index(kind) for kind in kinds],
        [name.startswith("B-") for name in names],
        [False] * len(names),
    )


class FillMaskPipeline(Pipeline):
    """The likeliest tokens for each [MASK] of a text."""

    auto_class = "TFAutoModelForMaskedLM"
    default_model = ""  # theirs is no BERT

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """The answers; of a list of one text its answer, as there."""
        found = super().__call__(inputs, **options)
        return found[0] if isinstance(inputs, list) and len(inputs) == 1 else found

    @staticmethod
    def read(model: Any, rows: Mapping[str, Any]) -> Any:
        """The logits of the masks, (B, M, V), those of each row first."""
        states = _outputs(model.base_model, rows).last_hidden_state
        columns = tf.broadcast_to(tf.range(tf.shape(states)[1]), tf.shape(states)[:2])
        masks = tf.ragged.boolean_mask(columns, rows[_IS_MASK] > 0).to_tensor()
        return model.mlm(states, masks, training=False)

    def ask(self, text: str, top_k: int = 5, targets: Any = None, **options: Any) -> Asked:
        """Answers ``score``, ``token``, ``token_str``, ``sequence``; of several masks, lists."""
        rows = self.tokenizer([text], **options)
        ids = np.array(rows["input_ids"][0])
        masks = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(masks):
            raise ValueError(
                f"No {self.tokenizer.mask_token} in {text!r}: expected one or more to fill."
            )
        wanted = [targets] if isinstance(targets, str) else targets
        if wanted is not None:
            words, parts = self.tokenizer.get_vocab(), self.tokenizer.tokenize
            # Of a word that is no token, the first one of its tokens.
            wanted = [it for w in wanted for it in ([w] if w in words else parts(w)[:1])]
        if wanted is not None and not len(wanted):
            raise ValueError("targets is empty: expected one or more tokens, or None for all.")
        one = len(masks) == 1

        def answer(logits: list[np.ndarray]) -> list[Any]:
            scores = classes.probabilities(logits[0][: len(masks)]).numpy()
            chosen = np.arange(scores.shape[-1])
            if wanted is not None:
                chosen = np.unique(self.tokenizer.convert_tokens_to_ids(wanted))
            found = []
            for place, row in zip(masks.tolist(), scores, strict=True):
                best = chosen[np.argsort(-row[chosen], kind="stable")[:top_k]].tolist()
                found.append([self._filled(ids, place, it, float(row[it]), one) for it in best])
            return found[0] if one else found

        return Asked(rows, answer)

    def _filled(self, ids: np.ndarray, place: int, token: int, score: float, one: bool) -> Answer:
        filled = ids.copy()
        filled[place] = token
        kept = [int(at) for at in filled if at != self.tokenizer.pad_token_id]
        return {
            "score": score,
            "token": token,
            "token_str": self.tokenizer.decode([token]),
            "sequence": self.tokenizer.decode(kept, skip_special_tokens=one),
        }


class QuestionAnsweringPipeline(Pipeline):
    """The words of a context that answer a question."""

    auto_class = "TFAutoModelForQuestionAnswering"
    default_model = "distilbert/distilbert-base-cased-distilled-squad"
    length_option = "max_seq_len"

    def __call__(
        self, inputs: Any = None, question: Any = None, context: Any = None, **options: Any
    ) -> Any:
        """Answers of ``question`` and ``context``, texts or lists, or of dicts of both."""
        if isinstance(inputs, str) and isinstance(question, str) and context is None:
            inputs, question, context = None, inputs, question  # by place
        if question is not None or context is not None:
            questions = [question] if _is_one(question) else list(question)
            contexts = [context] * len(questions) if _is_one(context) else list(context)
            if len(questions) != len(contexts):
                raise ValueError(
                    f"The pipeline was given {len(questions)} questions and {len(contexts)} "
                    "contexts: expected as many, or one context."
                )
            inputs = [
                {"question": q, "context": c} for q, c in zip(questions, contexts, strict=True)
            ]
        examples = [inputs] if _is_one(inputs) else inputs
        found = self.answers(examples, **{**self.options, **options})
        return found[0] if len(found) == 1 else found

    @staticmethod
    def read(model: Any, rows: Mapping[str, Any]) -> Any:
        """The logits of starts and of ends, (B, 2, S)."""
        outputs = _outputs(model, rows)
        return tf.stack([outputs.start_logits, outputs.end_logits], 1)

    def ask(
        self,
        text: Mapping[str, str],
        top_k: int = 1,
        doc_stride: int | None = None,
        max_answer_len: int = 15,
        max_seq_len: int | None = None,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
        topk: int | None = None,
        **options: Any,
    ) -> Asked:
        """Answers ``score``, ``start``, ``end``, ``answer``; a list where ``top_k`` is above 1.

        A span's score is the product of two probabilities, each of its window's tokens alone, and
        any window that holds it has it; ``pipelines.answers`` sums logits, and asks the window that
        gives a token the most context.
        """
        top_k = topk or top_k  # the older name
        if not _with_texts(text, "question", "context")["question"]:
            raise ValueError(f"The question on {text['context']!r:.60} is empty: expected a text.")
        most = max_seq_len or min(self.tokenizer.model_max_length, self._positions, 384)
        windows = self.tokenizer(
            [text["question"]],
            [text["context"]],
            truncation="only_second",
            max_length=most,
            stride=min(most // 2, 128) if doc_stride is None else doc_stride,
            return_overflowing_tokens=True,
        )

        def answer(logits: list[np.ndarray]) -> Any:
            found: list[Answer] = []
            null = 1e6
            for row, numbers in zip(windows.encodings, logits, strict=True):
                # [CLS], which stands for no answer, and the context
                counts = np.array([text_of == 1 for text_of in row.sequence_ids])
                counts[0] = True
                _, shares = classes.choose(numbers[:, : len(counts)], np.stack([counts, counts]))
                starts, ends = shares.numpy()
                null = min(null, float(starts[0] * ends[0]))
                starts[0] = ends[0] = 0.0
                spans = np.tril(np.triu(np.outer(starts, ends)), max_answer_len - 1)
                for place in np.argsort(-spans, axis=None, kind="stable")[:top_k]:
                    first, last = np.unravel_index(place, spans.shape)
                    if not (counts[first] and counts[last]):
                        continue
                    start, end = _characters(row, int(first), int(last), align_to_words)
                    score, words = float(spans[first, last]), text["context"][start:end]
                    found.append({"score": score, "start": start, "end": end, "answer": words})
            if handle_impossible_answer:
                found.append({"score": null, "start": 0, "end": 0, "answer": ""})
            found.sort(key=lambda one: one["score"], reverse=True)
            return found[0] if len(found[:top_k]) == 1 else found[:top_k]

        return Asked(windows, answer)


def _characters(row: Any, first: int, last: int, whole_words: bool) -> tuple[int, int]:
    start, end = row.offsets[first][0], row.offsets[last][1]
    if whole_words and row.sequence_ids[first] == 1 == row.sequence_ids[last]:
        start = row.word_to_chars(row.word_ids[first], 1)[0]
        end = row.word_to_chars(row.word_ids[last], 1)[1]
    return int(start), int(end)


class FeatureExtractionPipeline(Pipeline):
    """The last states of a text's tokens, as lists."""

    @staticmethod
    def read(model: Any, rows: Mapping[str, Any]) -> Any:
        """The states, (B, S, H)."""
        return _outputs(model, rows)[0]

    def ask(self, text: str, return_tensors: bool = False, **options: Any) -> Asked:
        """Answers (1, S, H) numbers."""
        rows = self.tokenizer([text], **options)

        def answer(states: list[np.ndarray]) -> Any:
            found = states[0][None, : len(rows["input_ids"][0])]
            return tf.constant(found) if return_tensors else found.tolist()

        return Asked(rows, answer)


PIPELINES: Mapping[str, type[Pipeline]] = MappingProxyType(
    {
        "text-classification": TextClassificationPipeline,
        "sentiment-analysis": TextClassificationPipeline,
        "token-classification": TokenClassificationPipeline,
        "ner": TokenClassificationPipeline,
        "fill-mask": FillMaskPipeline,
        "question-answering": QuestionAnsweringPipeline,
        "feature-extraction": FeatureExtractionPipeline,
    }
)
# What says on which machine, and with which library, a model runs.
_WITHOUT_MEANING = (
    *("framework", "device", "device_map", "torch_dtype", "num_workers"),
    *("use_fast", "feature_extractor", "model_kwargs", "token", "trust_remote_code"),
)


def pipeline(
    task: str | None = None,
    model: Any = None,
    config: Any = None,
    tokenizer: Any = None,
    revision: str | None = None,
    **options: Any,
) -> Pipeline:
    """A pipeline of a task: a model, or the name or directory of one, and its tokenizer.

    Args:
        task: one of ``text-classification`` (``sentiment-analysis``), ``token-classification``
            (``ner``), ``fill-mask``, ``question-answering``, ``feature-extraction``.
        model: a model, its directory or its name on the hub; by default the task's on the hub.
        config: of the model, where that is a name.
        tokenizer: a tokenizer or its directory; by default the model's.
        revision: of a name on the hub.
        **options: of the pipeline's calls.

    Raises:
        ValueError: the task has no pipeline here, or no model is given.
    """
    if task is None or task not in PIPELINES:
        raise ValueError(f"task is {task!r}: expected one of {', '.join(PIPELINES)}.")
    kind = PIPELINES[task]
    if model is None and kind.default_model:
        model = kind.default_model
        _LOGGER.warning("pipeline(%r) was given no model, and takes %s.", task, model)
    if model is None:
        raise ValueError(
            f"pipeline({task!r}) was given no model: expected one, its directory or its name."
        )
    by_name = isinstance(model, str | os.PathLike)
    if not by_name and not hasattr(model, "config"):
        raise ValueError(
            f"pipeline({task!r}) was given {type(model).__name__} as its model: expected a model "
            "of bert_tf.transformers, its directory or its name."
        )
    name = os.fspath(model) if by_name else getattr(model.config, "name_or_path", None)
    if by_name:
        settings = {"revision": revision} | ({} if config is None else {"config": config})
        model = auto.MODELS[kind.auto_class].from_pretrained(model, **settings)
    if tokenizer is None and name is None:
        raise ValueError(f"pipeline({task!r}) was given a model without a tokenizer: give both.")
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        tokenizer = auto.AutoTokenizer.from_pretrained(str(tokenizer or name))
    return kind(model, tokenizer, **options)
