"""``python -m bert_tf.predict`` in a process of its own."""

import pytest

from tests.anew import run_anew
from tests.predicting.prediction_models import predict, write_classifier, write_texts


@pytest.mark.slow
def test_predictions_alone_on_standard_output(tmp_path):
    model_dir, table = tmp_path / "model", write_texts(tmp_path)
    write_classifier(model_dir)
    predict(model_dir, table, tmp_path / "out.tsv")
    done = run_anew("predict", f"--model={model_dir}", f"--input={table}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "out.tsv").read_text()
    assert "Predicting: 6 examples in " in done.stderr
