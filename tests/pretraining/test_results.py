from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.pretraining import results
from bert_tf.training.run_directory import RunDirectory

RESULTS = {
    "step": 1200,
    "parameters": 5,
    "held_out": True,
    "evaluation": {
        "masked_lm_accuracy": 0.25,
        "masked_lm_baseline": 0.1,
        "masked_lm_predictions": 4321,
        "next_sentence_accuracy": 0.75,
        "next_sentence_baseline": 0.5,
        "next_sentence_rows": 10,
    },
    "filled_masks": [
        {"text": "A [MASK].", "word": "word", "guesses": ["thing"], "probabilities": [0.5]}
    ],
}


def test_accuracies_stand_beside_guessing(capsys):
    results.show(RESULTS, RunDirectory("runs/x"))
    printed = capsys.readouterr().out
    assert "Held-out accuracy after 1,200 steps, 4,321 predictions:" in printed
    assert "  masked LM      25.0%  " + "█" * 8 + "·" * 22 in printed
    assert " 10.0%  ███···························  always guessing the most frequent" in printed
    assert "always guessing the majority label" in printed
    assert "  A [MASK].\n    guesses: thing 50%   (was: word)" in printed
    assert "Of 1 words hidden in held-out sentences 0 guessed; the surest:" in printed
    assert "tensorboard --logdir runs/x/logs" in printed


def test_the_surest_guesses_are_shown(capsys):
    masks = [
        {"text": f"{n} [MASK].", "word": "Word", "guesses": [guess], "probabilities": [n / 10]}
        for n, guess in enumerate(["word", "a", "b", "word", "c", "d", "e"])
    ]
    results.show({**RESULTS, "filled_masks": masks}, RunDirectory("x"))
    printed = capsys.readouterr().out
    assert "Of 7 words hidden in held-out sentences 2 guessed; the surest:\n  6 [MASK]." in printed
    places = [printed.find(f"  {n} [MASK].") for n in (6, 5, 4, 3, 2)]
    assert places[0] > -1 and places == sorted(places) and "1 [MASK]" not in printed


def test_without_next_sentences_or_evaluation(capsys):
    evaluation = {**RESULTS["evaluation"], "next_sentence_rows": 0}
    results.show({**RESULTS, "evaluation": evaluation}, RunDirectory("x"))
    assert "next sentence" not in capsys.readouterr().out
    results.show({**RESULTS, "evaluation": {}, "filled_masks": []}, RunDirectory("x"))
    assert capsys.readouterr().out.startswith("\nResults: x/results.json")


def test_the_hidden_word_is_near_the_middle():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "some", "have", "hide", "is", "sent"]
    tokenizer = BertTokenizer([*vocab, "##ences", "here"])
    hidden = results._hide_word("Some long sentences have several words to hide.", tokenizer)
    assert hidden == ("Some long sentences [MASK] several words to hide.", "have")
    # Two pieces, or a single letter.
    assert results._hide_word("Sentences I.", tokenizer) is None
    assert results._hide_word("Here [MASK] is what the sentence is about.", tokenizer) is None


def test_accuracies_on_what_was_trained_on_are_called_so(capsys):
    results.show({**RESULTS, "held_out": False}, RunDirectory("x"))
    assert capsys.readouterr().out.startswith("Accuracy on the training records after 1,200 steps")


def test_masks_are_filled_and_a_text_beyond_the_positions_is_left_out():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "this", "is", "word", "a", "##b"]
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    filled = results.fill_masks(
        BertPretrainer(config), BertTokenizer(vocab), ["A word is a.", "a " * 30 + "word", "a"]
    )
    assert [one["text"] for one in filled] == ["A [MASK] is a."]
    assert filled[0]["word"] == "word" and len(filled[0]["guesses"]) == 5
    assert set(filled[0]["guesses"]) <= {*vocab, "b"}
    assert filled[0]["probabilities"] == sorted(filled[0]["probabilities"], reverse=True)
