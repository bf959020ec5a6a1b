"""One small Qwen3-VL with noise on every parameter, in torch and in a folder."""

import pathlib

import numpy as np
import pytest
import torch

from tests.models import small


@pytest.fixture(scope="session")
def torch_model():
    """The oracle, in float64: what is measured is our rounding alone."""
    return small.make_torch(is_tied=True).double()


@pytest.fixture(scope="session")
def untied_torch_model():
    return small.make_torch(is_tied=False).double()


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("tied")
    small.make_torch(is_tied=True).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def untied_folder(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("untied")
    small.make_torch(is_tied=False).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def loaded(folder) -> small.Loaded:
    return small.load_split(folder)


@pytest.fixture(scope="session")
def example() -> small.Example:
    return small.make_example(1)


@pytest.fixture(scope="session")
def features(loaded, example):
    images = example.images(loaded.sizes)
    return small.encode(loaded.graphdef, loaded.params, images)


@pytest.fixture(scope="session")
def expected(torch_model, example) -> np.ndarray:
    """torch's logits of the example, [L, V]."""
    with torch.no_grad():
        return torch_model(**example.torch_inputs()).logits[0].numpy()


@pytest.fixture(scope="session")
def expected_gradients(torch_model, example) -> dict[str, np.ndarray]:
    """torch's gradients of the summed cross-entropy, by the names of the files."""
    torch_model.zero_grad()
    logits = torch_model(**example.torch_inputs()).logits
    torch.nn.functional.cross_entropy(
        logits[0, :-1], torch.tensor(example.ids[1:]).long(), reduction="sum"
    ).backward()
    return {name: p.grad.numpy() for name, p in torch_model.named_parameters()}
