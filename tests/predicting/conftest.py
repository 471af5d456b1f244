"""Fixtures: a classifier and texts."""

import pytest

from .prediction_models import models_loaded_once, write_classifier, write_texts


@pytest.fixture(autouse=True)
def loaded_once():
    """Predictors share the models that they load."""
    with models_loaded_once():
        yield


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """Returns the directory of a classifier with random weights, and the model."""
    folder = tmp_path_factory.mktemp("classifier")
    return folder, write_classifier(folder)


@pytest.fixture
def table(tmp_path):
    """Returns the path of a table of texts to predict."""
    return write_texts(tmp_path)
