"""Which trajectories of a workdir are demonstrations."""

import json

from openwebrl_jax.rollout import store
from openwebrl_jax.runtime import demonstrate


def test_the_list_chooses_and_without_one_all_are_taken(tmp_path):
    kept = tmp_path / store.FOLDER
    kept.mkdir()
    for name in ("a" * 64, "b" * 64):
        (kept / f"{name}.zip").touch()
    assert demonstrate.names(tmp_path) == ["a" * 64, "b" * 64]
    (tmp_path / demonstrate.LIST).write_text(json.dumps(["b" * 64]))
    assert demonstrate.names(tmp_path) == ["b" * 64]
