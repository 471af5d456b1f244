"""In-graph answers of models: rows of texts, embeddings, masked tokens and serving signatures."""
