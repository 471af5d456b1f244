#!/usr/bin/env bash
# Threads that share a BertTokenizerFast of transformers 5.24.0 (tokenizers 0.23.3) get rows of each other's lengths.
# Each call sets truncation and padding on the tokenizer, and another thread's call can change them before the texts
# are encoded. No error is raised. A copy by copy.copy, which shares the same inner tokenizer, has the same fault. A
# copy by copy.deepcopy for each thread has none.
#
# Guessed: calls are correct in all threads, or they raise the error "Already borrowed".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet transformers==5.24.0 tokenizers==0.23.3
venv/bin/python - <<'PY'
import collections
import copy
import os
import threading
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import tokenizers
import transformers

transformers.logging.set_verbosity_error()
names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
shared = transformers.BertTokenizerFast(vocab={name: id for id, name in enumerate(names)})
TEXT = "a b " * 20


def count(tokenizer_of_thread, seconds, until_wrong):
    """Calls by four threads, each with its own length, until one is wrong or the time has passed."""
    counts, end = collections.Counter(), time.monotonic() + seconds

    def call(length):
        tokenizer = tokenizer_of_thread()
        while time.monotonic() < end and not (until_wrong and counts["wrong"]):
            try:
                rows = tokenizer(
                    [TEXT] * 3, truncation=True, max_length=length, padding="max_length"
                )["input_ids"]
            except RuntimeError as error:
                counts[str(error)] += 1
            else:
                counts["right" if {len(row) for row in rows} == {length} else "wrong"] += 1

    threads = [threading.Thread(target=call, args=(length,)) for length in (8, 16, 24, 32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


print(transformers.__version__, tokenizers.__version__)
one = count(lambda: shared, 120, until_wrong=True)
copied = count(lambda: copy.copy(shared), 120, until_wrong=True)
deep = count(lambda: copy.deepcopy(shared), 10, until_wrong=False)
print("shared:", dict(one), "copy.copy:", dict(copied), "copy.deepcopy:", dict(deep))
assert one["wrong"] and one.keys() <= {"right", "wrong"}
assert copied["wrong"] and copied.keys() <= {"right", "wrong"}
assert deep.keys() == {"right"}
PY
