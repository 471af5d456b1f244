"""Table of checkpoint formats, with their files, readers and writers.

A new format needs a row here and a module in ``checkpoints/`` with ``read_checkpoint(path)`` and,
if ``convert`` writes it, ``write(checkpoint, path)``. This module does not import TensorFlow, so
that commands reject wrong paths immediately.
"""

from typing import NamedTuple

CONFIG, SIZES = "config.json", "bert_config.json"
HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes of an HDF5 file
INDEX = ".index"  # the suffix of a TensorFlow checkpoint's index file
SETFIT = ("config_setfit.json", "model_head.pkl")  # the files of a setfit classifier
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # a tensor in every TensorFlow 2 checkpoint


class Format(NamedTuple):
    """Checkpoint format."""

    name: str  # ``Checkpoint.format``, and ``--format`` of ``convert``
    reader: str  # the module in ``checkpoints/`` that reads the format
    files: str  # a description of the files, for error messages
    entries: tuple[str, ...] = ()  # patterns that the names in a directory must match
    suffix: str = ""  # the suffix of a single-file checkpoint
    magic: bytes = b""  # the first bytes of a single-file checkpoint
    tensor: str = ""  # a tensor that identifies the format of a TensorFlow checkpoint
    options: tuple[str, ...] = ()  # arguments of ``load.open_checkpoint`` for the reader
    writer: str = ""  # the module in ``checkpoints/`` that writes the format, if any
    library: str = ""  # the library that loads the format from a model hub, if any


# The first match is used: sentence-transformers and KerasHub directories also contain CONFIG.
FORMATS = (
    Format(
        "bert_tf",
        "model_directory",
        f"model.json and {SIZES} (this library)",
        entries=(r"model\.json", SIZES),
        writer="model_directory",
        library="bert_tf",
    ),
    Format("keras", "model_directory", "NAME.keras", suffix=".keras"),
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
        # The config may name the weights file.
        entries=(CONFIG, r"(.+\.safetensors|pytorch_model\.bin|tf_model\.h5)(\.index\.json)?"),
        magic=HDF5,
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

_USE_ORIGINAL = "Pass the directory of the original model, with model.safetensors"
# Patterns of file names or module classes, each with a description and a remedy. The first matching
# pattern is used.
UNSUPPORTED_FILES = (
    (
        r"adapter_(config\.json|model\.(safetensors|bin))",
        "an adapter. Merge it with peft: PeftModel.from_pretrained(AutoModel.from_pretrained("
        "BASE), ADAPTER).merge_and_unload().save_pretrained(NEW). Pass NEW",
    ),
    (r"checkpoint-[0-9]+", "a checkpoint of transformers' Trainer. Pass {path}/{name}"),
    (
        r"(model|pytorch_model|tf_model)\.(?!weights\.)[^.]+\.(safetensors|bin|h5)",
        "a variant of the weights. Rename it to model.safetensors (or pytorch_model.bin, "
        "tf_model.h5) in a directory with config.json and the tokenizer files",
    ),
    (
        r"(model|pytorch_model|tf_model)-[0-9]{5}-of-[0-9]{5}\..+",
        "a shard. Add the index, NAME.index.json, and pass the directory",
    ),
    (r"(.+\.onnx|onnx)(_data)?", f"an ONNX model. {_USE_ORIGINAL}"),
    (r"openvino(_model\.(xml|bin))?|.+_openvino.*", f"an OpenVINO model. {_USE_ORIGINAL}"),
    (r".+\.tflite", f"a LiteRT model. {_USE_ORIGINAL}"),
    (r".+\.(gguf|ggml)", f"a llama.cpp model. {_USE_ORIGINAL}"),
    (r"model\.bin", f"a CTranslate2 model. {_USE_ORIGINAL}"),
    (
        r"flax_model\.msgpack",
        "a Flax model. Convert it with transformers 4: from_pretrained(DIR, from_flax=True), then "
        "save_pretrained",
    ),
    (
        r".+\.weights\.h5",
        "a Keras weights file without the model's config. Load it with load_weights in the "
        "code that builds the model, then call save_to_preset (KerasHub) or bert_tf.save",
    ),
    (
        r"(model\.safetensors|pytorch_model\.bin|tf_model\.h5)(\.index\.json)?",
        f"a Hugging Face weights file. Add {CONFIG} and pass the directory",
    ),
    (
        r".+\.(pt|pth|pkl|ckpt)",
        "a pickle. Load it in the code that builds the model, then call save_pretrained(DIR)",
    ),
    # Module classes of sentence-transformers.
    (
        r"Router|Asym",
        "a container of several models. Pass the directory of one, such as "
        "{path}/document_0_Transformer",
    ),
    (r"StaticEmbedding|WordEmbeddings|BoW", "a table of word vectors, not a transformer"),
    (
        r"[0-9]_(Transformer|Pooling|Dense|Normalize)",
        "a sentence-transformers module. Add modules.json to the directory",
    ),
)
