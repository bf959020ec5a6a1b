import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openwebrl_jax.learn import checkpoint, optim, state
from tests.learn import toys

EXTRAS = {"ledger.json": b'{"opened": 3}', "empty": b""}


def make_state(mesh, name="muon"):
    """A state full of random numbers, and its like without arrays."""
    params = toys.few_params()
    tx = optim.make_optimizer(toys.make_optim(name=name))
    like = state.abstract_state(params, tx, mesh)
    draw = np.random.default_rng(0)

    def fill(leaf):
        values = draw.integers(0, 99, leaf.shape).astype(leaf.dtype)
        return jax.device_put(values, leaf.sharding)

    return jax.tree.map(fill, like), like


def assert_same(got, want):
    for (path, a), (_, b) in zip(
        jax.tree.leaves_with_path(got), jax.tree.leaves_with_path(want), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


@pytest.fixture
def keeper(tmp_path):
    keeper = checkpoint.Checkpointer(tmp_path / "checkpoints", keep=2)
    yield keeper
    keeper.close()


@pytest.fixture(scope="module")
def small():
    """A small state on one device."""
    return {"w": jnp.arange(6.0).reshape(2, 3), "step": jnp.asarray(4, jnp.int32)}


def test_state_and_extras_come_back_on_another_mesh(keeper):
    wide, like_wide = make_state(toys.make_mesh(2, 2, 2))
    alone, like_alone = make_state(toys.make_mesh())
    keeper.save(7, wide, EXTRAS)
    keeper.save(8, alone, {})
    keeper.wait()
    assert keeper.latest() == 8
    got, extras = keeper.restore(7, alone)  # arrays say the place as well
    assert extras == EXTRAS
    assert_same(jax.device_get(got), jax.device_get(wide))
    assert jax.tree.structure(got) == jax.tree.structure(like_alone)
    one = {jax.devices()[0]}
    assert all(leaf.sharding.device_set == one for leaf in jax.tree.leaves(got))
    got, extras = keeper.restore(8, like_wide)
    assert extras == {}
    assert_same(jax.device_get(got), jax.device_get(alone))
    places = jax.tree.map(lambda leaf: leaf.sharding, got)
    assert places == jax.tree.map(lambda leaf: leaf.sharding, like_wide)
    assert "fsdp" in str(places.params["q"]) and "tp" in str(places.params["q"])


def test_what_is_saved_may_be_donated_at_once(keeper):
    big = {"w": jnp.zeros((512, 1024))}
    step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1.0, s), donate_argnums=0)
    keeper.save(0, big, {})
    for _ in range(5):
        big = step(big)
    keeper.wait()
    got, _ = keeper.restore(0, big)
    assert not np.asarray(got["w"]).any()


def test_only_the_newest_are_kept(keeper, small):
    assert keeper.latest() is None and keeper.oldest() is None
    for step in (1, 2, 3):
        keeper.save(step, small, {"step": b"%d" % step})
    keeper.wait()
    assert (keeper.oldest(), keeper.latest()) == (2, 3)
    assert keeper.restore(2, small)[1] == {"step": b"2"}


def cut_after(folder, files):
    """The folder as a process leaves it that was killed before `files` were whole."""
    for name in files:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.parametrize(
    "lost",
    [
        ["manifest.json"],
        ["manifest.json", "extras"],
        ["manifest.json", "state"],
        ["extras/ledger.json"],
        ["state"],
    ],
)
def test_killed_in_the_middle_leaves_the_one_before(tmp_path, small, lost):
    keeper = checkpoint.Checkpointer(tmp_path, keep=2)
    keeper.save(1, small, {"ledger.json": b"one"})
    keeper.save(2, small, {"ledger.json": b"two"})
    keeper.close()
    cut_after(tmp_path / "00000002", lost)
    again = checkpoint.Checkpointer(tmp_path, keep=2)
    assert again.latest() == 1
    got, extras = again.restore(1, small)
    assert extras == {"ledger.json": b"one"}
    assert_same(got, small)
    again.save(2, small, {"ledger.json": b"again"})  # over the ruins
    again.wait()
    assert again.latest() == 2
    assert again.restore(2, small)[1] == {"ledger.json": b"again"}
    again.close()


def test_truncated_files_do_not_count(tmp_path, small):
    keeper = checkpoint.Checkpointer(tmp_path, keep=3)
    for step in (1, 2, 3):
        keeper.save(step, small, {"ledger.json": b"ledger"})
    keeper.close()
    manifest = tmp_path / "00000003" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:50])
    files = sorted((tmp_path / "00000002" / "state").rglob("*"))
    largest = max((f for f in files if f.is_file()), key=lambda f: f.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    again = checkpoint.Checkpointer(tmp_path, keep=3)
    assert again.latest() == 1
    again.close()


def test_damaged_bytes_are_named(tmp_path, small):
    keeper = checkpoint.Checkpointer(tmp_path, keep=1)
    keeper.save(1, small, {"ledger.json": b"ledger"})
    keeper.wait()
    (tmp_path / "00000001" / "extras" / "ledger.json").write_bytes(b"ledgex")
    with pytest.raises(ValueError, match="ledger.json is damaged; remove"):
        keeper.restore(1, small)
    keeper.close()


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="config.checkpoint.keep=0"):
        checkpoint.Checkpointer(tmp_path, keep=0)
