"""Creates bert_tf/models/tiny from a finished pre-training run: ``python -m tests.make_tiny RUN``.

The weights are rounded to bfloat16 and written in Hugging Face's format. results.json contains the
values that fine-tuning and the model card read.
"""

import dataclasses
import pathlib
import shutil
import sys

import ml_dtypes

from bert_tf.checkpoints import hugging_face, model_card
from bert_tf.checkpoints.checkpoint import StoredTensor
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.io.files import read_json_object, write_json
from bert_tf.pretraining import recipes

FOLDER = pathlib.Path(hugging_face.__file__).parents[1] / "models" / "tiny"
_RESULT_KEYS = ("step", "objective", "parameters", "trained_tokens", "evaluation")
_FIGURES = {
    "masked_lm_perplexity": "masked-token perplexity",
    "masked_lm_accuracy": "masked-token accuracy",
}
_CARD = """\
---
language: "en"
license: "apache-2.0"
library_name: "bert_tf"
pipeline_tag: "{pipeline_tag}"
tags: ["bert"]
---

# tiny

A small English BERT for demonstrations and tests, installed with `bert_tf`: \
`bert_tf.load("tiny")`, `--init_checkpoint=tiny`. It was trained on {tokens:,} tokens; BERT was \
trained on 137 billion. Do not use its predictions for decisions about people.

{facts}

## Training

Training text: 60 blocks of English Wikipedia of May 2015 (CC BY-SA 3.0, by its contributors, \
https://en.wikipedia.org) and 79 books in the public domain, 97 MB in total; 1% of the documents \
is held out. The weights and the vocabulary contain none of this text, and are licensed like \
`bert_tf` under Apache 2.0.

```sh
python -m bert_tf.pretrain --input='wiki/*.gz,books/*.gz' --recipe=hour --model_dir=runs/hour
```

`--recipe=hour` stands for `{recipe}`. The weights are rounded to bfloat16.

## Evaluation

{figures}

Computed on {predictions:,} masked tokens (30%) of the held-out documents, before the weights \
were rounded.
"""


def _rounded(tensor: StoredTensor) -> StoredTensor:
    dtype = "bfloat16"
    return dataclasses.replace(
        tensor, dtype=dtype, read=lambda: tensor.read().astype(ml_dtypes.bfloat16)
    )


def main(run: str) -> None:
    """Replaces the files of the model."""
    checkpoint = open_checkpoint(run)
    rounded = {name: _rounded(tensor) for name, tensor in checkpoint.tensors.items()}
    checkpoint = dataclasses.replace(checkpoint, tensors=rounded)
    found = read_json_object(str(pathlib.Path(run) / "results.json"))
    results = {name: found[name] for name in _RESULT_KEYS}
    num_steps = recipes.RECIPES["hour"]["num_train_steps"]
    if results["step"] != num_steps:
        sys.exit(f"{run} ended at step {results['step']}: expected {num_steps}, as in the recipe.")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    hugging_face.write(checkpoint, str(FOLDER))
    write_json(str(FOLDER / "results.json"), results)
    recipe = recipes.format_recipe("hour", recipes.RECIPES["hour"])
    evaluation = results["evaluation"]
    figures = [[name, f"{evaluation[key]:.4g}"] for key, name in _FIGURES.items()]
    text = _CARD.format(
        pipeline_tag=model_card.pipeline_tag(checkpoint),
        tokens=results["trained_tokens"],
        facts=model_card.bullets(model_card.facts(checkpoint)),
        recipe=recipe,
        figures=model_card.table(["metric", "value"], figures),
        predictions=evaluation["masked_lm_predictions"],
    )
    model_card.write(str(FOLDER / model_card.README), text)


if __name__ == "__main__":
    main(sys.argv[1])
