"""Summary of a finished pre-training run: export, metrics, filled masks, commands to run next."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.answering.export_options import ExportOptions
from bert_tf.answering.fill_mask import best_pieces
from bert_tf.answering.fill_mask import fill_masks as fill
from bert_tf.answering.served import Served, untraced
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines.vocabulary import MASK_TOKEN
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models.exporting import export, remove_export
from bert_tf.training.progress import print_progress
from bert_tf.training.run_directory import RunDirectory

from .settings import Phase

# Names of the predictions by objective, and descriptions of the guessed words.
PREDICTED = {"mlm": "masked LM", "ltr": "next token"}
_GUESS_DESCRIPTIONS = {
    "mlm": "each hidden in its held-out sentence",
    "ltr": "each after the beginning of its held-out sentence",
}
_NUM_PRINTED = 5
_MAX_WORDS = 12


def export_model(
    model: BertPretrainer, tokenizer: BertTokenizer, phases: Sequence[Phase], path: str
) -> None:
    """Exports the model for texts up to the longest rows; later positions are untrained."""
    # An export without results comes from a killed process, and may be incomplete.
    remove_export(path)
    longest = max(phase.max_seq_length for phase in phases)
    export(model, path, tokenizer=tokenizer, options=ExportOptions(max_seq_length=longest))


def _hide_words(sentence: str, tokenizer: BertTokenizer) -> list[tuple[str, str]]:
    """Returns up to 12 copies of a sentence with one word hidden each, and the hidden words.

    A hidden word has at least two letters and is a single piece, because [MASK] is one piece.
    """
    if MASK_TOKEN in sentence:  # a text about BERT
        return []
    words = list(re.finditer(r"\b[A-Za-z]{2,}\b", sentence))
    if words:
        pieces = tokenizer.tokenize([match.group() for match in words]).to_list()
        unknown = [tokenizer.unk_id]
        words = [
            match
            for match, ids in zip(words, pieces, strict=True)
            if len(ids) == 1 and ids != unknown
        ]
    stride = -(-len(words) // _MAX_WORDS) or 1
    return [
        (sentence[: word.start()] + MASK_TOKEN + sentence[word.end() :], word.group())
        for word in words[::stride]
    ]


def fill_masks(
    model: BertPretrainer, tokenizer: BertTokenizer, sentences: Sequence[str]
) -> list[dict[str, Any]]:
    """Predicts hidden words of sentences; returns the most confident prediction per sentence.

    ``guessed`` is the number of correct first guesses for the ``hidden`` words. A causal model sees
    only the words before the hidden word.
    """
    served = untraced(model, tokenizer, ExportOptions())
    guess = _guess_from_the_left if model.config.is_decoder else _guess_hidden
    best_guesses = []
    for sentence in sentences:
        rows = guess(served, hidden) if (hidden := _hide_words(sentence, tokenizer)) else []
        if rows:
            best: dict[str, Any] = max(rows, key=_confidence)
            guessed = sum(row["guesses"][0].lower() == row["word"].lower() for row in rows)
            best_guesses.append({**best, "hidden": len(rows), "guessed": guessed})
    return best_guesses


def _guess_hidden(served: Served, hidden: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    filled = fill(served, tf.constant([text for text, _ in hidden]))
    # (B, M, K): guesses for the first mask. A text that was cut may have lost its mask.
    guesses, scores = filled["tokens"].numpy(), filled["scores"].numpy()
    return [
        {
            "text": text,
            "word": word,
            "guesses": [guess.decode() for guess in guesses[row, 0]],
            "probabilities": scores[row, 0].tolist(),
        }
        for row, (text, word) in enumerate(hidden)
        if filled["counts"][row] == 1
    ]


def _guess_from_the_left(served: Served, hidden: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    tokenizer, positions = served.tokenizer, served.max_seq_length
    prefixes = [text.split(MASK_TOKEN)[0] for text, _ in hidden]
    cls_ids = tf.fill([len(hidden), 1], tokenizer.cls_id)
    ids = tf.concat([cls_ids, tokenizer.tokenize(prefixes)], 1)
    last_positions = ids.row_lengths() - 1
    fits = (ids.row_lengths() <= positions).numpy()  # longer texts have no guesses
    ids = ids[:, :positions]
    mask = tf.ones_like(ids).to_tensor()
    inputs = {
        features.INPUT_WORD_IDS: ids.to_tensor(tokenizer.pad_id),
        features.INPUT_MASK: mask,
        features.INPUT_TYPE_IDS: tf.zeros_like(mask),
    }
    states = served.encode(inputs)[features.SEQUENCE_OUTPUT]
    states = tf.gather(
        states, tf.minimum(last_positions, tf.shape(states, tf.int64)[1] - 1), batch_dims=1
    )
    scores, best = (tensor.numpy() for tensor in best_pieces(served, states))
    return [
        {
            "text": f"{prefixes[row].rstrip()} ...",
            "word": word,
            "guesses": [tokenizer.vocab[token] for token in best[row]],
            "probabilities": scores[row].tolist(),
        }
        for row, (_, word) in enumerate(hidden)
        if fits[row]
    ]


def _confidence(filled: dict[str, Any]) -> float:
    return filled["probabilities"][0]


def _bar(fraction: float, width: int = 30) -> str:
    return ("█" * round(fraction * width)).ljust(width, "·")


def print_results(results: dict[str, Any], directory: RunDirectory) -> None:
    """Prints the results of a finished run and the commands to run next."""
    evaluation = results["evaluation"]
    objective = results["objective"]
    if evaluation:
        rows = [(PREDICTED[objective], "masked_lm", "the most frequent token")]
        if evaluation["next_sentence_rows"]:
            rows.append(("next sentence", "next_sentence", "the majority label"))
        where = "Held-out accuracy" if results["held_out"] else "Accuracy on the training records"
        print_progress(
            f"{where} after {results['step']:,} steps, "
            f"{evaluation['masked_lm_predictions']:,} predictions:"
        )
        for label, key, guess in rows:
            accuracy = evaluation[f"{key}_accuracy"]
            baseline = evaluation[f"{key}_baseline"]
            print_progress(f"  {label:<14}{accuracy:6.1%}  {_bar(accuracy)}")
            print_progress(f"  {'':<14}{baseline:6.1%}  {_bar(baseline)}  always guessing {guess}")
    if results["best"]:
        print_progress(
            f"Best evaluation during training: step {results['best']['step']:,}, loss "
            f"{results['best']['loss']:.3f}, weights in {directory.best}"
        )
    if masks := results["filled_masks"]:
        hidden = sum(filled["hidden"] for filled in masks)
        right = sum(filled["guessed"] for filled in masks)
        print_progress(
            f"\n{right} of {hidden} words ({right / hidden:.0%}), "
            f"{_GUESS_DESCRIPTIONS[objective]}, guessed correctly. Most confident:"
        )
        for filled in sorted(masks, key=_confidence, reverse=True)[:_NUM_PRINTED]:
            guesses = ", ".join(
                f"{guess} {probability:.0%}"
                for guess, probability in zip(
                    filled["guesses"], filled["probabilities"], strict=True
                )
            )
            print_progress(f"  {filled['text']}\n    guesses: {guesses}   (was: {filled['word']})")
    if directory.is_temporary:
        return
    is_exported = results["export"] is not None
    print_progress(
        f"\nResults: {directory.results}\n"
        + (f"SavedModel: {directory.export}\n" if is_exported else "")
        + f"\nNext steps:\n  tensorboard --logdir {directory.logs}\n"
        + (
            f"  saved_model_cli show --dir {directory.export} --tag_set serve --all\n"
            if is_exported
            else f"  python -m bert_tf.export --model={directory.path} --output=...\n"
        )
        + f"  python -m bert_tf.finetune --init_checkpoint={directory.path} --task=classification "
        "--train_file=... --model_dir=...\n"
        "  python -m bert_tf.pretrain --help"
    )
    if is_exported:
        print_progress(f"Try it in a browser: python -m bert_tf.serve --model={directory.path}")
