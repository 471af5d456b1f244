"""What tests of this folder share: a classifier, and texts for it."""

import pytest

from .prediction_models import models_loaded_once, write_classifier, write_texts


@pytest.fixture(autouse=True)
def loaded_once():
    """Predictors share the models that they load."""
    with models_loaded_once():
        yield


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """The directory of a classifier of random weights, and the model."""
    folder = tmp_path_factory.mktemp("classifier")
    return folder, write_classifier(folder)


@pytest.fixture
def table(tmp_path):
    """A table of texts to predict."""
    return write_texts(tmp_path)
