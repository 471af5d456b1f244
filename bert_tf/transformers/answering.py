"""``pipeline``: texts in, answers out, as transformers gave them.

``bert_tf.Predictor`` answers in tables and in batches; these give the forms that scripts read.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_tf.interchange import hugging_face

from . import auto
from .encoding import BatchEncoding

Answer = dict[str, Any]
_AGGREGATIONS = ("none", "simple", "first", "max", "average")


class Pipeline:
    """A model and its tokenizer, called on texts; options of a call win over those given here."""

    #: The class of ``auto`` that loads a model by its name.
    auto_class = "TFAutoModel"

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """The answer to a text, or a list of answers to a list of texts."""
        options = {**self.options, **options}
        if isinstance(inputs, str | Mapping):
            return self.answer_alone(inputs, options)
        return [self.answer(text, **options) for text in inputs]

    def answer(self, text: Any, **options: Any) -> Any:
        """The answer to one text."""
        raise NotImplementedError

    def answer_alone(self, text: Any, options: Mapping[str, Any]) -> Any:
        """What a call with one text gives."""
        return self.answer(text, **options)

    def rows(self, text: Any, **options: Any) -> BatchEncoding:
        """The tokenizer's rows of a text, as tensors."""
        rows: BatchEncoding = self.tokenizer(text, return_tensors="tf", **options)
        return rows

    def outputs(self, rows: Mapping[str, Any]) -> Any:
        """The model's outputs on rows."""
        return self.model({key: rows[key] for key in self.tokenizer.model_input_names})


class TextClassificationPipeline(Pipeline):
    """A class and its probability for a text or a pair of texts."""

    auto_class = "TFAutoModelForSequenceClassification"

    def answer_alone(self, text: Any, options: Mapping[str, Any]) -> Any:
        """A list, as it was there, but where all classes are asked for as ``top_k``."""
        found = self.answer(text, **options)
        return found if "top_k" in options else [found]

    def answer(
        self,
        text: Any,
        top_k: Any = "best",
        return_all_scores: bool = False,
        function_to_apply: str | None = None,
        **options: Any,
    ) -> Any:
        """``label`` and ``score``; with ``top_k`` a list of so many, ``None`` for all."""
        pair = {}
        if isinstance(text, Mapping):
            text, pair = text["text"], {"text_pair": text["text_pair"]}
        logits = np.asarray(self.outputs(self.rows(text, **pair, **options)).logits)[0]
        config = self.model.config
        function = function_to_apply or _function(config.problem_type, len(logits))
        scores = _FUNCTIONS[function](logits)
        found = [
            {"label": config.id2label[at], "score": float(score)} for at, score in enumerate(scores)
        ]
        if return_all_scores:
            return found
        found.sort(key=lambda answer: answer["score"], reverse=True)
        return found[0] if top_k == "best" else found[:top_k]


def _function(problem: str | None, classes: int) -> str:
    if problem == hugging_face.REGRESSION:
        return "none"
    return "sigmoid" if problem == hugging_face.SEVERAL_CLASSES or classes == 1 else "softmax"


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


_FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "none": lambda logits: logits,
        "sigmoid": lambda logits: 1.0 / (1.0 + np.exp(-logits)),
        "softmax": _softmax,
    }
)


class TokenClassificationPipeline(Pipeline):
    """The entities of a text, token by token or put together."""

    auto_class = "TFAutoModelForTokenClassification"

    def answer(
        self,
        text: str,
        aggregation_strategy: str | None = None,
        grouped_entities: bool = False,
        ignore_labels: Sequence[str] = ("O",),
        **options: Any,
    ) -> list[Answer]:
        """A dict for each entity.

        Of a token ("none"): ``entity``, ``score``, ``index``, ``word``, ``start``, ``end``; of
        tokens put together: ``entity_group``, ``score``, ``word``, ``start``, ``end``.
        """
        strategy = aggregation_strategy or ("simple" if grouped_entities else "none")
        if strategy not in _AGGREGATIONS:
            raise ValueError(
                f"aggregation_strategy is {strategy!r}: expected one of {', '.join(_AGGREGATIONS)}."
            )
        has_length = self.tokenizer.model_max_length < 10**6
        rows = self.rows(text, truncation=has_length or None, **options)
        scores = _softmax(np.asarray(self.outputs(rows).logits)[0])
        tokens = list(self._tokens(text, rows.encodings[0], scores))
        if strategy in ("none", "simple"):
            found = [self._token(token) for token in tokens]
        else:
            # A word and the pieces that follow its first one.
            number = itertools.accumulate(not token["is_piece"] for token in tokens)
            words = itertools.groupby(zip(number, tokens, strict=True), key=lambda pair: pair[0])
            found = [self._word([token for _, token in word], strategy) for _, word in words]
        if strategy != "none":
            found = self._groups(found)
        kind = "entity" if strategy == "none" else "entity_group"
        return [one for one in found if one[kind] not in ignore_labels]

    def _tokens(self, text: str, row: Any, scores: np.ndarray) -> Iterator[Answer]:
        for at, token in enumerate(row.tokens):
            if row.special_tokens_mask[at]:
                continue
            start, end = row.offsets[at]
            is_unknown = row.ids[at] == self.tokenizer.unk_token_id
            yield {
                "word": text[start:end] if is_unknown else token,
                "scores": scores[at],
                "index": at,
                "start": start,
                "end": end,
                "is_piece": not is_unknown and len(token) != end - start,
            }

    def _label(self, scores: np.ndarray) -> tuple[str, np.floating[Any]]:
        best = int(scores.argmax())
        return self.model.config.id2label[best], scores[best]

    def _token(self, token: Answer) -> Answer:
        label, score = self._label(token["scores"])
        places = {key: token[key] for key in ("index", "word", "start", "end")}
        return {"entity": label, "score": score, **places}

    def _word(self, tokens: list[Answer], strategy: str) -> Answer:
        scores = tokens[0]["scores"]
        if strategy == "max":
            scores = max((token["scores"] for token in tokens), key=lambda found: found.max())
        elif strategy == "average":
            scores = np.mean([token["scores"] for token in tokens], axis=0)
        label, score = self._label(scores)
        return {"entity": label, "score": score, **self._place(tokens)}

    def _place(self, parts: list[Answer]) -> Answer:
        word = self.tokenizer.convert_tokens_to_string([part["word"] for part in parts])
        return {"word": word, "start": parts[0]["start"], "end": parts[-1]["end"]}

    def _groups(self, parts: list[Answer]) -> list[Answer]:
        """Neighbours of one type put together; ``B-`` begins an entity."""
        groups: list[list[Answer]] = []
        for part in parts:
            begins = part["entity"].startswith("B-")
            if groups and not begins and _type(part) == _type(groups[-1][-1]):
                groups[-1].append(part)
            else:
                groups.append([part])
        return [
            {
                "entity_group": group[0]["entity"].split("-", 1)[-1],
                "score": np.mean([part["score"] for part in group]),
                **self._place(group),
            }
            for group in groups
        ]


NerPipeline = TokenClassificationPipeline


def _type(part: Answer) -> str:
    name: str = part["entity"]
    return name[2:] if name.startswith(("B-", "I-")) else name


class FillMaskPipeline(Pipeline):
    """The likeliest tokens for each [MASK] of a text."""

    auto_class = "TFAutoModelForMaskedLM"

    def answer(self, text: str, top_k: int = 5, targets: Any = None, **options: Any) -> list[Any]:
        """Dicts of ``score``, ``token``, ``token_str``, ``sequence``; of several masks, lists."""
        rows = self.rows(text, **options)
        ids = np.asarray(rows["input_ids"])[0]
        masks = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(masks):
            raise ValueError(
                f"No {self.tokenizer.mask_token} in {text!r}: expected one or more to fill."
            )
        scores = _softmax(np.asarray(self.outputs(rows).logits)[0, masks])
        chosen = np.arange(scores.shape[-1])
        if targets is not None:
            wanted = [targets] if isinstance(targets, str) else targets
            chosen = np.array(sorted(set(self.tokenizer.convert_tokens_to_ids(wanted))))
        one = len(masks) == 1
        found = []
        for place, row in zip(masks, scores, strict=True):
            best = chosen[np.argsort(-row[chosen], kind="stable")[:top_k]]
            at = int(place)
            found.append([self._filled(ids, at, int(it), float(row[it]), one) for it in best])
        return found[0] if one else found

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

    def __call__(
        self, inputs: Any = None, question: Any = None, context: Any = None, **options: Any
    ) -> Any:
        """Answers of ``question`` and ``context``, texts or lists, or of dicts of both."""
        options = {**self.options, **options}
        if question is not None:
            several = not isinstance(question, str)
            questions = list(question) if several else [question]
            contexts = [context] * len(questions) if isinstance(context, str) else list(context)
            inputs = [
                {"question": q, "context": c} for q, c in zip(questions, contexts, strict=True)
            ]
        examples = [inputs] if isinstance(inputs, Mapping) else list(inputs)
        found = [self.answer(example, **options) for example in examples]
        return found[0] if len(found) == 1 else found

    def answer(
        self,
        text: Mapping[str, str],
        top_k: int = 1,
        doc_stride: int | None = None,
        max_answer_len: int = 15,
        max_seq_len: int | None = None,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
        **options: Any,
    ) -> Any:
        """``score``, ``start``, ``end`` and ``answer``; a list where ``top_k`` is above 1."""
        most = max_seq_len or min(self.tokenizer.model_max_length, 384)
        stride = min(most // 2, 128) if doc_stride is None else doc_stride
        encoded = self.tokenizer(
            [text["question"]],
            [text["context"]],
            truncation="only_second",
            max_length=most,
            stride=stride,
            return_overflowing_tokens=True,
            return_token_type_ids=True,
        )
        found: list[Answer] = []
        null = 1e6
        for at, row in enumerate(encoded.encodings):
            inputs = {
                name: np.array([encoded[name][at]], "int32")
                for name in self.tokenizer.model_input_names
            }
            outputs = self.outputs(inputs)
            in_context = np.array([part == 1 for part in row.sequence_ids])
            counts = in_context.copy()
            counts[0] = True  # [CLS], which stands for no answer
            starts, ends = (
                _softmax(np.where(counts, np.asarray(logits)[0], -10000.0))
                for logits in (outputs.start_logits, outputs.end_logits)
            )
            null = min(null, float(starts[0] * ends[0]))
            starts[0] = ends[0] = 0.0
            spans = np.tril(np.triu(np.outer(starts, ends)), max_answer_len - 1)
            for place in np.argsort(-spans, axis=None, kind="stable")[:top_k]:
                first, last = np.unravel_index(place, spans.shape)
                if not (counts[first] and counts[last]):
                    continue
                start, end = _characters(row, int(first), int(last), align_to_words)
                score = float(spans[first, last])
                answer = text["context"][start:end]
                found.append({"score": score, "start": start, "end": end, "answer": answer})
        if handle_impossible_answer:
            found.append({"score": null, "start": 0, "end": 0, "answer": ""})
        found = sorted(found, key=lambda one: one["score"], reverse=True)[:top_k]
        return found[0] if len(found) == 1 else found


def _characters(row: Any, first: int, last: int, whole_words: bool) -> tuple[int, int]:
    start, end = row.offsets[first][0], row.offsets[last][1]
    if whole_words and row.sequence_ids[first] == 1 == row.sequence_ids[last]:
        start = row.word_to_chars(row.word_ids[first], 1)[0]
        end = row.word_to_chars(row.word_ids[last], 1)[1]
    return int(start), int(end)


class FeatureExtractionPipeline(Pipeline):
    """The last states of a text's tokens, as lists."""

    def answer(self, text: str, return_tensors: bool = False, **options: Any) -> Any:
        """(1, S, H) numbers."""
        states = self.outputs(self.rows(text, **options))[0]
        return states if return_tensors else np.asarray(states).tolist()


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
    *("framework", "device", "device_map", "torch_dtype", "batch_size", "num_workers"),
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
        model: a model, its directory or its name on the hub.
        config: of the model, where that is a name.
        tokenizer: a tokenizer or its directory; by default the model's.
        revision: of a name on the hub.
        **options: of the pipeline's calls.

    Raises:
        ValueError: the task has no pipeline here, or no model is given.
    """
    if task is None or task not in PIPELINES:
        raise ValueError(f"task is {task!r}: expected one of {', '.join(PIPELINES)}.")
    if model is None:
        raise ValueError(
            f"pipeline({task!r}) was given no model: expected one, its directory or its name."
        )
    kind = PIPELINES[task]
    name = model if isinstance(model, str) else getattr(model.config, "name_or_path", None)
    if isinstance(model, str):
        settings = {"revision": revision} | ({} if config is None else {"config": config})
        model = getattr(auto, kind.auto_class).from_pretrained(model, **settings)
    if tokenizer is None and name is None:
        raise ValueError(f"pipeline({task!r}) was given a model without a tokenizer: give both.")
    if tokenizer is None or isinstance(tokenizer, str):
        tokenizer = auto.AutoTokenizer.from_pretrained(str(tokenizer or name))
    options = {key: value for key, value in options.items() if key not in _WITHOUT_MEANING}
    return kind(model, tokenizer, **options)
