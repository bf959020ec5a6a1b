"""Devices are split before anything starts; what finds no room is one clear line."""

import pytest

from configs import grpo_short, mt_sft
from openwebrl_jax.core import checks
from openwebrl_jax.runtime import cluster, devices


def config_of(module=grpo_short, **settings):
    config = module.get_config("tiny")
    config.cluster.platform = ""
    config.rollout.workers = 4
    for key, value in settings.items():
        config.cluster[key] = value
    return config


def gpus(*counts):
    return [{"CPU": 8.0, "GPU": float(count)} for count in counts]


CPUS = {"CPU": 32.0, "browser": 8.0}


@pytest.mark.parametrize(
    ("settings", "nodes", "each"),
    [
        ({}, gpus(8), 4),  # a power of 2 beside serving's
        ({"serving_devices": 2}, gpus(8), 4),
        ({"serving_replicas": 3}, gpus(8), 4),
        ({"serving_replicas": 3, "serving_devices": 2}, gpus(8), 2),
        ({"serving_replicas": 8}, gpus(8, 8), 8),
        ({"colocated": True}, gpus(1), 1),
        ({"colocated": True}, gpus(8), 8),
        ({"learner_processes": 2}, [*gpus(8, 8), CPUS], 4),
        ({"learner_processes": 2}, [*gpus(8, 8, 1), CPUS], 8),
        ({"learner_processes": 2}, gpus(8), 2),
        ({"learner_devices": 4}, gpus(8), 4),
        ({}, [{"TPU": 8.0}], 4),  # a process has 1, 2, 4 or 8 chips
        (
            {"learner_processes": 2},
            [{"TPU": 4.0, "learner": 1.0}] * 2 + [{"TPU": 4.0, "serving": 1.0}, CPUS],
            4,
        ),
    ],
)
def test_the_learner_gets_what_serving_leaves(settings, nodes, each):
    config = config_of(**settings)
    assert devices.learner_devices(config, nodes) == each
    assert devices.check(config, nodes) == each * config.cluster.learner_processes


@pytest.mark.parametrize(
    ("settings", "nodes", "told"),
    [
        ({}, gpus(1), ("1 GPU", "config.cluster.colocated=True")),
        ({"learner_devices": 8}, gpus(8), ("8 GPU", "learner_devices")),
        ({"learner_devices": 8, "serving_devices": 1}, gpus(8, 0), ("serving finds",)),
        ({"learner_processes": 3, "learner_devices": 4}, gpus(8, 2), ("3 learner",)),
        ({"learner_devices": 3}, [{"TPU": 8.0}], ("3 TPU chips", "(1, 2, 4, 8)")),
        ({}, [CPUS], ("no node of that cluster has a GPU or TPU", "platform='cpu'")),
        ({}, [*gpus(8), CPUS | {"browser": 3.0}], ("workers=4", "3 browser")),
        ({"serving_replicas": 8}, gpus(8), ("8 times on 1 each", "serving_replicas")),
        ({"serving_replicas": 2}, [{"GPU": 8.0, "serving": 1.0}], ("serving finds",)),
        # Devices that only the learner's nodes have are not serving's.
        ({}, [{"GPU": 8.0, "serving": 1.0}], ()),
        ({}, [{"TPU": 4.0, "learner": 1.0}, CPUS | {"serving": 1.0}], ("no room",)),
    ],
)
def test_what_finds_no_room_is_refused(settings, nodes, told):
    config = config_of(**settings)
    if not told:
        assert devices.check(config, nodes) == 4
        return
    with pytest.raises(ValueError) as caught:
        devices.check(config, nodes)
    assert all(part in str(caught.value) for part in told), caught.value
    assert "\n" not in str(caught.value)


def test_replicas_need_room_where_nothing_is_trained_too():
    config = config_of(serving_replicas=8)
    devices.check_replicas(config, gpus(8))  # without a learner
    told = (
        "serving_replicas=8 with serving_devices=1 each find no room on nodes with: 4"
    )
    with pytest.raises(ValueError, match=told):
        devices.check_replicas(config, gpus(4))


def test_replicas_on_cpus_take_nodes_alone():
    config = config_of(platform="cpu", serving_replicas=4)
    assert devices.check(config, [{}]) == 0
    labelled = [{"serving": 1.0}, {"serving": 2.0}]
    with pytest.raises(ValueError, match="serving finds no room"):
        devices.check(config, labelled)
    assert devices.check(config, [*labelled, {"serving": 1.0}]) == 0


def test_sft_needs_no_room_for_serving_or_browsers():
    nodes = [*gpus(1), CPUS | {"browser": 1.0}]
    assert devices.check(config_of(mt_sft), nodes) == 1


def test_a_judge_of_our_own_needs_devices_too():
    config = config_of(serving_devices=2)
    config.reward.judge.workdir = "runs/judge"
    assert devices.learner_devices(config, gpus(8)) == 4


def test_what_actors_ask_for():
    """Labels where nodes offer them, devices where the platform has any."""
    config = config_of()
    nodes = [{"GPU": 8.0, "learner": 1.0, "serving": 1.0}, CPUS]
    assert devices.needs(config, "learner", nodes) == {"learner": 1, "GPU": 4}
    assert devices.needs(config, "serving", nodes) == {"serving": 1, "GPU": 1}
    assert devices.needs(config, "browser", nodes) == {"browser": 1}
    assert devices.needs(config, "ledger", nodes) == {}
    config.cluster.platform = "cpu"
    assert devices.needs(config, "learner", nodes) == {"learner": 1}
    assert devices.needs(config, "learner", [{}]) == {}


def test_this_machines_devices(monkeypatch):
    monkeypatch.setattr(cluster, "accelerators", lambda: ("gpu", 4))
    config = config_of()
    assert cluster.options(config, "learner")["num_gpus"] == 2
    assert cluster.options(config, "serving")["num_gpus"] == 1
    asked = cluster.options(config, "browser")
    assert "num_gpus" not in asked and "resources" not in asked
    assert asked["runtime_env"]["env_vars"]["JAX_PLATFORMS"] == "cpu"
    monkeypatch.setattr(cluster, "accelerators", lambda: ("tpu", 8))
    assert cluster.options(config, "learner")["resources"] == {"TPU": 4}


def test_a_mesh_that_does_not_fit_the_devices_is_refused(monkeypatch):
    monkeypatch.setattr(cluster, "accelerators", lambda: ("gpu", 8))
    config = config_of()
    config.mesh.tp, config.cluster.learner_devices = 4, 6
    with pytest.raises(ValueError, match="learner's 6 devices"):
        cluster.check_room(config, 96)
    config.cluster.learner_devices = 4
    cluster.check_room(config, 96)
    config.mesh.tp, config.cluster.learner_devices, config.batch.rows = 1, 5, 10
    with pytest.raises(ValueError, match="fsdp=5 does not divide the model's width"):
        cluster.check_room(config, 96)


def test_processes_that_could_not_read_each_others_weights():
    config = config_of(colocated=True, learner_processes=2)
    with pytest.raises(ValueError, match="learner_processes=2; wanted 1"):
        checks.check_config(config, look_at_disk=False)
    config = config_of(colocated=True, serving_replicas=2)
    with pytest.raises(ValueError, match="serving_replicas=2; wanted 1"):
        checks.check_config(config, look_at_disk=False)
    config = config_of(serving_devices=0)
    with pytest.raises(ValueError, match="serving_devices=0"):
        checks.check_config(config, look_at_disk=False)


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({}, [*gpus(8), CPUS]),  # the learner would move to CPUs
        ({"learner_processes": 2}, [*gpus(8, 8), CPUS]),  # or get another mesh
        (
            {"learner_processes": 2},  # or be refused
            [{"TPU": 4.0, "learner": 1.0}] * 2 + [{"TPU": 1.0, "serving": 1.0}, CPUS],
        ),
    ],
)
def test_actors_are_reborn_as_they_were_while_a_node_is_gone(
    monkeypatch, settings, nodes
):
    """They wait for it: Ray keeps them until what they ask for is there."""
    there = []
    monkeypatch.setattr(cluster.ray, "init", lambda **_: None)
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    monkeypatch.setattr(cluster.ray, "nodes", lambda: there)

    def alive(left):
        there[:] = [{"Resources": node, "Alive": node in left} for node in nodes]

    config = config_of(address="auto", **settings)
    roles = ("learner", "serving", "browser")
    alive(nodes)
    cluster.start(config)
    before = {role: cluster.options(config, role) for role in roles}
    assert before["browser"]["resources"] == {"browser": 1}
    for gone in range(len(nodes)):
        alive([node for at, node in enumerate(nodes) if at != gone])
        assert {role: cluster.options(config, role) for role in roles} == before
        cluster.check_room(config, 96)
    alive([])
    assert {role: cluster.options(config, role) for role in roles} == before
    cluster.stop()
    there[:] = [{"Resources": node, "Alive": True} for node in gpus(2)]
    cluster.start(config_of(address="auto"))  # another cluster
    assert cluster.options(config_of(address="auto"), "learner")["num_gpus"] == 1
    cluster.stop()
