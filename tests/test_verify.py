"""``python -m bert_tf.verify``: output and exit status."""

import pytest

from bert_tf import verify
from bert_tf.saved_models import verification
from bert_tf.saved_models.verification import Verification, VerifiedSignature

SOUND = VerifiedSignature("tokens", 2, 2.5e-7, ())
WRONG = VerifiedSignature("serving_default", 3, 0.5, ("serving_default.0.json: bad", "x: worse"))


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns a function that runs the command with a fake result and returns the calls."""

    def run_with(signatures, has_hashes=True, **values):
        calls = []

        def verify_export(directory, **options):
            calls.append((directory, options))
            return Verification(directory, "2.14.1", "2.14.0", signatures, has_hashes)

        monkeypatch.setattr(verification, "verify", verify_export)
        (tmp_path / "exports" / "1").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        verify.main(verify.VerifySettings(**values), "exports/1")
        return calls

    return run_with


def test_matching_answers(run, capsys):
    calls = run((SOUND,), python="p", tolerance=0.5)
    assert calls == [("exports/1", {"python": "p", "tolerance": 0.5})]
    assert capsys.readouterr().out == (
        "exports/1 in TensorFlow 2.14.1, tensorflow_text 2.14.0:\n"
        "signature  samples  largest difference  result\n"
        "tokens           2             2.5e-07  as recorded\n"
        "All answers match the stored ones, without bert_tf or Keras.\n"
    )


def test_different_answers_and_missing_hashes(run, capsys):
    with pytest.raises(SystemExit) as ended:
        run((WRONG, SOUND), has_hashes=False, python="other/python", tolerance=0.01)
    assert ended.value.code == 1
    assert capsys.readouterr().out == (
        "exports/1 in TensorFlow 2.14.1, tensorflow_text 2.14.0:\n"
        "signature        samples  largest difference  result\n"
        "serving_default        3             5.0e-01  DIFFERENT\n"
        "tokens                 2             2.5e-07  as recorded\n"
        "The export has no hashes, so damage that does not change an answer is not detected.\n"
        "  serving_default: serving_default.0.json: bad\n"
        "  serving_default: x: worse\n"
        "FAILED: the answers differ from the stored ones.\n"
    )
