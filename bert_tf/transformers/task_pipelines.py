"""``pipeline``, which returns the same results as in transformers 4.46.

Letters: B batch, S sequence, C classes, M masks per row, V vocabulary, H hidden.
"""

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.answering import classes
from bert_tf.checkpoints.hugging_face_config import REGRESSION, SEVERAL_CLASSES
from bert_tf.io.messages import warn

from . import replacement
from .encoding import BatchEncoding
from .models import AUTO_MODELS
from .tokenization import AutoTokenizer

_LOGGER = logging.getLogger("bert_tf")
# Rows of a text, and the function that computes the result from the logits of each row.
Request = tuple[BatchEncoding, Callable[[list[np.ndarray]], Any]]
# Limits memory, because each masked token has one logit per vocabulary entry.
_TEXTS_CHUNK_SIZE = 256
# Options for devices, frameworks and downloads, which are ignored.
_IGNORED_OPTIONS = (
    *("framework", "device", "device_map", "torch_dtype", "num_workers"),
    *("use_fast", "feature_extractor", "token", "trust_remote_code"),
)


class Pipeline:
    """Base class of pipelines, which apply a model and a tokenizer to texts.

    Options of a call override those of the constructor. ``batch_size`` is the number of rows per
    batch; unknown options are passed to the tokenizer.
    """

    auto_class = "TFAutoModel"
    #: Default model on the hub, as in transformers; "" for none.
    default_model = "distilbert/distilbert-base-cased"
    length_option = "max_length"
    unwraps_single = False  # whether a list of one text has a single result, as in transformers

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = {k: value for k, value in options.items() if k not in _IGNORED_OPTIONS}

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """Returns the result for a text, or a list of results for a list of texts."""
        is_single = isinstance(inputs, str | Mapping) or not hasattr(inputs, "__iter__")
        results = self._run([inputs] if is_single else inputs, **{**self.options, **options})
        if self.unwraps_single and isinstance(inputs, list) and len(inputs) == 1:
            is_single = True
        return results[0] if is_single else results

    def _run(self, texts: Iterable[Any], batch_size: int = 64, **options: Any) -> list[Any]:
        texts, results = iter(texts), []
        while chunk := list(itertools.islice(texts, _TEXTS_CHUNK_SIZE)):
            requests = [self.preprocess(text, **options) for text in chunk]
            logits = iter(self._compute_logits([rows for rows, _ in requests], batch_size))
            for rows, postprocess in requests:
                results.append(postprocess([next(logits) for _ in rows["input_ids"]]))
        return results

    def preprocess(self, text: Any, **options: Any) -> Request:
        """Returns a text's rows, and a function that computes the result from their logits."""
        raise NotImplementedError

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """Computes the logits of a batch of rows."""
        return self.model(rows).logits

    def _compute_logits(
        self, encodings: Sequence[BatchEncoding], batch_size: int
    ) -> list[np.ndarray]:
        """Computes the logits of each row, including padding."""
        names = self.tokenizer.model_input_names
        rows = [
            dict(zip(names, row, strict=True))
            for encoding in encodings
            for row in zip(*(encoding[name] for name in names), strict=True)
        ]
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]["input_ids"]))
        longest = len(rows[order[0]]["input_ids"])
        if longest > (limit := self.model.config.max_position_embeddings):
            raise ValueError(
                f"A text has {longest} tokens, but the model supports {limit}. Pass "
                f"{self.length_option}={limit}."
            )
        logits: dict[int, np.ndarray] = {}
        for begin in range(0, len(rows), batch_size):
            indices = order[begin : begin + batch_size]
            batch = self.tokenizer.pad([rows[index] for index in indices], return_tensors="tf")
            logits.update(zip(indices, self.forward(dict(batch)).numpy(), strict=True))
        return [logits[index] for index in range(len(rows))]


def _get_texts(example: Any, *names: str) -> list[str]:
    """Returns the texts of a dict by their keys."""
    texts = [example.get(name) if isinstance(example, Mapping) else None for name in names]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"Expected a dict with the texts {' and '.join(map(repr, names))}, got "
            f"{example!r:.100}."
        )
    return [str(text) for text in texts]


def _select(name: str, value: str, choices: Mapping[str, Any]) -> Any:
    """Returns the choice that an option's value specifies."""
    if value not in choices:
        message = f"{name}={value!r}: expected one of {', '.join(choices)}. {replacement(value)}"
        raise ValueError(message.rstrip())
    return choices[value]


class TextClassificationPipeline(Pipeline):
    """Predicts the class of a text or a pair of texts."""

    auto_class = "TFAutoModelForSequenceClassification"
    default_model = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """Returns results; for a single text without ``top_k``, the result is in a list."""
        results = super().__call__(inputs, **options)
        return [results] if isinstance(inputs, str) and "top_k" not in options else results

    def preprocess(
        self,
        text: Any,
        top_k: Any = "best",
        return_all_scores: bool = False,
        function_to_apply: str = "",
        **options: Any,
    ) -> Request:
        """Returns a request whose result is a dict of ``label`` and ``score``.

        With ``top_k``, the result is a list of this number of classes, or of all classes for
        ``None``. With the older ``return_all_scores``, it is a list of all classes by class id.
        """
        pair = None
        if isinstance(text, Mapping):
            pair = text.get("text_pair")
            [text] = _get_texts(text, "text")
        config = self.model.config
        default = "sigmoid" if config.num_labels == 1 else "softmax"
        default = {REGRESSION: "none", SEVERAL_CLASSES: "sigmoid"}.get(config.problem_type, default)
        apply = _select("function_to_apply", function_to_apply or default, _FUNCTIONS)

        def postprocess(rows: list[np.ndarray]) -> Any:
            scores = enumerate(np.asarray(apply(rows[0])))
            results = [
                {"label": config.id2label[index], "score": float(score)} for index, score in scores
            ]
            if return_all_scores:
                return results
            results.sort(key=lambda one: one["score"], reverse=True)
            return results[0] if top_k == "best" else results[:top_k]

        return self.tokenizer([text], [pair] if pair else None, **options), postprocess


_FUNCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "none": lambda logits: logits,
    "sigmoid": classes.multilabel_probabilities,
    "softmax": classes.probabilities,
}


class TokenClassificationPipeline(Pipeline):
    """Finds the entities in a text, per token or grouped."""

    auto_class = "TFAutoModelForTokenClassification"
    default_model = "dbmdz/bert-large-cased-finetuned-conll03-english"

    def preprocess(
        self,
        text: str,
        aggregation_strategy: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        grouped_entities: bool = False,  # with ignore_subwords, the older form of the strategy
        ignore_subwords: bool = False,
        **options: Any,
    ) -> Request:
        """Returns a request whose result is a list of dicts.

        Each dict has ``score``, ``word``, ``start`` and ``end``. Tokens also have ``entity`` and
        ``index``, and groups also have ``entity_group``.
        """
        for name in ("stride", "is_split_into_words"):
            if options.get(name):
                raise ValueError(
                    f"{name} is not supported. Pass full texts, and truncate long ones."
                )
        if grouped_entities and aggregation_strategy == "none":
            aggregation_strategy = "first" if ignore_subwords else "simple"
        aggregate = _select("aggregation_strategy", aggregation_strategy, _AGGREGATIONS)
        has_length = self.tokenizer.model_max_length < 10**6
        rows = self.tokenizer([text], truncation=has_length or None, **options)

        def postprocess(logits: list[np.ndarray]) -> list[dict[str, Any]]:
            names, row = self.model.config.id2label, rows.encodings[0]
            probabilities = classes.probabilities(logits[0]).numpy()
            joins_pieces = aggregation_strategy not in ("none", "simple")
            # For each entity, its first label, and the scores and tokens of its words.
            groups: list[tuple[str, list[Any], list[int]]] = []
            for word in self._split_words(row, joins_pieces):
                scores = aggregate(probabilities[word])
                label = names[int(scores.argmax())]
                begins = aggregation_strategy == "none" or label.startswith("B-") or not groups
                if begins or _entity_type(label) != _entity_type(groups[-1][0]):
                    groups.append((label, [], []))
                groups[-1][1].append(scores.max())
                groups[-1][2].extend(word)
            entities = []
            for label, scores, tokens in groups:
                entity: dict[str, Any] = {"entity": label, "index": tokens[0]}
                if aggregation_strategy != "none":
                    label = label.split("-", 1)[-1]
                    entity = {"entity_group": label}
                if label not in ignore_labels:
                    entity |= {"score": np.mean(scores), **self._locate(text, row, tokens)}
                    entities.append(entity)
            return entities

        return rows, postprocess

    def _split_words(self, row: Any, joins_pieces: bool) -> list[list[int]]:
        """Returns the indices of each word's tokens, or of each single token."""
        words: list[list[int]] = []
        for index, token in enumerate(row.tokens):
            if row.special_tokens_mask[index]:
                continue
            start, end = row.offsets[index]
            is_piece = len(token) != end - start and row.ids[index] != self.tokenizer.unk_token_id
            if is_piece and words and joins_pieces:
                words[-1].append(index)
            else:
                words.append([index])
        return words

    def _locate(self, text: str, row: Any, tokens: list[int]) -> dict[str, Any]:
        """Returns the word that tokens form, with the original text for [UNK], and its offsets."""
        (start, _), (_, end) = row.offsets[tokens[0]], row.offsets[tokens[-1]]
        unknown = self.tokenizer.unk_token_id
        words = [
            text[slice(*row.offsets[token])] if row.ids[token] == unknown else row.tokens[token]
            for token in tokens
        ]
        word = self.tokenizer.convert_tokens_to_string(words)
        return {"word": word, "start": start, "end": end}


NerPipeline = TokenClassificationPipeline


def _entity_type(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


# Functions that convert the probabilities (T, C) of a word's tokens to those of the word (C,).
_AGGREGATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **dict.fromkeys(("none", "simple", "first"), lambda tokens: tokens[0]),
    "max": lambda tokens: tokens[tokens.max(1).argmax()],
    "average": lambda tokens: tokens.mean(0),
}


class FillMaskPipeline(Pipeline):
    """Predicts the most likely tokens for each [MASK] in a text."""

    auto_class = "TFAutoModelForMaskedLM"
    default_model = ""  # the default of transformers is not a BERT model
    unwraps_single = True

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """Computes the logits (B, M, V) of the masked tokens; M includes padding after the last."""
        states = self.model.base_model(rows).last_hidden_state
        columns = tf.broadcast_to(tf.range(tf.shape(states)[1]), tf.shape(states)[:2])
        is_mask = rows["input_ids"] == self.tokenizer.mask_token_id
        masks = tf.ragged.boolean_mask(columns, is_mask).to_tensor()
        return self.model.mlm(states, masks, training=False)

    def preprocess(self, text: str, top_k: int = 5, targets: Any = None, **options: Any) -> Request:
        """Returns a request whose result is a list of dicts, or a list of lists for several masks.

        Each dict has ``score``, ``token``, ``token_str`` and ``sequence``.
        """
        tokenizer = self.tokenizer
        rows = tokenizer([text], **options)
        ids = np.array(rows["input_ids"][0])
        masks = np.flatnonzero(ids == tokenizer.mask_token_id).tolist()
        if not masks:
            raise ValueError(f"Expected at least one {tokenizer.mask_token} in {text!r}.")
        vocabulary = tokenizer.get_vocab()
        targets = vocabulary if targets is None else targets
        targets = [targets] if isinstance(targets, str) else targets
        # A word that is not a token is replaced by its first piece.
        pieces = {
            word: [word] if word in vocabulary else tokenizer.tokenize(word)[:1] for word in targets
        }
        warn(
            f"targets: {word!r} is not a token; {f'{found[0]!r} is used' if found else 'ignored'}."
            for word, found in pieces.items()
            if found != [word]
        )
        tokens = [token for found in pieces.values() for token in found]
        if not tokens:
            raise ValueError(f"targets={targets!r:.100}: expected at least one token.")
        candidates = np.unique(tokenizer.convert_tokens_to_ids(tokens))

        def fill(position: int, token: int, score: np.floating) -> dict[str, Any]:
            filled = ids.copy()
            filled[position] = token
            filled = filled[filled != tokenizer.pad_token_id]
            sequence = tokenizer.decode(filled, skip_special_tokens=len(masks) == 1)
            texts = {"token_str": tokenizer.decode([token]), "sequence": sequence}
            return {"score": float(score), "token": token, **texts}

        def postprocess(logits: list[np.ndarray]) -> list[Any]:
            results = []
            # The logits after those of the masked tokens are padding.
            probabilities = classes.probabilities(logits[0]).numpy()
            for position, row in zip(masks, probabilities, strict=False):
                best = candidates[np.argsort(-row[candidates], kind="stable")[:top_k]].tolist()
                results.append([fill(position, token, row[token]) for token in best])
            return results[0] if len(masks) == 1 else results

        return rows, postprocess


class QuestionAnsweringPipeline(Pipeline):
    """Finds the span of a context that answers a question."""

    auto_class = "TFAutoModelForQuestionAnswering"
    default_model = "distilbert/distilbert-base-cased-distilled-squad"
    length_option = "max_seq_len"
    unwraps_single = True

    def __call__(
        self, inputs: Any = None, question: Any = None, context: Any = None, **options: Any
    ) -> Any:
        """Returns the results for ``question`` and ``context``, or for dicts of both."""
        if question is not None or context is not None:
            inputs = {"question": question, "context": context}
        return super().__call__(inputs, **options)

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """Computes the logits (B, 2, S) of starts and ends."""
        outputs = self.model(rows)
        return tf.stack([outputs.start_logits, outputs.end_logits], 1)

    def preprocess(  # type: ignore[override]  # the tokenizer's options are fixed
        self,
        text: Mapping[str, str],
        top_k: int = 1,
        doc_stride: int | None = None,
        max_answer_len: int = 15,
        max_seq_len: int | None = None,
        handle_impossible_answer: bool = False,
        topk: int | None = None,  # the older name of top_k
    ) -> Request:
        """Returns a request whose result is a dict of ``score``, ``start``, ``end`` and ``answer``.

        With ``top_k`` above 1, it is a list. As in transformers, the score of a span is the product
        of two probabilities within a window, and overlapping windows can return the same span. In
        contrast, ``pipelines.answers`` sums logits in the window with the most context.
        """
        question, context = _get_texts(text, "question", "context")
        positions = self.model.config.max_position_embeddings
        limit = max_seq_len or min(self.tokenizer.model_max_length, positions, 384)
        top_k = topk or top_k
        if doc_stride is None:
            doc_stride = min(limit // 2, 128)
        room = limit - 3 - len(self.tokenizer.tokenize(question))
        if room < 1:
            raise ValueError(
                f"question={question!r:.60}: expected fewer than {limit - 3} tokens. Pass a "
                "shorter question or a larger max_seq_len."
            )
        windows = self.tokenizer(
            [question],
            [context],
            truncation="only_second",
            max_length=limit,
            stride=min(room - 1, doc_stride),
            return_overflowing_tokens=True,
        )

        def postprocess(logits: list[np.ndarray]) -> Any:
            spans: list[dict[str, Any]] = []
            null_score = 1e6
            for row, window_logits in zip(windows.encodings, logits, strict=True):
                # [CLS], which predicts that there is no answer, and the context
                is_candidate = np.array([sequence_id == 1 for sequence_id in row.sequence_ids])
                is_candidate[0] = True
                _, probabilities = classes.choose(
                    window_logits[:, : len(is_candidate)], np.stack([is_candidate, is_candidate])
                )
                starts, ends = probabilities.numpy()
                null_score = min(null_score, float(starts[0] * ends[0]))
                starts[0] = ends[0] = 0.0
                scores = np.tril(np.triu(np.outer(starts, ends)), max_answer_len - 1)
                for index in np.argsort(-scores, axis=None, kind="stable")[:top_k]:
                    first, last = map(int, np.unravel_index(index, scores.shape))
                    if row.sequence_ids[first] != 1 or row.sequence_ids[last] != 1:
                        continue
                    start, _ = row.word_to_chars(row.word_ids[first], 1)  # full words
                    _, end = row.word_to_chars(row.word_ids[last], 1)
                    span = {"start": start, "end": end, "answer": context[start:end]}
                    spans.append({"score": float(scores[first, last]), **span})
            if handle_impossible_answer:
                spans.append({"score": null_score, "start": 0, "end": 0, "answer": ""})
            spans.sort(key=lambda span: span["score"], reverse=True)
            return spans[0] if len(spans[:top_k]) == 1 else spans[:top_k]

        return windows, postprocess


class FeatureExtractionPipeline(Pipeline):
    """Returns the last hidden states of a text's tokens, as lists of shape (1, S, H)."""

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """Computes the hidden states (B, S, H)."""
        return self.model(rows)[0]

    def preprocess(self, text: str, **options: Any) -> Request:
        """Returns a request whose result is a list of shape (1, S, H)."""
        rows = self.tokenizer([text], **options)
        return rows, lambda states: states[0][None, : len(rows["input_ids"][0])].tolist()


PIPELINES: dict[str, type[Pipeline]] = {
    "text-classification": TextClassificationPipeline,
    "sentiment-analysis": TextClassificationPipeline,
    "token-classification": TokenClassificationPipeline,
    "ner": TokenClassificationPipeline,
    "fill-mask": FillMaskPipeline,
    "question-answering": QuestionAnsweringPipeline,
    "feature-extraction": FeatureExtractionPipeline,
}


def pipeline(
    task: str | None = None,
    model: Any = None,
    config: Any = None,
    tokenizer: Any = None,
    revision: str | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Pipeline:
    """Creates a pipeline for a task.

    Args:
        task: A key of ``PIPELINES``.
        model: Model, directory or name on the hub; by default the task's default model.
        config: Config of the model, or its directory.
        tokenizer: Tokenizer or its directory; by default the model's tokenizer.
        revision: Revision on the hub.
        model_kwargs: Further arguments of the model's ``from_pretrained``.
        **options: Options of the calls.

    Returns:
        The pipeline.

    Raises:
        ValueError: If the task is unknown, or there is no model or tokenizer.
    """
    pipeline_class = _select("task", str(task), PIPELINES)
    if model is None and pipeline_class.default_model:
        model = pipeline_class.default_model
        _LOGGER.warning("pipeline(%r): no model is set; using %s.", task, model)
    if isinstance(model, str | os.PathLike):
        name: str | os.PathLike[str] = model
        model = AUTO_MODELS[pipeline_class.auto_class].from_pretrained(
            name, **{"revision": revision, "config": config, **(model_kwargs or {})}
        )
    elif hasattr(model, "config"):
        name = model.config.name_or_path
    else:
        raise ValueError(
            f"pipeline({task!r}): expected a model of bert_tf.transformers, its directory or its "
            f"name, got {type(model).__name__}."
        )
    if tokenizer is None and not name:
        raise ValueError(f"pipeline({task!r}): the model has no name. Pass tokenizer=.")
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer or name)
    return pipeline_class(model, tokenizer, **options)
