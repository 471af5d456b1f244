"""What documents called ``corpora.sources`` before it had a folder."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("bert_tf.pipelines.corpora.sources")
