"""Flags and commands that other programs, or earlier states of this one, have: what to do instead.

A name that a command does not have is looked up here before it is called unknown. Each sentence
follows the name and a colon.
"""

from collections.abc import Container, Iterable

COMMANDS = {
    "prepare": "clean a corpus with datatrove and remove near-duplicates with text-dedup; pretrain "
    "--input reads their text and JSON lines",
    "compare": "docs/evaluation.md has some lines with scipy that compare the predictions in both "
    "runs' dev/dev.tsv",
    "evaluate_squad": "give predictions.json to the official evaluate-v2.0.py",
    "evaluate_retrieval": "convert --format=huggingface, and run sentence-transformers' "
    "InformationRetrievalEvaluator on the result",
    "reproduce": "examples/paper has the paper's tables and the script that makes them",
    "compile_tpu": "python -m benchmarks.compiled_step compiles a step for a TPU or a GPU",
}

_SEARCH = "give the command once for each value, in a shell loop or with keras-tuner"
_TEACHER = "start from a smaller released model, such as google/bert_uncased_L-4_H-256_A-4"
_PREFIXED = "write the prefix into the texts; a directory of sentence-transformers brings its own"
_ONNX = "convert --format=huggingface, then optimum-cli export onnx"
_TF_LITE = (
    "import tensorflow_text, then call tf.lite.TFLiteConverter.from_saved_model(DIR, "
    "signature_keys=['tokens']) on the export, which takes ids"
)
_OF_SPANS = "give it to finetune, which records it in the model's task.json for exports"
_SEARCHED = "keep the vectors of the export's signature embed in a vector index such as faiss"
_EXPLAINED = "convert --format=huggingface, then explain with captum or shap"
_PICKLE = (
    "convert a pytorch_model.bin once with python -m bert_tf.convert --allow_pickle, and name "
)
_PICKLE += "its output here"
_STOPS = "a run stops at the first step that is not finite, before anything is spoilt"
_SIGNAL = "send SIGTERM, at which a run saves a checkpoint and ends with status 130"
_LEAVE = "leave it out"
_TPU = f"pretrain alone runs on a TPU, other commands on the CPU or the GPUs; {_LEAVE}"

FLAGS = {
    # === Of Google's programs, without a meaning here ===
    "do_train": f"finetune and pretrain always train; {_LEAVE}",
    "do_eval": f"a run always evaluates what is held out; {_LEAVE}",
    "do_predict": f"finetune predicts --test_file, python -m bert_tf.predict any file; {_LEAVE}",
    "use_tpu": f"--tpu=NAME alone chooses a TPU; {_LEAVE}",
    "dupe_factor": f"every epoch pairs and masks the text anew; {_LEAVE}",
    "num_tpu_cores": f"every core of the TPU is used; {_LEAVE}",
    "tpu": _TPU,
    "tpu_name": _TPU,
    "master": "name the coordinator by --tpu=grpc://HOST:PORT",
    "tpu_zone": f"--tpu=NAME is looked up in the machine's own zone; {_LEAVE}",
    "gcp_project": f"--tpu=NAME is looked up in the machine's own project; {_LEAVE}",
    "iterations_per_loop": f"the run chooses how many steps a call makes; {_LEAVE}",
    "bert_config_file": f"--init_checkpoint has its config beside it; {_LEAVE}",
    "vocab_file": f"--init_checkpoint has its vocabulary beside it; {_LEAVE}",
    "do_lower_case": f"--init_checkpoint records its casing; {_LEAVE}",
    "save_checkpoints_steps": f"every epoch is saved; {_LEAVE}",
    "do_whole_word_mask": "use --masking=whole_word",
    "verbose_logging": f"--debug shows the traceback of an error; {_LEAVE}",
    # === Of tables and inputs ===
    "max_line_mb": "set the environment variable BERT_TF_MAX_LINE_MB",
    "test_has_labels": f"a test file that has the labels is scored; {_LEAVE}",
    "version_2_with_negative": "whether a question may have no answer is read from the training "
    f"file; {_LEAVE}",
    "allow_pickle": _PICKLE,
    # === Of pre-training's operation ===
    "mode": f"a run evaluates at its end; {_LEAVE}",
    "eval_timeout": f"a run evaluates at its end; {_LEAVE}",
    "max_hours": "give --num_train_steps; --dry_run prints the seconds of a step",
    "stop_after_minutes": f"{_SIGNAL}: timeout -s TERM 3h python -m bert_tf.pretrain ...",
    "keep_steps": "keep more checkpoints by --keep_checkpoints",
    "equal_tokens": "every phase has --train_batch_size rows; --recipe=five_minutes and hour give "
    "shorter phases more",
    "change": "give the new value itself: steps, warm-up, rate and batch parts may differ when a "
    "run resumes",
    "peak_tflops": "multiply the printed tokens per second by six times the parameters, and divide "
    "by the card's peak",
    "on_bad_step": _STOPS,
    "spike_factor": _STOPS,
    "max_bad_steps": _STOPS,
    "steps_per_loop": f"the run chooses how often it reports; {_LEAVE}",
    "save_checkpoints_minutes": "a checkpoint is saved every ten minutes; --save_checkpoints_steps "
    "saves more",
    "connect_seconds": f"tf.distribute waits for the workers; {_LEAVE}",
    "adam_beta_2": f"it is 0.999, as Google's, and 0.98 in the small recipes; {_LEAVE}",
    "adam_epsilon": f"it is 1e-6, as Google's, and 1e-8 with --optimizer=adamw; {_LEAVE}",
    "clip_norm": f"gradients are clipped to a global norm of 1, as Google's; {_LEAVE}",
    # === Of fine-tuning ===
    "layer_decay": "use --freeze, or a smaller --learning_rate",
    "attention_probs_dropout_prob": "--hidden_dropout_prob sets it too",
    "classifier_dropout": "--hidden_dropout_prob sets it too",
    "init_layers": _TEACHER,
    "teacher": _TEACHER,
    "unlabelled_file": _TEACHER,
    "distillation_weight": _TEACHER,
    "distillation_temperature": _TEACHER,
    "lora_rank": "use --freeze, or --gradient_accumulation_steps where memory is short",
    "similarity_scale": f"it is 20; {_LEAVE}",
    "query_prefix": _PREFIXED,
    "document_prefix": _PREFIXED,
    "dense_size": "add keras.layers.Dense to BertEncoder in Python; a directory of "
    "sentence-transformers keeps its own",
    "matryoshka_dims": "train with sentence-transformers' MatryoshkaLoss",
    "embedding_dims": "cut the vectors yourself: vectors[:, :64]",
    "bilstm": "put keras.layers.Bidirectional on BertEncoder in Python",
    "backward_checkpoint": "concatenate the states of two BertEncoders in Python",
    "eval_steps": "evaluations come at the end of each epoch",
    "grid": _SEARCH,
    "trials": _SEARCH,
    "max_search_hours": _SEARCH,
    "folds": "split with scikit-learn's StratifiedKFold around bert_tf.api.fine_tune",
    "explain_errors": _EXPLAINED,
    "language": "write it into MODEL_DIR/README.md",
    "license": "write it into MODEL_DIR/README.md",
    # === Of predictions and vectors ===
    "explain": _EXPLAINED,
    "reject_below": "drop the rows of the output whose probability is too low",
    "raw_probabilities": f"probabilities are those of the fitted temperature; {_LEAVE}",
    "embed_as": "lines get the model's prefix of documents; queries are embedded by the signature "
    "embed of an export",
    "variant": "give --layers, and combine them yourself; bert_tf.BertFeatures has the paper's "
    "combinations",
    "strategy": f"every GPU of the machine is used, or those of CUDA_VISIBLE_DEVICES; {_LEAVE}",
    "lines_per_shard": f"it is chosen by --pooling; {_LEAVE}",
    # === Of exports ===
    "onnx": _ONNX,
    "tflite": _TF_LITE,
    "weights": f"--precision=bfloat16 computes faster; smaller files: {_ONNX}, quantised",
    "top_k": "five pieces are guessed for each [MASK]; predict --top_k is for classes",
    "layers": "extract_features --layers writes the states of blocks",
    "doc_stride": _OF_SPANS,
    "max_query_length": _OF_SPANS,
    "max_answer_length": _OF_SPANS,
    "n_best": f"{_OF_SPANS}, as --n_best_size",
    "corpus": _SEARCHED,
    "corpus_column": _SEARCHED,
    "nearest": _SEARCHED,
    "static_dims": "distil static vectors with model2vec from the Hugging Face conversion",
    "max_masks": "give --max_bytes, which bounds them too",
    # === Of vocabularies ===
    "overwrite": "remove the old file first",
    "character_coverage": f"every character that is frequent enough has a piece; {_LEAVE}",
    "max_bytes": f"the whole input is read evenly; {_LEAVE}",
}


def instead(names: Iterable[str], known: Container[str]) -> list[str]:
    """For each name that the table has and a command does not, a clause of what to do instead."""
    return [
        f"--{name}: {FLAGS[name]}"
        for name in dict.fromkeys(names)
        if name in FLAGS and name not in known
    ]
