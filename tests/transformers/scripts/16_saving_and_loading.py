import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf
from transformers import BertConfig, BertTokenizer, TFBertForSequenceClassification

checkpoint = sys.argv[1]
work = tempfile.mkdtemp()
result = {}

tokenizer = BertTokenizer.from_pretrained(checkpoint)
model = TFBertForSequenceClassification.from_pretrained(checkpoint)
inputs = tokenizer(["it was fun while it lasted", "never again"], padding=True, return_tensors="tf")
labels = tf.constant([1, 0])

# a few steps, so that there is something to save
model.compile(optimizer=tf.keras.optimizers.Adam(5e-5),
              loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
for _ in range(3):
    model.train_on_batch(dict(inputs), labels)
trained = model.predict(dict(inputs)).logits
result["trained"] = trained.tolist()

# 1. save_pretrained, from_pretrained
save_dir = os.path.join(work, "my_model")
model.save_pretrained(save_dir)
tokenizer.save_pretrained(save_dir)
loaded_tokenizer = BertTokenizer.from_pretrained(save_dir)
loaded = TFBertForSequenceClassification.from_pretrained(save_dir)
again = loaded_tokenizer(["it was fun while it lasted", "never again"], padding=True,
                         return_tensors="tf")
result["same_ids"] = bool(tf.reduce_all(again["input_ids"] == inputs["input_ids"]))
result["config_file"] = os.path.exists(os.path.join(save_dir, "config.json"))
result["same_logits"] = bool(np.allclose(loaded(again).logits, trained, atol=1e-5))
result["labels"] = [loaded.config.id2label[i] for i in range(loaded.config.num_labels)]

# 2. the weights alone
weights_file = os.path.join(work, "sentiment_weights.h5")
model.save_weights(weights_file)
config = BertConfig.from_pretrained(checkpoint)
fresh = TFBertForSequenceClassification(config)
fresh(inputs)  # build the network
result["fresh_differs"] = not np.allclose(fresh(inputs)[0], trained, atol=1e-3)
fresh.load_weights(weights_file)
result["same_weights"] = bool(np.allclose(fresh(inputs)[0], trained, atol=1e-5))

# 3. another number of labels: the body is kept, the head is new
three = TFBertForSequenceClassification.from_pretrained(
    save_dir, num_labels=3, ignore_mismatched_sizes=True, id2label={0: "neg", 1: "neu", 2: "pos"},
    label2id={"neg": 0, "neu": 1, "pos": 2})
result["three"] = list(three(inputs).logits.shape)
result["three_labels"] = three.config.id2label[2]
pooled = three.bert(inputs)[1].numpy()
result["same_body"] = bool(np.allclose(pooled, model.bert(inputs).pooler_output, atol=1e-5))
result["pooled"] = pooled.tolist()
result["words"] = model.get_input_embeddings().weight.numpy()[5:8, :4].tolist()
json.dump(result, open(sys.argv[2], "w"))
