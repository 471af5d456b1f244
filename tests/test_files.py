"""Files appear whole or not at all."""

import pytest

from bert_tf.files import replace_whole


def test_interrupted_writing_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), replace_whole(str(path)) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    with replace_whole(str(path)) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]
