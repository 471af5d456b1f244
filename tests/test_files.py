"""Files appear whole or not at all."""

import pytest

from bert_tf.files import read_json, read_json_object, replace_whole, size_of, write_json


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


def test_json_appears_whole_or_not_at_all(tmp_path):
    path = str(tmp_path / "a.json")
    write_json(path, {"a": "ä"})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": "ä"}


def test_the_size_of_a_file_and_of_all_below_a_directory(tmp_path):
    (tmp_path / "below" / "empty").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "below" / "b").write_bytes(b"4567")
    assert size_of(str(tmp_path / "a")) == 3
    assert size_of(str(tmp_path)) == 7


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", r"a\.json is not JSON: Expecting"),
        (b"\xff\xfe\xfa", r"a\.json is not JSON: "),
        (b"[" * 100_000, r"a\.json is not JSON that is read: it is nested deeper than 64 levels"),
        (b"{}" + b" " * (32 << 20), r"a\.json: expected a JSON file of at most 33,554,432 bytes\."),
        (b"9" * 5000, r"a\.json is not JSON: Exceeds the limit"),
        (b"[1]", r"a\.json: expected a JSON object, got a list\."),
        (None, r"a\.json cannot be read: .*No such file"),
    ],
)
def test_what_is_no_json_object_is_refused(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        read_json_object(str(tmp_path / "a.json"))


def test_a_file_of_nothing(tmp_path):
    with replace_whole(str(tmp_path / "a.txt")):
        pass
    assert (tmp_path / "a.txt").read_bytes() == b""
