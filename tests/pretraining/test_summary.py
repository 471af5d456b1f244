import dataclasses

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.pretraining import summary as results
from bert_tf.training.run_directory import RunDirectory

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "this", "is", "word", "a", "##b"]
TINY = BertConfig(
    vocab_size=len(VOCAB), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=8, max_position_embeddings=16,
)  # fmt: skip
RESULTS = {
    "step": 1200,
    "parameters": 5,
    "objective": "mlm",
    "held_out": True,
    "best": None,
    "export": "x/export/1",
    "evaluation": {
        "masked_lm_accuracy": 0.25,
        "masked_lm_baseline": 0.1,
        "masked_lm_predictions": 4321,
        "next_sentence_accuracy": 0.75,
        "next_sentence_baseline": 0.5,
        "next_sentence_rows": 10,
    },
    "filled_masks": [
        {
            **{"text": "A [MASK].", "word": "word", "guesses": ["thing"], "probabilities": [0.5]},
            **{"hidden": 1, "guessed": 0},
        }
    ],
}


def printed_results(capsys, directory="x", is_temporary=False, **changes):
    """Returns the output for results with these changes."""
    run_directory = RunDirectory(directory)
    run_directory.is_temporary = is_temporary
    results.print_results({**RESULTS, **changes}, run_directory)
    return capsys.readouterr().out


def test_accuracies_are_compared_with_guessing(capsys):
    printed = printed_results(capsys, "runs/x")
    for line in (
        "Held-out accuracy after 1,200 steps, 4,321 predictions:",
        "  masked LM      25.0%  " + "█" * 8 + "·" * 22,
        " 10.0%  ███···························  always guessing the most frequent",
        "always guessing the majority label",
        "  A [MASK].\n    guesses: thing 50%   (was: word)",
        "0 of 1 words (0%), each hidden in its held-out sentence, guessed correctly. Most conf",
        "tensorboard --logdir runs/x/logs",
    ):
        assert line in printed


def test_most_confident_guesses_are_printed(capsys):
    masks = [
        {
            **{"text": f"{n} [MASK].", "word": "Word", "guesses": [guess]},
            **{"probabilities": [n / 10], "hidden": 2, "guessed": int(guess == "word")},
        }
        for n, guess in enumerate(["word", "a", "b", "word", "c", "d", "e"])
    ]
    printed = printed_results(capsys, filled_masks=masks)
    assert "2 of 14 words (14%), each hidden" in printed
    assert "guessed correctly. Most confident:\n  6 [MASK]." in printed
    offsets = [printed.find(f"  {n} [MASK].") for n in (6, 5, 4, 3, 2)]
    assert offsets[0] > -1 and offsets == sorted(offsets) and "1 [MASK]" not in printed


def test_lines_of_missing_results_are_omitted(capsys):
    evaluation = {**RESULTS["evaluation"], "next_sentence_rows": 0}
    assert "next sentence" not in printed_results(capsys, evaluation=evaluation)
    printed = printed_results(capsys, evaluation={}, filled_masks=[])
    assert printed.startswith("\nResults: x/results.json")
    printed = printed_results(capsys, held_out=False)
    assert printed.startswith("Accuracy on the training records after 1,200 steps")
    assert "Next steps" in printed
    assert printed.endswith("\nTry it in a browser: python -m bert_tf.serve --model=x\n")
    assert "browser" not in printed_results(capsys, export=None)
    assert "runs/gone" not in printed_results(capsys, "runs/gone", is_temporary=True)


def test_single_piece_words_are_masked_one_at_a_time():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "some", "have", "hide", "is", "sent"]
    tokenizer = BertTokenizer([*vocab, "##ences", "here"])
    assert results._hide_words("Some long sentences have several words to hide.", tokenizer) == [
        ("[MASK] long sentences have several words to hide.", "Some"),
        ("Some long sentences [MASK] several words to hide.", "have"),
        ("Some long sentences have several words to [MASK].", "hide"),
    ]
    # Words of two pieces, or of one letter, are skipped.
    assert results._hide_words("Sentences I.", tokenizer) == []
    assert results._hide_words("Here [MASK] is what the sentence is about.", tokenizer) == []
    # Every third of 30 words, which exceed the limit.
    texts = [text for text, _ in results._hide_words("is " * 30, tokenizer)]
    assert [text.split().index("[MASK]") for text in texts] == list(range(0, 30, 3))


def test_masks_are_filled_and_long_texts_are_skipped(monkeypatch):
    texts = ["A word is a.", "a " * 30 + "word", "a"]
    model, tokenizer = BertPretrainer(TINY), BertTokenizer(VOCAB)
    filled = results.fill_masks(model, tokenizer, texts)
    assert len(filled) == 1 and filled[0]["hidden"] == 2
    assert filled[0]["text"].replace("[MASK]", filled[0]["word"]) == texts[0]
    assert filled[0]["word"] in ("word", "is") and len(filled[0]["guesses"]) == 5
    assert set(filled[0]["guesses"]) <= {*VOCAB, "b"}
    assert filled[0]["probabilities"] == sorted(filled[0]["probabilities"], reverse=True)
    # Each of the two words is hidden separately; the more confident prediction is returned.
    hidden = results._hide_words(texts[0], tokenizer)
    separate = []
    for pair in hidden:
        monkeypatch.setattr(results, "_hide_words", lambda *_, pair=pair: [pair])
        separate.append(results.fill_masks(model, tokenizer, texts[:1])[0]["probabilities"][0])
    np.testing.assert_allclose(filled[0]["probabilities"][0], max(separate), rtol=1e-6)
    assert len({*separate}) == 2


def test_causal_model_predicts_from_preceding_words(capsys):
    # Computed without padding, after [CLS].
    rows = [("...", "Is", [2]), ("Is ...", "this", [2, 6]), ("Is this ...", "word", [2, 6, 5])]
    config = dataclasses.replace(
        TINY, is_decoder=True, max_position_embeddings=8, initializer_range=0.5
    )
    model = BertPretrainer(config, nsp=False)
    tokenizer = BertTokenizer(VOCAB)
    guessed = results.fill_masks(model, tokenizer, ["Is this word?", "a " * 30 + "word", "a"])
    (one,) = guessed
    assert one["hidden"] == 3
    expected = []
    for number, (_, _, ids) in enumerate(rows):
        ids = np.array([ids], np.int32)
        inputs = {"input_word_ids": ids, "input_mask": 0 * ids + 1, "input_type_ids": 0 * ids}
        logits = model({**inputs, "masked_lm_positions": np.array([[number]], np.int32)})
        logits = logits["masked_lm_logits"].numpy()[0, 0].astype(float)
        expected.append(np.exp(logits) / np.exp(logits).sum())
    surest = max(range(3), key=lambda row: expected[row].max())
    assert (one["text"].strip(), one["word"]) == rows[surest][:2]
    order = np.argsort(-expected[surest])[:5]
    assert one["guesses"] == [VOCAB[token] for token in order]
    np.testing.assert_allclose(one["probabilities"], expected[surest][order], atol=1e-5)
    right = [
        VOCAB[found.argmax()] == row[1].lower() for found, row in zip(expected, rows, strict=True)
    ]
    assert one["guessed"] == sum(right)
    printed = printed_results(capsys, objective="ltr", filled_masks=guessed)
    assert "  next token     25.0%" in printed
    assert "of 3 words (" in printed and ", each after the beginning of its held-out" in printed
