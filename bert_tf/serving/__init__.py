"""Embedded HTTP server for exports, with TensorFlow Serving's REST API and a web page."""
