"""Questions about contexts, SQuAD's among them."""
