"""``python -m bert_tf.serve`` as a process, and what it answers."""

import json
import re
import subprocess
import sys
import urllib.request


class Served:
    """The command as a person runs it, at a free port; made once it says that it listens."""

    def __init__(self, *arguments, cwd=None):
        line = [sys.executable, "-m", "bert_tf.serve", *arguments, "--port=0"]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
        )
        self.said = []
        for said in self.process.stdout:
            self.said.append(said)
            if found := re.search(r"Listening at (http://[^ ]*:\d+)/ ", said):
                self.place = found[1]
                return
        raise AssertionError(self.process.communicate())

    def ask(self, path, body=None):
        """The JSON of a reply that is no error; the request's body is bytes, or is to be JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.place}{path}", data, timeout=120) as reply:
            return json.load(reply)
