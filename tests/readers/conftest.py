"""What the tests of readers share: files written from what a test has at hand."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and gives its path: of text, of bytes, or of lines.

    A line that is no text is written as JSON.
    """

    def write_file(name, content, line_end="\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            lines = (line if isinstance(line, str) else json.dumps(line) for line in content)
            content = "".join(line + line_end for line in lines)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write_file
