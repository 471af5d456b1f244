"""Reading and writing checkpoints of bert_tf and of other libraries."""
