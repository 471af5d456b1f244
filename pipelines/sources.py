"""The name that documents gave to ``corpora.sources`` before that stood in a folder."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("bert_tf.pipelines.corpora.sources")
