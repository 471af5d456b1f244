"""Files of strangers, mutated: each is read as it was, or refused in one sentence.

    python -m pytest tests/damage                            # a few mutations of each format
    BERT_TF_MUTATIONS=500 python -m pytest tests/damage -k keras

``originals`` says what is mutated and how it is read, ``mutations`` and ``containers`` how.
"""
