"""The texts that flags and arguments choose among; nothing is imported, so that --help is quick."""

from typing import Literal

# Keras' dtype policy of each precision of the arithmetic.
DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
PRECISIONS = tuple(DTYPE_POLICIES)
# How states become a vector, by ``modeling.layers.pool``: of features and of sentence embeddings.
POOLINGS = ("none", "cls", "mean", "max", "last")
HEAD_POOLINGS = ("cls", "mean", "max")  # of what a task's head reads
# The rows of the paper's table 7 that need no training.
UNLEARNED_VARIANTS = ("embeddings", "second_to_last", "last", "concat_last_four")
# All rows of table 7 for frozen features, in its order.
FEATURE_BASED = (
    *("embeddings", "second_to_last", "last"),
    *("weighted_sum_last_four", "concat_last_four", "weighted_sum_all"),
)
INPUT_FORMATS = ("google", "wikiextractor", "prose", "jsonl")  # of a corpus
# Of two texts: with scores, by their order or their values; that belong together.
SIMILARITY_LOSSES = COSENT, COSINE, ONE_WAY, BOTH_WAYS = "cosent", "cosine", "one_way", "both_ways"
DENSE_ACTIVATIONS = ("linear", "tanh")  # of a model's ``sentence_dense``
LONG_TEXTS = ("head", "head_tail", "windows")  # of texts of more tokens than a row
PAIR_MARK = " ||| "  # between two texts in a line
STRATEGIES = ("auto", "one_device", "mirrored")  # for the devices of one machine
XLA_CHOICES = ("auto", "true", "false")  # where XLA compiles a training's step
OPTIMIZERS = ("adam", "adamw", "lamb")
Masking = Literal["token", "whole_word"]
# The percentages of predicted tokens that become [MASK], a random one, and stay: the paper's.
MASK_SPLIT = (80, 10, 10)
Objective = Literal["mlm", "ltr"]  # of pre-training
# How a setting may change when a run resumes, as docs/guides/resuming.md calls it. Others never do.
FREELY, SCHEDULE, PATH = "freely", "from the newest checkpoint on", "its path, not its contents"
