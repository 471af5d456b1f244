"""The table of checkpoint formats: the files by which each is known, and its reader and writer.

A new format is a row here and a module in ``checkpoints/``: its ``read_checkpoint(path)`` reads,
``write(checkpoint, path)`` writes. Nothing here loads TensorFlow, so that wrong paths are refused
at once.
"""

from typing import NamedTuple

CONFIG, SIZES = "config.json", "bert_config.json"
HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes of a file
INDEX = ".index"  # of a TensorFlow checkpoint, behind its prefix
SETFIT = ("config_setfit.json", "model_head.pkl")  # of setfit's classifiers
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the tensor that TensorFlow 2's have


class Format(NamedTuple):
    """A format of checkpoints."""

    name: str  # ``Checkpoint.format``, and ``--format`` of ``convert``
    reader: str  # the module in ``checkpoints/``
    files: str  # the files of a checkpoint, for a sentence
    entries: tuple[str, ...] = ()  # patterns, all of which files in a directory match
    ending: str = ""  # of the name of a checkpoint that is a single file
    begins: bytes = b""  # the first bytes of one
    tensor: str = ""  # a name in the TensorFlow checkpoint that it is
    options: tuple[str, ...] = ()  # those of ``load.open_checkpoint`` that the reader takes
    writer: str = ""  # the module that ``convert`` writes the format by, if any
    library: str = ""  # the library that reads a directory from a model hub, if any


# The first that a path matches reads it: sentence-transformers and KerasHub have a CONFIG, too.
FORMATS = (
    Format(
        "bert_tf",
        "model_directory",
        f"model.json and {SIZES} (this library)",
        entries=(r"model\.json", SIZES),
        writer="model_directory",
        library="bert_tf",
    ),
    Format("keras", "keras_files", "NAME.keras", ending=".keras"),
    Format(
        "sentence_transformers",
        "sentence_transformers",
        "modules.json (sentence-transformers)",
        entries=(r"modules\.json",),
        options=("allow_pickle",),
    ),
    Format(
        "huggingface",
        "hugging_face",
        f"{CONFIG} and model.safetensors or tf_model.h5 (Hugging Face)",
        # Of any name, as the config may say which file has the weights.
        entries=(CONFIG, r"(.+\.safetensors|pytorch_model\.bin|tf_model\.h5)(\.index\.json)?"),
        begins=HDF5,
        options=("allow_pickle", "settings"),
        writer="sentence_transformers",
        library="transformers",
    ),
    Format(
        "keras_hub",
        "keras_hub",
        f"{CONFIG} and model.weights.h5 (KerasHub)",
        entries=(CONFIG, r"model\.weights\..+"),
    ),
    Format(
        "model_garden",
        "model_garden",
        f"ckpt-N{INDEX} (Model Garden)",
        entries=(rf".+\{INDEX}",),
        tensor=OBJECT_GRAPH,
    ),
    Format(
        "google_tf1",
        "google",
        f"{SIZES} and bert_model.ckpt.* (Google)",
        entries=(rf".+\{INDEX}",),
        tensor="bert/embeddings/word_embeddings",
        writer="google",
    ),
    Format(
        "saved_model",
        "model_directory",
        "saved_model.pb (an export)",
        entries=(r"saved_model\.pb|[0-9]+",),
    ),
)
WRITTEN = {form.name: form for form in FORMATS if form.writer}

_NAME_IT = "name the directory of the model that was converted, with its model.safetensors"
# What is no checkpoint here, by a file's name: what it is, and the way out. The first counts.
UNSUPPORTED_FILES = (
    (
        r"adapter_(config\.json|model\.(safetensors|bin))",
        "an adapter's, which transformers puts on a model's weights: merge it first, in Python by "
        "peft.PeftModel.from_pretrained(transformers.AutoModel.from_pretrained(BASE), ADAPTER"
        ").merge_and_unload().save_pretrained(NEW), where BASE is the weights' directory and "
        "ADAPTER another with the adapter's files (of a head AutoModelFor...), and take NEW",
    ),
    (r"checkpoint-[0-9]+", "a checkpoint of transformers' Trainer: name {path}/{name}"),
    (
        r"(model|pytorch_model|tf_model)\.(?!weights\.)[^.]+\.(safetensors|bin|h5)",
        "a variant of the weights: name it model.safetensors (or pytorch_model.bin, tf_model.h5), "
        "in a directory with the config.json and the tokenizer's files",
    ),
    (
        r"(model|pytorch_model|tf_model)-[0-9]{5}-of-[0-9]{5}\..+",
        "one of several parts: put their index, NAME.index.json, beside them, and name the "
        "directory",
    ),
    (r"(.+\.onnx|onnx)(_data)?", f"ONNX's, a graph of operations: {_NAME_IT}"),
    (
        r"openvino(_model\.(xml|bin))?|.+_openvino.*",
        f"OpenVINO's, a graph of operations: {_NAME_IT}",
    ),
    (r".+\.tflite", f"LiteRT's, a graph of operations: {_NAME_IT}"),
    (r".+\.(gguf|ggml)", f"llama.cpp's: {_NAME_IT}"),
    (r"model\.bin", f"CTranslate2's: {_NAME_IT}"),
    (
        r"flax_model\.msgpack",
        "Flax's: in transformers 4, from_pretrained(..., from_flax=True) and save_pretrained",
    ),
    (
        r".+\.weights\.h5",
        "weights of Keras alone, without what says their sizes: load_weights them where the model "
        'was built, and save_to_preset("DIR") it (KerasHub) or bert_tf.save it',
    ),
    (
        r"(model\.safetensors|pytorch_model\.bin|tf_model\.h5)(\.index\.json)?",
        f"Hugging Face's weights, whose sizes {CONFIG} says: put it beside, and name the directory",
    ),
    (
        r".+\.(pt|pth|pkl|ckpt)",
        "a pickle: where the model was built load it, and write it by save_pretrained(DIR)",
    ),
    # Classes of modules.
    (
        r"Router|Asym",
        "of several models: name the folder of one, {path}/document_0_Transformer for example",
    ),
    (r"StaticEmbedding|WordEmbeddings|BoW", "a table of words' vectors, without a transformer"),
    (
        r"[0-9]_(Transformer|Pooling|Dense|Normalize)",
        "a module of sentence-transformers: put their modules.json beside it",
    ),
)
