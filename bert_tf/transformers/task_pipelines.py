"""``pipeline``: texts in, answers out, in the form of transformers' (4.46) records.

Letters: B batch, S sequence, C classes, M masks of a row, V vocabulary, H hidden.
"""

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.answering import class_probabilities
from bert_tf.checkpoints.hugging_face_config import REGRESSION, SEVERAL_CLASSES
from bert_tf.io.wording import warn

from . import replacement
from .encoding import BatchEncoding
from .models import AUTO_MODELS
from .tokenization import AutoTokenizer

_LOGGER = logging.getLogger("bert_tf")
# A text's rows, and what makes its answer of the numbers that the model has for each.
Request = tuple[BatchEncoding, Callable[[list[np.ndarray]], Any]]
# Texts whose numbers are held at once: of a masked word they are as many as the vocabulary.
_TEXTS_CHUNK_SIZE = 256
# Arguments that choose the machine and the library that run a model.
_IGNORED_OPTIONS = (
    *("framework", "device", "device_map", "torch_dtype", "num_workers"),
    *("use_fast", "feature_extractor", "token", "trust_remote_code"),
)


class Pipeline:
    """A model and its tokenizer, called on texts; options of a call win over those given here.

    ``batch_size`` rows are computed at once; options without a name are the tokenizer's.
    """

    auto_class = "TFAutoModel"
    #: The model of the hub that answers by default, as in transformers; "": there is none.
    default_model = "distilbert/distilbert-base-cased"
    length_option = "max_length"
    unwraps_single = False  # true if a list of one text has its answer, as in transformers

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = {k: value for k, value in options.items() if k not in _IGNORED_OPTIONS}

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """The answer to a text, or a list of answers to a list of texts."""
        one = isinstance(inputs, str | Mapping) or not hasattr(inputs, "__iter__")
        answers = self.answers([inputs] if one else inputs, **{**self.options, **options})
        one = one or (self.unwraps_single and isinstance(inputs, list) and len(inputs) == 1)
        return answers[0] if one else answers

    def answers(self, texts: Iterable[Any], batch_size: int = 64, **options: Any) -> list[Any]:
        """The answers to texts, in order."""
        texts, answers = iter(texts), []
        while part := list(itertools.islice(texts, _TEXTS_CHUNK_SIZE)):
            requests = [self.preprocess(text, **options) for text in part]
            numbers = iter(self._compute_logits([rows for rows, _ in requests], batch_size))
            for rows, answer in requests:
                answers.append(answer([next(numbers) for _ in rows["input_ids"]]))
        return answers

    def preprocess(self, text: Any, **options: Any) -> Request:
        """Rows to run the model on for a text, and the function that reads their logits."""
        raise NotImplementedError

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """Logits of the model for a batch of rows."""
        return self.model(rows).logits

    def _compute_logits(self, rows: Sequence[BatchEncoding], batch_size: int) -> list[np.ndarray]:
        """Logits of each row, those of its padding included."""
        names = self.tokenizer.model_input_names
        each = [
            dict(zip(names, row, strict=True))
            for text_rows in rows
            for row in zip(*(text_rows[name] for name in names), strict=True)
        ]
        longest_first = sorted(range(len(each)), key=lambda at: -len(each[at]["input_ids"]))
        longest = len(each[longest_first[0]]["input_ids"])
        if longest > (limit := self.model.config.max_position_embeddings):
            raise ValueError(
                f"A text is {longest} tokens, and the model has {limit} positions: give "
                f"{self.length_option}={limit}, which cuts it."
            )
        logits: dict[int, np.ndarray] = {}
        for begin in range(0, len(each), batch_size):
            places = longest_first[begin : begin + batch_size]
            batch = self.tokenizer.pad([each[at] for at in places], return_tensors="tf")
            logits.update(zip(places, self.forward(dict(batch)).numpy(), strict=True))
        return [logits[at] for at in range(len(each))]


def _get_texts(example: Any, *names: str) -> list[str]:
    """The texts of an example that is a dict with these names."""
    texts = [example.get(name) if isinstance(example, Mapping) else None for name in names]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"The pipeline was given {example!r:.100}: expected a dict whose texts are named "
            f"{' and '.join(map(repr, names))}."
        )
    return [str(text) for text in texts]


def _check_choice(name: str, value: str, known: Iterable[str]) -> str:
    if value not in known:
        use = replacement(value) and f", here {replacement(value)}"
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(known)}{use}.")
    return value


class TextClassificationPipeline(Pipeline):
    """A class and its probability for a text or a pair of texts."""

    auto_class = "TFAutoModelForSequenceClassification"
    default_model = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """Answers; one text's are in a list without ``top_k``, as in transformers."""
        answers = super().__call__(inputs, **options)
        return [answers] if isinstance(inputs, str) and "top_k" not in options else answers

    def preprocess(
        self,
        text: Any,
        top_k: Any = "best",
        return_all_scores: bool = False,
        function_to_apply: str = "",
        **options: Any,
    ) -> Request:
        """Answers ``label`` and ``score``; with ``top_k`` a list of that many, ``None`` for all.

        The older ``return_all_scores`` has them in the order of the classes.
        """
        pair = None
        if isinstance(text, Mapping):
            pair = text.get("text_pair")
            [text] = _get_texts(text, "text")
        config = self.model.config
        default = "sigmoid" if config.num_labels == 1 else "softmax"
        default = {REGRESSION: "none", SEVERAL_CLASSES: "sigmoid"}.get(config.problem_type, default)
        apply = _FUNCTIONS[
            _check_choice("function_to_apply", function_to_apply or default, _FUNCTIONS)
        ]

        def answer(rows: list[np.ndarray]) -> Any:
            scores = enumerate(np.asarray(apply(rows[0])))
            classes = [
                {"label": config.id2label[at], "score": float(score)} for at, score in scores
            ]
            if return_all_scores:
                return classes
            classes.sort(key=lambda answer: answer["score"], reverse=True)
            return classes[0] if top_k == "best" else classes[:top_k]

        return self.tokenizer([text], [pair] if pair else None, **options), answer


_FUNCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "none": lambda logits: logits,
    "sigmoid": class_probabilities.multilabel_probabilities,
    "softmax": class_probabilities.probabilities,
}


class _Group(NamedTuple):
    """Words of one entity."""

    label: str
    probabilities: list[Any]
    tokens: list[int]


class TokenClassificationPipeline(Pipeline):
    """The entities of a text, token by token or put together."""

    auto_class = "TFAutoModelForTokenClassification"
    default_model = "dbmdz/bert-large-cased-finetuned-conll03-english"

    def preprocess(
        self,
        text: str,
        aggregation_strategy: str = "none",
        ignore_labels: Sequence[str] = ("O",),
        grouped_entities: bool = False,  # the older name of a strategy, with the next one
        ignore_subwords: bool = False,
        **options: Any,
    ) -> Request:
        """Answers a dict for each entity: of a token ``entity`` and ``index``, else its group.

        Both have ``score``, ``word``, ``start`` and ``end``.
        """
        for name in ("stride", "is_split_into_words"):
            if options.get(name):
                raise ValueError(
                    f"{type(self).__name__} has no {name}: give whole texts, and cut long ones."
                )
        if grouped_entities and aggregation_strategy == "none":
            aggregation_strategy = "first" if ignore_subwords else "simple"
        aggregate = _AGGREGATIONS[
            _check_choice("aggregation_strategy", aggregation_strategy, _AGGREGATIONS)
        ]
        has_length = self.tokenizer.model_max_length < 10**6
        rows = self.tokenizer([text], truncation=has_length or None, **options)

        def answer(logits: list[np.ndarray]) -> list[dict[str, Any]]:
            names, row = self.model.config.id2label, rows.encodings[0]
            probabilities = class_probabilities.probabilities(logits[0]).numpy()
            groups: list[_Group] = []
            for word in self._group_tokens(
                row, whole=aggregation_strategy not in ("none", "simple")
            ):
                scores = aggregate(probabilities[word])
                label, share = names[int(scores.argmax())], scores.max()
                continues = bool(groups) and aggregation_strategy != "none"
                continues &= not label.startswith("B-")
                if continues and _entity_type(label) == _entity_type(groups[-1].label):
                    groups[-1].probabilities.append(share)
                    groups[-1].tokens.extend(word)
                else:
                    groups.append(_Group(label, [share], word))
            entities = []
            for label, shares, tokens in groups:
                entity: dict[str, Any] = {"entity": label, "index": tokens[0]}
                if aggregation_strategy != "none":
                    label = label.split("-", 1)[-1]
                    entity = {"entity_group": label}
                if label not in ignore_labels:
                    entity |= {"score": np.mean(shares), **self._locate(text, row, tokens)}
                    entities.append(entity)
            return entities

        return rows, answer

    def _group_tokens(self, row: Any, whole: bool) -> list[list[int]]:
        """The places of each word's tokens, or of each token alone."""
        words: list[list[int]] = []
        for at, token in enumerate(row.tokens):
            if row.special_tokens_mask[at]:
                continue
            start, end = row.offsets[at]
            is_piece = len(token) != end - start and row.ids[at] != self.tokenizer.unk_token_id
            if is_piece and words and whole:
                words[-1].append(at)
            else:
                words.append([at])
        return words

    def _locate(self, text: str, row: Any, tokens: list[int]) -> dict[str, Any]:
        """The text of tokens, with its own for one that is [UNK], and where it is."""
        (start, _), (_, end) = row.offsets[tokens[0]], row.offsets[tokens[-1]]
        unknown = self.tokenizer.unk_token_id
        words = [
            text[slice(*row.offsets[at])] if row.ids[at] == unknown else row.tokens[at]
            for at in tokens
        ]
        word = self.tokenizer.convert_tokens_to_string(words)
        return {"word": word, "start": start, "end": end}


NerPipeline = TokenClassificationPipeline


def _entity_type(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


# Of the probabilities of a word's tokens, (T, C), those of the word.
_AGGREGATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **dict.fromkeys(("none", "simple", "first"), lambda tokens: tokens[0]),
    "max": lambda tokens: tokens[tokens.max(1).argmax()],
    "average": lambda tokens: tokens.mean(0),
}


class FillMaskPipeline(Pipeline):
    """The likeliest tokens for each [MASK] of a text."""

    auto_class = "TFAutoModelForMaskedLM"
    default_model = ""  # transformers' default is no BERT
    unwraps_single = True

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """The logits of the masks, (B, M, V), those of each row first."""
        states = self.model.base_model(rows).last_hidden_state
        columns = tf.broadcast_to(tf.range(tf.shape(states)[1]), tf.shape(states)[:2])
        is_mask = rows["input_ids"] == self.tokenizer.mask_token_id
        masks = tf.ragged.boolean_mask(columns, is_mask).to_tensor()
        return self.model.mlm(states, masks, training=False)

    def preprocess(self, text: str, top_k: int = 5, targets: Any = None, **options: Any) -> Request:
        """Answers ``score``, ``token``, ``token_str``, ``sequence``; of several masks, lists."""
        tokenizer = self.tokenizer
        rows = tokenizer([text], **options)
        ids = np.array(rows["input_ids"][0])
        masks = np.flatnonzero(ids == tokenizer.mask_token_id).tolist()
        if not masks:
            raise ValueError(f"No {tokenizer.mask_token} in {text!r}: expected one or more.")
        words, parts = tokenizer.get_vocab(), tokenizer.tokenize
        targets = [targets] if isinstance(targets, str) else words if targets is None else targets
        # Of a word that is no token, the first one of its tokens.
        found = {word: [word] if word in words else parts(word)[:1] for word in targets}
        warn(
            f"fill-mask has no token {word!r}: {f'{its[0]!r} is taken' if its else 'left out'}."
            for word, its in found.items()
            if its != [word]
        )
        tokens = [token for its in found.values() for token in its]
        if not tokens:
            raise ValueError("targets has no token: expected one word or more.")
        candidates = np.unique(tokenizer.convert_tokens_to_ids(tokens))

        def filled(place: int, token: int, score: np.floating) -> dict[str, Any]:
            whole = ids.copy()
            whole[place] = token
            whole = whole[whole != tokenizer.pad_token_id]
            sequence = tokenizer.decode(whole, skip_special_tokens=len(masks) == 1)
            texts = {"token_str": tokenizer.decode([token]), "sequence": sequence}
            return {"score": float(score), "token": token, **texts}

        def answer(logits: list[np.ndarray]) -> list[Any]:
            answers = []
            # ``forward`` gives a row of logits for each mask; later rows are padding.
            for place, row in zip(
                masks, class_probabilities.probabilities(logits[0]).numpy(), strict=False
            ):
                best = candidates[np.argsort(-row[candidates], kind="stable")[:top_k]].tolist()
                answers.append([filled(place, token, row[token]) for token in best])
            return answers[0] if len(masks) == 1 else answers

        return rows, answer


class QuestionAnsweringPipeline(Pipeline):
    """The words of a context that answer a question."""

    auto_class = "TFAutoModelForQuestionAnswering"
    default_model = "distilbert/distilbert-base-cased-distilled-squad"
    length_option = "max_seq_len"
    unwraps_single = True

    def __call__(
        self, inputs: Any = None, question: Any = None, context: Any = None, **options: Any
    ) -> Any:
        """Answers of ``question`` and ``context``, or of dicts of both."""
        if question is not None or context is not None:
            inputs = {"question": question, "context": context}
        return super().__call__(inputs, **options)

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """The logits of starts and of ends, (B, 2, S)."""
        outputs = self.model(rows)
        return tf.stack([outputs.start_logits, outputs.end_logits], 1)

    def preprocess(  # type: ignore[override]  # its tokenizer takes no others
        self,
        text: Mapping[str, str],
        top_k: int = 1,
        doc_stride: int | None = None,
        max_answer_len: int = 15,
        max_seq_len: int | None = None,
        handle_impossible_answer: bool = False,
        topk: int | None = None,  # the older name
    ) -> Request:
        """Answers ``score``, ``start``, ``end``, ``answer``; a list where ``top_k`` is above 1.

        A span's score is the product of two probabilities, each of its window's tokens alone, and
        any window that holds it has it; ``pipelines.answers`` sums logits, and asks the window that
        gives a token the most context.
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
                f"The question {question!r:.60} leaves no room for its context in {limit} tokens: "
                "expected a shorter one, or a larger max_seq_len."
            )
        windows = self.tokenizer(
            [question],
            [context],
            truncation="only_second",
            max_length=limit,
            stride=min(room - 1, doc_stride),
            return_overflowing_tokens=True,
        )

        def answer(logits: list[np.ndarray]) -> Any:
            spans: list[dict[str, Any]] = []
            null = 1e6
            for row, numbers in zip(windows.encodings, logits, strict=True):
                # [CLS], which stands for no answer, and the context
                counts = np.array([text_of == 1 for text_of in row.sequence_ids])
                counts[0] = True
                _, shares = class_probabilities.choose(
                    numbers[:, : len(counts)], np.stack([counts, counts])
                )
                starts, ends = shares.numpy()
                null = min(null, float(starts[0] * ends[0]))
                starts[0] = ends[0] = 0.0
                scores = np.tril(np.triu(np.outer(starts, ends)), max_answer_len - 1)
                for place in np.argsort(-scores, axis=None, kind="stable")[:top_k]:
                    first, last = map(int, np.unravel_index(place, scores.shape))
                    if row.sequence_ids[first] != 1 or row.sequence_ids[last] != 1:
                        continue
                    start, _ = row.word_to_chars(row.word_ids[first], 1)  # whole words
                    _, end = row.word_to_chars(row.word_ids[last], 1)
                    span = {"start": start, "end": end, "answer": context[start:end]}
                    spans.append({"score": float(scores[first, last]), **span})
            if handle_impossible_answer:
                spans.append({"score": null, "start": 0, "end": 0, "answer": ""})
            spans.sort(key=lambda span: span["score"], reverse=True)
            return spans[0] if len(spans[:top_k]) == 1 else spans[:top_k]

        return windows, answer


class FeatureExtractionPipeline(Pipeline):
    """The last states of a text's tokens, (1, S, H) lists."""

    def forward(self, rows: Mapping[str, Any]) -> Any:
        """The states, (B, S, H)."""
        return self.model(rows)[0]

    def preprocess(self, text: str, **options: Any) -> Request:
        """Answers (1, S, H) numbers."""
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
    """A pipeline of a task, a key of ``PIPELINES``, whose calls have these options.

    ``model`` is a model, its directory or its name on the hub, by default the task's;
    ``tokenizer`` a tokenizer or its directory, by default the model's.
    """
    kind = PIPELINES[_check_choice("task", str(task), PIPELINES)]
    if model is None and kind.default_model:
        model = kind.default_model
        _LOGGER.warning("pipeline(%r) was given no model, and takes %s.", task, model)
    if isinstance(model, str | os.PathLike):
        name: str | os.PathLike[str] = model
        auto, own = AUTO_MODELS[kind.auto_class], model_kwargs or {}
        model = auto.from_pretrained(name, **{"revision": revision, "config": config, **own})
    elif hasattr(model, "config"):
        name = model.config.name_or_path
    else:
        raise ValueError(
            f"pipeline({task!r}) was given {type(model).__name__} as its model: expected a model "
            "of bert_tf.transformers, its directory or its name."
        )
    if tokenizer is None and not name:
        raise ValueError(f"pipeline({task!r}) was given a model without a tokenizer: give both.")
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer or name)
    return kind(model, tokenizer, **options)
