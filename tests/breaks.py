"""The library broken on purpose, a break at a time: does a fast test notice?

    python -m tests.breaks [--only=ROOM_OR_FILE] [--number=N]

Each break replaces a text of a file, which occurs there once, by another. The script makes it in
this checkout, which must have no changes of its own and be what is installed, runs the fast tests
of the files that import the module or are named after it, and puts the file back. It prints how
many test functions failed, and ends with status 1 where a break was noticed by none.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
# By file: what is there, and what it becomes.
BREAKS: dict[str, list[tuple[str, str]]] = {
    "bert_tf/cli/flag_rules.py": [
        (
            "if (if_given and name not in given) or not broken(value, values):",
            "if not broken(value, values):",
        ),
        (
            "wrong = (other for other in others if other in given and values[other] is not None)",
            "wrong = (other for other in others if values[other] is not None)",
        ),
        ("lambda value, values: value % values[other] != 0,", "lambda value, values: False,"),
    ],
    "bert_tf/config.py": [
        ("if not 0.0 <= getattr(self, name) < 1.0:", "if not 0.0 <= getattr(self, name) <= 1.0:"),
    ],
    "bert_tf/extraction/lines.py": [
        ("text.seek(position.offset)", "text.seek(0)"),
    ],
    "bert_tf/extraction/run.py": [
        ("if not -blocks <= layer < blocks:", "if not -blocks <= layer <= blocks:"),
        ("np.repeat(np.cumsum(counts) - counts, counts)", "np.repeat(np.cumsum(counts), counts)"),
    ],
    "bert_tf/finetuning/held_out.py": [
        (
            "fold = min(range(count), key=lambda number: (dealt[number, name], totals[number]))",
            "fold = min(range(count), key=lambda number: totals[number])",
        ),
    ],
    "bert_tf/finetuning/model.py": [
        (
            "below = num_blocks - int(block[1]) if block else 0",
            "below = num_blocks - 1 - int(block[1]) if block else 0",
        ),
    ],
    "bert_tf/finetuning/objective.py": [
        ("loss *= tf.math.divide_no_nan(self._weight_of(targets), totals[0])", "loss *= 1.0"),
    ],
    "bert_tf/finetuning/training.py": [
        (
            "rank(headline, scores[headline]) > rank(headline, best[0])",
            "rank(headline, scores[headline]) >= rank(headline, best[0])",
        ),
    ],
    "bert_tf/heads/classes.py": [
        (
            "return tf.cast(logits, tf.float64) / temperature",
            "return tf.cast(logits, tf.float64) * temperature",
        ),
        ("return tf.where(tf.reduce_any(is_choice, 1), best, -1), found", "return best, found"),
    ],
    "bert_tf/heads/entities.py": [
        (
            '[match is not None and match[1] in "ESLU" for match in matches]',
            '[match is not None and match[1] in "ESL" for match in matches]',
        ),
        ("joins = inside & same_kind & same_text &", "joins = inside & same_kind &"),
    ],
    "bert_tf/interchange/google.py": [
        (
            '"next_sentence/dense": "cls/seq_relationship/",',
            '"next_sentence/dense": "cls/seq_relation/",',
        ),
    ],
    "bert_tf/interchange/hugging_face.py": [
        (
            "elif tensor.shape != entry.shape or not np.array_equal(tensor.read(), entry.read()):",
            "elif tensor.shape != entry.shape:",
        ),
    ],
    "bert_tf/interchange/tokenizer_files.py": [
        (
            "return not any(piece != piece.lower() for piece in words)",
            "return any(piece != piece.lower() for piece in words)",
        ),
    ],
    "bert_tf/interchange/weights.py": [
        (
            '_ATTENTION_PARTS = ("query", "key", "value")',
            '_ATTENTION_PARTS = ("key", "query", "value")',
        ),
    ],
    "bert_tf/metrics/formulas.py": [
        ("np.cumsum(counts) - (counts - 1) / 2", "np.cumsum(counts) - (counts - 1)"),
    ],
    "bert_tf/metrics/resampling.py": [
        (
            "np.percentile(scores, [rest, 100 - rest])",
            "np.percentile(scores, [2 * rest, 100 - rest])",
        ),
    ],
    "bert_tf/metrics/squad_scores.py": [
        (
            "bare = text.lower().translate(_PUNCTUATION)\n"
            '    return " ".join(_ARTICLE.sub(" ", bare).split())',
            'bare = _ARTICLE.sub(" ", text.lower())\n'
            '    return " ".join(bare.translate(_PUNCTUATION).split())',
        ),
    ],
    "bert_tf/modeling/dropout.py": [
        ("return LEVELS / (LEVELS - self.dropped)", "return 1.0 + 0 * self.dropped"),
    ],
    "bert_tf/modeling/encoder.py": [
        (
            "ops.take(self.token_type_embeddings, type_ids, axis=0)",
            "ops.take(self.token_type_embeddings, 0 * type_ids, axis=0)",
        ),
    ],
    "bert_tf/modeling/transformer.py": [
        ("dx = (along - mean - normal * projection) * inverse", "dx = (along - mean) * inverse"),
        ("place[None, :] <= place[:, None]", "place[None, :] < place[:, None]"),
        (
            "scores = scores + attention_bias(real_tokens, dtype, causal)\n",
            "scores = scores + 0 * attention_bias(real_tokens, dtype, causal)\n",
        ),
    ],
    "bert_tf/predicting/inputs.py": [
        ("return name if found or not table.holds_values else None", "return name"),
        ("if trained and len(trained) != len(names):", "if False:"),
        (
            'if len(names) < least or (len(names) > most and "text_columns" not in kind.texts):',
            "if len(names) < least:",
        ),
    ],
    "bert_tf/preparation/documents.py": [
        ("if len(text) < settings.min_characters:", "if len(text) <= settings.min_characters:"),
    ],
    "bert_tf/preparation/near_duplicates.py": [
        (
            "return common / (len(first) + len(second) - common)",
            "return common / (len(first) + len(second))",
        ),
        (
            "values[start : start + _AT_ONCE] * (factors | np.uint32(1)) + offsets",
            "values[start : start + _AT_ONCE] * factors + offsets",
        ),
    ],
    "bert_tf/pretraining/cost.py": [
        ("bytes_per_activation=2 if low_precision else 4,", "bytes_per_activation=4,"),
    ],
    "bert_tf/pretraining/evaluator.py": [
        (
            'key=lambda one: (-one["phase"], one["loss"], one["step"])',
            'key=lambda one: (one["loss"], one["step"])',
        ),
    ],
    "bert_tf/pretraining/saving.py": [
        (
            'if self.best and self.best["phase"] == phase and self.best["loss"] <= loss:',
            'if self.best and self.best["loss"] <= loss:',
        ),
        (
            "return min([due, *(kept for kept in self._settings.kept_steps if kept > step)])",
            "return due",
        ),
    ],
    "bert_tf/readers/entities.py": [
        (
            "touches = start > 0 and converted[start - 1][2:] == kind",
            'touches = start > 0 and converted[start - 1] != "O"',
        ),
    ],
    "bert_tf/readers/text_files.py": [
        ('text = text.removeprefix("\\ufeff")', "pass"),
        ("if sum(not character.isascii() for character in text) >= _NO_CHANCE:", "if False:"),
    ],
    "bert_tf/reports/cards.py": [
        ('return "" if name == "cls" else', 'return "" if name == "max" else'),
    ],
    "bert_tf/reports/confusion.py": [
        ("share = count / total if total else 0.0", "share = count / max(1, total + 1)"),
        ('percent = f"{share:.0%}" if share >= 0.01 else "<1%"', 'percent = f"{share:.0%}"'),
    ],
    "bert_tf/reproduction/page.py": [
        (
            "if key[0] and own and first and own.seeds > 1 else None",
            "if key[0] and own and first else None",
        ),
    ],
    "bert_tf/reproduction/plan.py": [
        ("if row.blocks != 1:", "if False:"),
    ],
    "bert_tf/reproduction/runner.py": [
        ("if run.name in wanted and not _is_done(run)]", "if run.name in wanted]"),
    ],
    "bert_tf/results/comparison.py": [
        (
            "return text if not value else f\"{'-' if value < 0 else '+'}{text}\"",
            "return text if not value else f\"{'+' if value < 0 else '-'}{text}\"",
        ),
    ],
    "bert_tf/results/report.py": [
        ('return ">99.9%" if share > 0.999 else f"{share:.1%}"', 'return f"{share:.1%}"'),
    ],
    "bert_tf/results/run_directory.py": [
        (
            "return tf.io.gfile.exists(directory.flags) and not directory.is_finished()",
            "return tf.io.gfile.exists(directory.flags)",
        ),
    ],
    "bert_tf/seals.py": [
        ('return None if sha256_of(path) == before["sha256"] else "sha256"', "return None"),
    ],
    "bert_tf/tasks/losses.py": [
        (
            "losses = -(1 - self.smoothing) * right - self.smoothing * ops.mean(logs, axis=-1)",
            "losses = -(1 - self.smoothing) * right - self.smoothing * ops.sum(logs, axis=-1)",
        ),
    ],
    "bert_tf/tasks/question_task.py": [
        (
            "answer.start + len(answer.text.encode()) if answer else -1",
            "answer.start + len(answer.text) if answer else -1",
        ),
    ],
    "bert_tf/tasks/tagging_task.py": [
        ("found[words] = logits[tagged]", "found[words - words.min()] = logits[tagged]"),
    ],
    "bert_tf/tasks/target_scale.py": [
        (
            "self._assign(model.regressor, 1 / self.std, -self.mean / self.std)",
            "self._assign(model.regressor, 1 / self.std, -self.mean)",
        ),
    ],
    "bert_tf/tpu_compiler/report.py": [
        (
            'bound = "memory" if of_memory > of_products else "arithmetic"',
            'bound = "arithmetic" if of_memory > of_products else "memory"',
        ),
    ],
    "bert_tf/tpu_compiler/run.py": [
        ("if settings.train_batch_size % cores:", "if False:"),
        ("if version != JAX:", "if False:"),
    ],
    "bert_tf/training/loop.py": [
        ("self._bad_in_a_row > self._most_bad_steps", "self._bad_in_a_row >= self._most_bad_steps"),
    ],
    "bert_tf/training/losses.py": [
        ("tf.tensor_scatter_nd_sub(of_bias, at, scale),", "of_bias,"),
    ],
    "bert_tf/training/optimizers.py": [
        (
            "optimizer.exclude_from_weight_decay(var_list=weight_decay_exclusions(variables))\n",
            "\n",
        ),
    ],
    "bert_tf/training/schedules.py": [
        (
            "elapsed = ops.minimum(step / self.total_steps, 1.0)",
            "elapsed = ops.minimum((step - self.warmup_steps) / max(1, self.total_steps - "
            "self.warmup_steps), 1.0)",
        ),
    ],
    "bert_tf/training/step.py": [
        ("if self._clip_norm is not None:", "if False:"),
        (
            "for number in (step, replica, micro_batch):",
            "for number in (step, 0 * replica, micro_batch):",
        ),
        (
            "for number in (step, replica, micro_batch):",
            "for number in (0 * step, replica, micro_batch):",
        ),
        (
            "for number in (step, replica, micro_batch):",
            "for number in (step, replica, 0 * micro_batch):",
        ),
    ],
    "bert_tf/untrusted.py": [
        ('if text.count("[") + text.count("{") > _DEEPEST_JSON and _is_deep(value):', "if False:"),
    ],
    "pipelines/answers.py": [
        ("& (length <= max_answer_length)", "& (length < max_answer_length)"),
    ],
    "pipelines/length_buckets.py": [
        ("fold(seed, Operation.EXAMPLE_ORDER, epoch)", "fold(0, Operation.EXAMPLE_ORDER, epoch)"),
    ],
    "pipelines/masking.py": [
        (
            "drawn < replacement.mask + replacement.random",
            "drawn < replacement.mask + 1.5 * replacement.random",
        ),
        (
            "special = (word_ids == tokenizer.cls_id) | (word_ids == tokenizer.sep_id)",
            "special = word_ids == tokenizer.cls_id",
        ),
    ],
    "pipelines/pairing.py": [
        (
            "lengths = 2 + below(bits([num_documents], fold(seed, 1)), max_tokens - 1)",
            "lengths = 2 + below(bits([num_documents], fold(seed, 1)), max_tokens - 2)",
        ),
        ("tf.cast(other >= document, tf.int64)", "tf.cast(other > document, tf.int64)"),
    ],
    "pipelines/tagging.py": [
        (
            "is_later = tf.maximum(later_gap, -later_gap) < tf.maximum(earlier_gap, -earlier_gap)",
            "is_later = tf.maximum(later_gap, -later_gap) <= tf.maximum(earlier_gap, -earlier_gap)",
        ),
    ],
    "saved_models/embeddings.py": [
        ('return "last" if config.is_decoder else "cls"', 'return "cls"'),
    ],
    "saved_models/fill_mask.py": [
        (
            "logits = served.guess(states[begin:end])[:, : tokenizer.vocab_size]",
            "logits = served.guess(states[begin:end])",
        ),
    ],
    "saved_models/question_answering.py": [
        (
            "is_answered &= null_odds(found) <= threshold",
            "is_answered &= null_odds(found) < threshold",
        ),
    ],
}


def related(path: str) -> list[str]:
    """The test files that import a module, or else one that imports it, and those of its name."""
    parts = pathlib.Path(path).with_suffix("").parts
    room, module = parts[-2:]
    dotted = ".".join(parts if parts[0] == "bert_tf" else ("bert_tf", *parts))
    names = [
        rf"from {re.escape(dotted)} import",
        rf"from {re.escape(dotted.rpartition('.')[0])} import (\([^)]*|.*)\b{module}\b",
    ]
    imported = re.compile("|".join(rf"^\s*{name}" for name in names), re.MULTILINE)
    beside = re.compile(rf"^from \.{module} import|^from \. import .*\b{module}\b", re.MULTILINE)
    found = {f"tests/{room}/test_{module}.py", f"tests/test_{module}.py"}
    found |= {name for name, text in _files("tests") if imported.search(text)}
    found = {name for name in found if (ROOT / name).is_file() and "/test_" in name}
    if not found:
        for name, text in _files("bert_tf", "pipelines", "saved_models"):
            is_beside = pathlib.Path(name).parent == pathlib.Path(path).parent
            if imported.search(text) or (is_beside and beside.search(text)):
                found |= set(related(name))
    return sorted(found)


def _files(*folders: str) -> list[tuple[str, str]]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def noticed(path: str, old: str, new: str) -> tuple[int, int]:
    """How many test functions fail with a break, and how many files were run."""
    file = ROOT / path
    before = file.read_text()
    if before.count(old) != 1:
        raise SystemExit(f"{path} has {before.count(old)} times what is to be broken: {old}")
    tests = related(path)
    file.write_text(before.replace(old, new))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *tests],
            capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
    finally:
        file.write_text(before)
    failed = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", done.stdout, re.MULTILINE)
    return len(set(failed)), len(tests)


def main() -> None:
    """Makes the breaks that are asked for, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the files' paths")
    parser.add_argument("--number", type=int, help="one break, counted from 1")
    asked = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        raise SystemExit("The checkout has changes: commit them first.")
    every = [(path, *pair) for path, pairs in BREAKS.items() for pair in pairs]
    missed = 0
    for number, (path, old, new) in enumerate(every, 1):
        if asked.only not in path or asked.number not in (None, number):
            continue
        failed, files = noticed(path, old, new)
        missed += not failed
        print(f"{number:3} {failed:3} by {files:2} files  {path}: {new.strip()}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
