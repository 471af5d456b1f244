import keras
import pytest

from bert_tf.config import BertConfig
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.pipelines.wordpiece import BertTokenizer

WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "un", "##able", "##s", ".", "!", "[", "]"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "mask", "cls"]
CONFIG = BertConfig(
    # Four more rows than the vocabulary has: no piece stands for them.
    vocab_size=len(VOCAB) + 4,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
    initializer_range=0.5,
)


@pytest.fixture(scope="session")
def tokenizer():
    return BertTokenizer(VOCAB)


@pytest.fixture(scope="session")
def model():
    keras.utils.set_random_seed(5)
    return BertPretrainer(CONFIG)
