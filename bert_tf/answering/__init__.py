"""Computation of predictions in the graph: rows of texts, embeddings, masked tokens, signatures."""
