"""Vocabulary of 15 pieces for tests of the fine-tuning pipelines."""

from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer

VOCAB = [*SPECIAL_TOKENS, *"abcdefg", "##b", "##c", "!"]
TOKENIZER = BertTokenizer(VOCAB)
