"""Workers: processes on several machines that share a training, found, joined, and agreed."""
