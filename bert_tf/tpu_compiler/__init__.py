"""What the TPU's own compiler makes of a pre-training's step, on a machine without a TPU."""
