"""Valid values of flags and arguments. This module imports quickly, so that --help is fast."""

from typing import Literal

# Keras' dtype policy for each precision.
DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
PRECISIONS = tuple(DTYPE_POLICIES)
# Poolings of hidden states that ``modeling.layers.pool`` supports.
POOLINGS = ("none", "cls", "mean", "max", "last")
HEAD_POOLINGS = ("cls", "mean", "max")  # for task heads
# The variants of the paper's table 7 without trained weights.
UNLEARNED_VARIANTS = ("embeddings", "second_to_last", "last", "concat_last_four")
# All variants of table 7 with frozen features, in its order.
FEATURE_BASED = (
    *("embeddings", "second_to_last", "last"),
    *("weighted_sum_last_four", "concat_last_four", "weighted_sum_all"),
)
INPUT_FORMATS = ("google", "wikiextractor", "prose", "jsonl")  # of a corpus
# The first two are for pairs with scores; the last two are for matching pairs.
SIMILARITY_LOSSES = COSENT, COSINE, ONE_WAY, BOTH_WAYS = "cosent", "cosine", "one_way", "both_ways"
DENSE_ACTIVATIONS = ("linear", "tanh")  # of ``sentence_dense``
LONG_TEXTS = ("head", "head_tail", "windows")  # handling of texts longer than the maximum
PAIR_MARK = " ||| "  # separates two texts in a line
STRATEGIES = ("auto", "one_device", "mirrored")
XLA_CHOICES = ("auto", "true", "false")  # for the compilation of training steps
OPTIMIZERS = ("adam", "adamw", "lamb")
Masking = Literal["token", "whole_word"]
# Percentages of predicted tokens that become [MASK], become a random token, or stay unchanged
# (paper, appendix A.1).
MASK_SPLIT = (80, 10, 10)
Objective = Literal["mlm", "ltr"]  # of pre-training
# How a flag may change when a run resumes; the row labels of docs/guides/resuming.md.
FREELY, SCHEDULE, PATH = "freely", "from the newest checkpoint on", "its path, not its contents"
