"""Runs ``python -m bert_tf.serve`` in a process and sends requests to it."""

import json
import re
import subprocess
import sys
import urllib.request


class Served:
    """A server on a free port; the constructor returns when the server is listening."""

    def __init__(self, *arguments, cwd=None):
        command = [sys.executable, "-m", "bert_tf.serve", *arguments, "--port=0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
        )
        self.output = []
        for line in self.process.stdout:
            self.output.append(line)
            if found := re.search(r"Listening at (http://[^ ]*:\d+)/ ", line):
                self.address = found[1]
                return
        raise AssertionError(self.process.communicate())

    def ask(self, path, body=None):
        """Returns the JSON response; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.address}{path}", data, timeout=120) as reply:
            return json.load(reply)
