"""The peers of ``benchmarks.whole_jobs``: the scripts that their users would write.

    PYTHON benchmarks/whole_jobs_peers.py FUNCTION [ARGUMENT ...]

Each function is a script: it imports only what it needs, reads files and writes files. The module
needs neither bert_tf nor the other modules, so that it runs in the environment of any peer.
"""

import csv
import glob
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

MAX_SEQ_LENGTH = 128
BATCH_SIZE = 64
LABELS = ("negative", "positive")


def _read(table: str) -> list[str]:
    with open(table, encoding="utf-8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file)]


def _write(output: str, rows: Sequence[Sequence[Any]]) -> None:
    """Writes the columns of ``python -m bert_tf.predict``."""
    with open(os.path.join(output, "predictions.tsv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["id", "prediction", *(f"probability_{label}" for label in LABELS)])
        for number, probabilities in enumerate(rows):
            best = max(range(len(LABELS)), key=probabilities.__getitem__)
            writer.writerow([number, LABELS[best], *(f"{value:.6g}" for value in probabilities)])


# === Vocabulary ===


def vocabulary(pattern: str, size: str, output: str) -> None:
    """Learns a WordPiece vocabulary with tokenizers."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer()
    tokenizer.train(sorted(glob.glob(pattern)), vocab_size=int(size), show_progress=False)
    tokenizer.save_model(output)


# === Predictions ===


def pipeline(model: str, table: str, batch_size: str, output: str) -> None:
    """Predicts with the pipeline of transformers."""
    import transformers

    classify = transformers.pipeline("text-classification", model=model, device="cpu", top_k=None)
    options = {"truncation": True, "max_length": MAX_SEQ_LENGTH}
    answers: Any = classify(_read(table), batch_size=int(batch_size), **options)
    scores = [{each["label"]: each["score"] for each in answer} for answer in answers]
    _write(output, [[score[label] for label in LABELS] for score in scores])


def sorted_batches(model: str, table: str, output: str) -> None:
    """Predicts with transformers in batches of texts of similar length."""
    import transformers

    network = transformers.AutoModelForSequenceClassification.from_pretrained(model).eval()
    _predict_sorted(network, model, table, output)


def onnx_batches(model: str, table: str, output: str) -> None:
    """Predicts with the ONNX classifier of optimum, also in sorted batches."""
    from optimum.onnxruntime import ORTModelForSequenceClassification

    _predict_sorted(ORTModelForSequenceClassification.from_pretrained(model), model, table, output)


def _predict_sorted(network: Callable[..., Any], model: str, table: str, output: str) -> None:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    ids = tokenizer(_read(table), truncation=True, max_length=MAX_SEQ_LENGTH)["input_ids"]
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    rows: list[Sequence[float]] = [()] * len(ids)
    with torch.inference_mode():
        for start in range(0, len(order), BATCH_SIZE):
            indices = order[start : start + BATCH_SIZE]
            texts = {"input_ids": [ids[index] for index in indices]}
            batch = tokenizer.pad(texts, return_tensors="pt")
            batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
            for index, row in zip(indices, network(**batch).logits.softmax(-1), strict=True):
                rows[index] = row.tolist()
    _write(output, rows)


def export_classifier(model: str, output: str) -> None:
    """Exports a classifier to ONNX with optimum, which is done once per model."""
    import transformers
    from optimum.onnxruntime import ORTModelForSequenceClassification

    ORTModelForSequenceClassification.from_pretrained(model, export=True).save_pretrained(output)
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(output)


# === Fine-tuning ===


def fine_tune(model: str, train: str, dev: str, settings: str, output: str) -> None:
    """Trains a classifier with the Trainer of transformers; evaluates and saves each epoch.

    Args:
        model: Directory of the model to start from.
        train: Path to the table to train on.
        dev: Path to the table to evaluate on.
        settings: Keyword arguments of ``TrainingArguments``, as JSON.
        output: Output directory.
    """
    import json

    import datasets
    import transformers

    transformers.set_seed(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        model,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )

    def encode(table: str) -> datasets.Dataset:
        with open(table, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = {
            "sentence": [row["sentence"] for row in rows],
            "labels": [LABELS.index(row["label"]) for row in rows],
        }
        return datasets.Dataset.from_dict(columns).map(
            lambda batch: tokenizer(batch["sentence"], truncation=True, max_length=MAX_SEQ_LENGTH),
            batched=True,
            remove_columns=["sentence"],
        )

    def metrics(predicted: Any) -> dict[str, float]:
        return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}

    arguments = transformers.TrainingArguments(
        output_dir=output,
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to="none",
        disable_tqdm=True,
        **json.loads(settings),
    )
    trainer = transformers.Trainer(
        model=network,
        args=arguments,
        train_dataset=encode(train),
        eval_dataset=encode(dev),
        processing_class=tokenizer,  # so that batches are padded to their longest text
        compute_metrics=metrics,
    )
    trainer.train()
    trainer.save_model()
    with open(os.path.join(output, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"scores": {"dev": {"accuracy": trainer.state.best_metric}}}, file)


# === Embeddings ===


def embed(backend: str, model: str, texts: str, output: str) -> None:
    """Embeds a file of lines with sentence-transformers, in float32.

    By default, OpenVINO computes in bfloat16 if the processor supports it.
    """
    import numpy as np
    from sentence_transformers import SentenceTransformer

    with open(texts, encoding="utf-8") as file:
        lines = file.read().splitlines()
    options = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}} if backend == "openvino" else None
    encoder = SentenceTransformer(
        model,
        device="cpu",
        backend=backend,  # type: ignore[arg-type]
        model_kwargs=options,
    )
    vectors = encoder.encode(lines, show_progress_bar=False)
    np.savez(os.path.join(output, "part-000000.npz"), values=vectors)


def export_encoder(backend: str, model: str, output: str) -> None:
    """Exports a sentence-transformers model for a backend, which is done once per model."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model, device="cpu", backend=backend)  # type: ignore[arg-type]
    encoder.save_pretrained(output)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
