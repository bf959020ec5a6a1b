"""Which actor gets how much of which machine; what does not fit is refused.

In: the resources of each node, as Ray names them, and a config. Out: what each role
asks for. A node that offers a resource called like a role ("learner", "serving",
"browser") is where actors of that role go, one for each unit; where no node does they
go wherever their devices are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

KINDS = ("GPU", "TPU")
ROLES = ("learner", "serving", "browser")
_CHIPS = (1, 2, 4, 8)  # of a TPU host that one process may have

Node = Mapping[str, float]  # Ray's resources of one node: {"CPU": 64, "GPU": 8, ...}


class Demand(NamedTuple):
    """What one actor needs of one node."""

    role: str
    needs: Mapping[str, float]


def kind(nodes: Sequence[Node]) -> str:
    """ "GPU", "TPU", or "" where there are only CPUs."""
    return next((k for k in KINDS if any(node.get(k) for node in nodes)), "")


def needs(config: Any, role: str, nodes: Sequence[Node]) -> dict[str, float]:
    """What an actor of the role asks Ray for; raises ValueError as `check` does."""
    found: dict[str, float] = {}
    if any(node.get(role) for node in nodes):
        found[role] = 1
    what = kind(nodes) if config.cluster.platform != "cpu" else ""
    if what and role in ("learner", "serving"):
        count = config.cluster.serving_devices
        if role == "learner":
            count = learner_devices(config, nodes)
        found[what] = count
    return found


def learner_devices(config: Any, nodes: Sequence[Node]) -> int:
    """Devices of each learner process: as configured, or the most that fit.

    Of these only powers of 2: they divide rows, heads and the widths of models.
    """
    if config.cluster.learner_devices:
        return config.cluster.learner_devices
    most = int(max(node.get(kind(nodes), 0) for node in nodes))
    for power in reversed(range(most.bit_length())):
        if not _faults(config, nodes, 2**power):
            return 2**power
    raise ValueError(" ".join(_faults(config, nodes, 1)))


def check(config: Any, nodes: Sequence[Node]) -> int:
    """Refuses a run whose actors find no room; returns the learner's devices in all.

    A run on CPUs has none: 0.
    """
    if config.cluster.platform == "cpu":
        count = 0
    elif not kind(nodes):
        raise ValueError(
            f"config.cluster.address={config.cluster.address!r}: no node of that "
            "cluster has a GPU or TPU; add one, or set config.cluster.platform='cpu'"
        )
    else:
        count = learner_devices(config, nodes)
    found = _faults(config, nodes, count)
    if found:
        raise ValueError(" ".join(found))
    return count * config.cluster.learner_processes


def check_replicas(config: Any, nodes: Sequence[Node]) -> None:
    """Refuses replicas of serving that find no room, though nothing is trained."""
    if _faults(config, nodes, 0, ("serving",)):
        raise ValueError(
            f"config.cluster.serving_replicas={config.cluster.serving_replicas} with "
            f"serving_devices={config.cluster.serving_devices} each find no room on "
            f"nodes with: {_there(nodes)}; lower them or add a node"
        )


def check_width(config: Any, count: int, width: int) -> None:
    """Refuses a mesh over whose fsdp the parameters could not be split."""
    mesh = config.mesh
    fsdp = count // (mesh.data * mesh.tp) if mesh.fsdp == -1 else mesh.fsdp
    if fsdp > 1 and width % fsdp:
        raise ValueError(
            f"config.mesh: fsdp={fsdp} does not divide the model's width of {width}: "
            f"each of the learner's {count} devices would hold all of it; set "
            "config.cluster.learner_devices or config.mesh so that it does"
        )


def _faults(
    config: Any, nodes: Sequence[Node], learner: int, roles: Sequence[str] = ROLES
) -> list[str]:
    """One line, or none, on learner processes with so many devices each."""
    what = kind(nodes)
    left = [dict(node) for node in nodes]
    demands = [d for d in _demands(config, nodes, learner) if d.role in roles]
    wanted = sorted(demands, key=_size, reverse=True)
    for demand in wanted:
        if what == "TPU" and demand.needs.get(what, 1) not in _CHIPS:
            return [
                f"{demand.role} is to have {demand.needs[what]:g} TPU chips; wanted "
                f"one of {_CHIPS} in config.cluster.{demand.role}_devices"
            ]
        # The fullest node that still has room.
        room = [node for node in left if _holds(node, demand.needs)]
        if not room:
            return [_no_room(config, nodes, learner, demand)]
        node = min(room, key=lambda node: node.get(what, 0))
        for name, count in demand.needs.items():
            node[name] -= count
    return []


def _demands(config: Any, nodes: Sequence[Node], learner: int) -> Iterator[Demand]:
    """Of all actors of a stage that ask for more than any node has."""
    is_rl, cluster = config.stage == "grpo", config.cluster
    what = kind(nodes) if cluster.platform != "cpu" else ""
    servings = cluster.serving_replicas if is_rl and not cluster.colocated else 0
    servings += int(is_rl and bool(config.reward.judge.workdir))
    counts = {
        "learner": (cluster.learner_processes, learner),
        "serving": (servings, cluster.serving_devices),
        "browser": (config.rollout.workers if is_rl else 0, 0),
    }
    for role, (times, devices) in counts.items():
        asked = {what: devices} if what and devices else {}
        if any(node.get(role) for node in nodes):
            asked[role] = 1
        yield from [Demand(role, asked)] * times


def _size(demand: Demand) -> float:
    return sum(demand.needs.get(kind, 0) for kind in KINDS)


def _holds(node: Node, needs: Mapping[str, float]) -> bool:
    return all(node.get(name, 0) >= count for name, count in needs.items())


def _there(nodes: Sequence[Node]) -> str:
    names = (kind(nodes), *ROLES)
    return "; ".join(
        ", ".join(f"{node[name]:g} {name}" for name in names if node.get(name))
        or "none of these"
        for node in nodes
    )


def _no_room(config: Any, nodes: Sequence[Node], learner: int, demand: Demand) -> str:
    cluster, what = config.cluster, kind(nodes)
    there = _there(nodes)
    if demand.role == "browser":
        return (
            f"config.rollout.workers={config.rollout.workers} find no room on the "
            f"nodes that offer `browser` ({there}); lower it or add browser nodes"
        )
    serving, count = cluster.serving_devices, cluster.serving_replicas
    beside = f"on {serving}" if count == 1 else f"{count} times on {serving} each"
    beside = "in the learner's process" if cluster.colocated else beside
    return (
        f"{demand.role} finds no room: wanted are {cluster.learner_processes} learner "
        f"process(es) with {learner} {what}(s) each and serving {beside}, there are "
        f"nodes with: {there}. Lower config.cluster.learner_devices, "
        "serving_devices or serving_replicas, add a node, or set "
        "config.cluster.colocated=True so that one process has them all"
    )
