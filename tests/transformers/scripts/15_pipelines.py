# All our models behind pipelines: python 15_pipelines.py MODELS_DIR answers.json
import json
import os
import sys

from transformers import AutoTokenizer, TFAutoModelForSequenceClassification, pipeline
from transformers import TFBertForMaskedLM

root = sys.argv[1]
answers = {}

# text classification, from a directory
classifier = pipeline("text-classification", model=os.path.join(root, "bert-news"), framework="tf")
answers["one"] = classifier("Oil prices rose again on Tuesday")
texts = ["The striker scored in the last minute", "A new planet was found by the telescope"]
answers["several"] = classifier(texts)
answers["all_scores"] = classifier(texts, top_k=None)

# from a model and a tokenizer
name = os.path.join(root, "bert-reviews")
sentiment = pipeline("sentiment-analysis",
                     model=TFAutoModelForSequenceClassification.from_pretrained(name),
                     tokenizer=AutoTokenizer.from_pretrained(name))
answers["sentiment"] = [[r["label"], round(r["score"], 4)] for r in sentiment(
    ["We are very happy to show you the library.", "We hope you don't hate it."])]

# named entities, token by token and grouped
entities_dir = os.path.join(root, "bert-entities")
sentence = "Angela Merkel went to Berlin with John Smith"
ner = pipeline("ner", model=entities_dir, framework="tf")
answers["ner"] = [[e["entity"], e["index"], e["word"], float(e["score"])] for e in ner(sentence)]
grouped = pipeline("token-classification", model=entities_dir, framework="tf",
                   aggregation_strategy="simple")
answers["grouped"] = [[g["entity_group"], g["word"], sentence[g["start"] : g["end"]],
                       float(g["score"])] for g in grouped(sentence)]

# masked words
uncased = os.path.join(root, "bert-uncased")
unmasker = pipeline("fill-mask", model=TFBertForMaskedLM.from_pretrained(uncased),
                    tokenizer=AutoTokenizer.from_pretrained(uncased))
answers["mask"] = unmasker("Hello I'm a [MASK] model.")
answers["targets"] = unmasker(f"The {unmasker.tokenizer.mask_token} was cold.", top_k=2,
                              targets=["soup", "coffee", "water"])

# questions
question_answerer = pipeline("question-answering", os.path.join(root, "bert-questions"),
                             framework="tf")
context = "My name is Sarah and I live in London. I work at the museum near the old bridge."
answers["answer"] = question_answerer(question="Where do I live?", context=context)
answers["best"] = question_answerer({"question": "Where does she work?", "context": context},
                                    top_k=3, max_answer_len=8)

# features
extractor = pipeline("feature-extraction", model=os.path.join(root, "bert-encoder"), framework="tf")
features = extractor("a quick test")
answers["feature_shape"] = [len(features), len(features[0]), len(features[0][0])]
answers["features"] = features[0][0]

json.dump(answers, open(sys.argv[2], "w"))
