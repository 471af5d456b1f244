"""What every format's reader gives and every format's writer takes: ``Checkpoint``.

A reader opens a path no further than names, shapes and configuration; the tensors are read one by
one when they are wanted, so that a conversion never holds a model. Tensors go by the library's own
names, which are the variables' paths below the model's name, with the fused attention kernel taken
apart into query, key and value:

| name                                                         | shape              |
|--------------------------------------------------------------|--------------------|
| embeddings/{word,position,token_type}_embeddings             | (V or P or T, H)   |
| layer_I/attention/{query,key,value,output}/{kernel,bias}     | (H, H), (H,)       |
| layer_I/{intermediate,output}/{kernel,bias}                  | (H, F), (F, H)     |
| layer_I/{attention,output}_layer_norm/{gamma,beta}           | (H,)               |
| embeddings/layer_norm/{gamma,beta}                           | (H,)               |
| pooler/dense/{kernel,bias}, masked_lm/dense/{kernel,bias}    | (H, H), (H,)       |
| masked_lm/layer_norm/{gamma,beta}, masked_lm/output_bias     | (H,), (V,)         |
| next_sentence/dense/{kernel,bias}, span/{kernel,bias}        | (H, 2), (2,)       |
| {classifier,token_classifier}/{kernel,bias}                  | (H, C), (C,)       |
| {regressor,choice}/{kernel,bias}                             | (H, 1), (1,)       |
| mixture/{logits,scale}, of a ``BertFeatureTagger``            | (L,), ()           |
| bilstm_I/{forward,backward}_lstm/lstm_cell/{kernel,bias}     | (X, 4U), (4U,)     |
| bilstm_I/{forward,backward}_lstm/lstm_cell/recurrent_kernel  | (U, 4U)            |
| tags/{kernel,bias}                                           | (2U, C), (C,)      |

Letters: V vocabulary, P positions, T segment types, H hidden, F feed-forward, C classes, L hidden
states of a token, U units of an LSTM, X its inputs.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling.base import BertModel


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor that lies in a file, in this library's layout once it is read.

    Attributes:
        names: what the source calls it; several where it is put together from several.
        shape: as it will be read: kernels are (inputs, outputs).
        dtype: as stored, NumPy's or ml_dtypes' name.
        read: reads it from the file; nothing is kept, so each call reads again.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Tokenization:
    """What a source says about its tokenizer.

    Attributes:
        vocabulary: the pieces in the order of their ids.
        do_lower_case: whether text is lower-cased and stripped of accents ("uncased").
    """

    vocabulary: tuple[str, ...]
    do_lower_case: bool


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """Which of the library's models a checkpoint holds.

    Attributes:
        model_class: ``BertPretrainer``, for example.
        arguments: the constructor's, besides the config, the name and the dtype.
    """

    model_class: type[BertModel]
    arguments: Mapping[str, Any]

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.model_class.__name__

    @property
    def has_pooler(self) -> bool:
        """Whether the model's encoder has a pooler."""
        return self.model_class.has_pooler(self.arguments)

    def head_shapes(self, config: BertConfig) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights outside the encoder."""
        return self.model_class.head_shapes(config, self.arguments)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a path holds.

    Attributes:
        path: the directory or file that was opened.
        format: ``bert_tf``, ``huggingface``, ``google_tf1``, ``model_garden``, ``keras_hub`` or
            ``keras``.
        config: from the source's own config file.
        model: the model that the source's heads name.
        tensors: the weights, by the library's names.
        unused: names of stored tensors that are no weight of the model: optimizer slots, position
            ids.
        tokenization: ``None`` where the source has no vocabulary.
        labels: the classes' names in the order of their ids; () where the source has none.
        multi_label: whether several classes may hold at once.
        thresholds: decided in fine-tuning, by name, such as SQuAD's ``null``; {} elsewhere.
        notes: sentences on what the source does not say and the reader assumed.
    """

    path: str
    format: str
    config: BertConfig
    model: ModelSpec
    tensors: Mapping[str, StoredTensor]
    unused: tuple[str, ...] = ()
    tokenization: Tokenization | None = None
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """Hexadecimal digits that stand for the model, its vocabulary and every weight."""
        model = (self.model.class_name, sorted(self.model.arguments.items()), self.labels)
        digest = hashlib.sha256(repr((self.config.to_dict(), model, self.tokenization)).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            digest.update(tensor.read().tobytes())
        return digest.hexdigest()[:32]
