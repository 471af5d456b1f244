from bert_tf import pretraining_results
from bert_tf.training.run_directory import RunDirectory

RESULTS = {
    "step": 1200,
    "parameters": 5,
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
    pretraining_results.show(RESULTS, RunDirectory("runs/x"))
    printed = capsys.readouterr().out
    assert "Held-out accuracy after 1,200 steps, 4,321 predictions:" in printed
    assert "  masked LM      25.0%  " + "█" * 8 + "·" * 22 in printed
    assert " 10.0%  ███···························  always guessing the most frequent" in printed
    assert "always guessing the majority label" in printed
    assert "  A [MASK].\n    guesses: thing 50%   (was: word)" in printed
    assert "tensorboard --logdir runs/x/logs" in printed


def test_without_next_sentences_or_evaluation(capsys):
    evaluation = {**RESULTS["evaluation"], "next_sentence_rows": 0}
    pretraining_results.show({**RESULTS, "evaluation": evaluation}, RunDirectory("x"))
    assert "next sentence" not in capsys.readouterr().out
    pretraining_results.show({**RESULTS, "evaluation": {}, "filled_masks": []}, RunDirectory("x"))
    assert capsys.readouterr().out.startswith("\nResults: x/results.json")


def test_the_hidden_word_is_near_the_middle():
    hidden = pretraining_results.hide_word("Some long sentences have several words to hide.")
    assert hidden == ("Some long sentences [MASK] several words to hide.", "have")
    assert pretraining_results.hide_word("It is so.") is None
