"""The embedded server: TensorFlow Serving's REST over an export, and a page to try it."""
