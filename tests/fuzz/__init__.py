"""A fuzzer of everything that reads a stranger's files or answers a stranger's requests.

    python -m tests.fuzz --mutations=20000
    python -m tests.fuzz --formats=keras,squad --mutations=2000 --seed=7
    python -m tests.fuzz --only=keras:123

Every mutation is drawn from (--seed, format, number) alone, so each can be run again. ``formats``
says what is mutated and how it is read, ``mutations`` and ``containers`` how, ``child`` runs
mutations in a process that may die of one, ``__main__`` starts the processes and counts.
"""
