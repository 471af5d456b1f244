"""Training with several workers, which are processes on several machines."""
