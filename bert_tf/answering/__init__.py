"""From a model to answers in the graph: rows of texts, the signatures of a server, encoders."""
