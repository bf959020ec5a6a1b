"""The same numbers on one device and on a mesh of eight."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from openwebrl_jax.models import layers, load, mesh
from tests.models import small


@pytest.fixture(scope="module")
def eight():
    return mesh.make_mesh(2, -1, 2)


def test_a_mesh_fills_its_devices(eight):
    assert dict(eight.shape) == {"data": 2, "fsdp": 2, "tp": 2}
    with pytest.raises(ValueError, match="data=3 x fsdp=1 x tp=2 does not fill 8 dev"):
        mesh.make_mesh(3, -1, 2)


def test_parameters_are_split_by_their_axes(eight, loaded):
    got = mesh.shardings(loaded.params, eight)
    assert got["decoder"]["embed"].get_raw_value().spec == PartitionSpec("tp", "fsdp")
    assert got["decoder"]["layers"]["out"].get_raw_value().spec == PartitionSpec(
        None, "tp", "fsdp"
    )
    assert mesh.spec(("batch", None), (6, 5), eight) == PartitionSpec(None, None)
    state = optax.adam(1.0).init(loaded.params)
    got = mesh.shardings(state, eight)
    assert got[0].count.spec == PartitionSpec()
    assert got[0].mu["decoder"]["embed"].get_raw_value().spec == PartitionSpec(
        "tp", "fsdp"
    )


def test_eight_devices_equal_torch(
    eight, folder, loaded, example, expected, expected_gradients, monkeypatch
):
    """Four rows on eight devices, as a large model runs: scanned, rematerialised."""
    monkeypatch.setattr(layers, "UNROLL", 0)
    _, model = load.load_model(folder, mesh=eight)
    params = nnx.split(model, nnx.Param)[1]
    embed = params["decoder"]["embed"][...]
    assert embed.addressable_shards[0].data.shape == (small.VOCAB // 2, 32)

    def place(value):
        axes = (None,) * (value.ndim - 2) + ("batch", None)
        value = jnp.concatenate([value] * 4, axis=-2)
        return jax.device_put(value, mesh.named(axes, value.shape, eight))

    tokens = jax.tree.map(place, example.tokens())
    images = jax.device_put(
        example.images(loaded.sizes), NamedSharding(eight, PartitionSpec())
    )
    with jax.set_mesh(eight):
        grads, logit_BLV = small.gradient(params, loaded.graphdef, tokens, images, True)
    close = dict(atol=3e-5 * max(1.0, expected.std()), rtol=0)
    for logit_LV in np.asarray(logit_BLV):
        np.testing.assert_allclose(logit_LV, expected, **close)
    small.assert_gradients(loaded.sizes, grads, expected_gradients, 4, 3e-5)
