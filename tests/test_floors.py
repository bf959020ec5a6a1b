"""The rooms and floors of the house, read from the sources; README draws them.

A rule is a function from a source (its path in the repository and its text) to the
faults that it finds; each is shown to fail on a small bad source.
"""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "openwebrl_jax"

# Room -> what it may import of ours beside itself; a file's own line wins.
MAY_IMPORT = {
    "core": (),
    "tasks": ("core",),
    "web": ("core",),
    "agent": ("core",),
    "rewards": ("core",),
    "tokens": ("core",),
    "models": ("core",),
    "algos": ("core",),
    "rollout": ("core", "tasks", "web", "agent", "rewards", "algos.advantages"),
    "policy": ("core", "tokens", "models"),
    "policy/remote.py": ("core",),
    "policy/served.py": ("core",),
    "batch": ("core",),
    "batch/collate.py": ("core", "tokens.images", "tokens.positions"),
    "batch/demos.py": ("core", "tokens.chat"),
    "batch/feed.py": ("core", "tokens.chat", "tokens.images"),  # puts the room together
    "learn": ("core", "models", "algos"),
    "runtime": ("core", "rollout", "policy", "batch", "learn"),
    "evals": ("core", "rollout.score", "rollout.store"),
    "evals/twin.py": ("core", "rollout.books", "rollout.events", "rollout.ledger"),
}

# Outside package -> the places that may import it; a minus takes a place out again.
DEVICE = ("models", "algos", "policy", "learn", "-algos/advantages.py")
DEVICE += ("-policy/remote.py", "-policy/served.py")
ONLY_IN = {
    **dict.fromkeys(("jax", "jaxlib", "flax", "optax", "orbax", "chex"), DEVICE),
    "ray": ("runtime",),
    "playwright": ("web/browser.py",),
    "torch": (),  # an oracle of the tests
}

CODE = (PACKAGE, "launch", "configs", "benchmarks", "tests", "scripts")
FORBIDDEN_NAMES = ("utils", "common", "helpers", "base")
MAX_LINES = 400
MAX_LAUNCH_LINES = 79


def sources() -> dict[str, str]:
    """Every source of the project: path in the repository -> text."""
    files = (
        path
        for folder in CODE
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js", ".sh") or path.parent.name == "scripts"
    )
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in sorted(files)
        if path.is_file() and "__pycache__" not in path.parts
    }


def imports(text: str) -> list[str]:
    """Dotted names of all that a module imports, at its top or deeper inside."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names += [f"{start}.{alias.name}" for alias in node.names]
    return names


def is_under(name: str, places: tuple[str, ...], border: str) -> bool:
    """True iff `name` is one of the places or lies inside one."""
    return any(name == place or name.startswith(place + border) for place in places)


def floor_faults(path: str, text: str) -> list[str]:
    """Imports of ours that go up or sideways."""
    if not path.endswith(".py") or path.startswith("tests/"):
        return []
    faults = []
    top, _, inner = path.partition("/")
    room = inner.partition("/")[0]
    allowed = (*MAY_IMPORT.get(inner, MAY_IMPORT.get(room, ())), room)
    for name in imports(text):
        first, _, rest = name.partition(".")
        if not first:
            faults.append(f"{path}: relative import {name}; name the whole module")
        elif first == "configs" and top not in ("configs", "benchmarks"):
            faults.append(f"{path}: imports {name}; only benchmarks import configs")
        elif first == "launch" and top != "launch":
            faults.append(f"{path}: imports {name}; nobody imports launch")
        elif first == PACKAGE and top == "configs":
            faults.append(f"{path}: imports {name}; configs are data")
        elif first == PACKAGE and top == PACKAGE and not is_under(rest, allowed, "."):
            faults.append(f"{path}: imports {name}; may import {', '.join(allowed)}")
    return faults


def outside_faults(path: str, text: str) -> list[str]:
    """Heavy packages outside the one place that owns them."""
    if not path.endswith(".py") or path.split("/")[0] in ("tests", "benchmarks"):
        return []
    inner = path.removeprefix(PACKAGE + "/")
    faults = []
    for name in imports(text):
        places = ONLY_IN.get(name.partition(".")[0])
        if places is None:
            continue
        denied = tuple(place[1:] for place in places if place.startswith("-"))
        if is_under(inner, denied, "/") or not is_under(inner, places, "/"):
            faults.append(f"{path}: imports {name}; only {', '.join(places)} may")
    return faults


def size_faults(path: str, text: str) -> list[str]:
    """Files that have grown past one idea."""
    limit = MAX_LAUNCH_LINES if path.startswith("launch/") else MAX_LINES
    lines = text.count("\n")
    return [f"{path}: {lines} lines; split it, {limit} at most"] * (lines > limit)


def name_faults(path: str, text: str) -> list[str]:
    """Names that say what kind of thing a file is and not what it is about."""
    parts = pathlib.PurePosixPath(path).with_suffix("").parts
    found = [part for part in parts if part in FORBIDDEN_NAMES]
    if not found or path == "configs/common.py":
        return []
    return [f"{path}: called {found[0]}; name what it is about"]


def init_faults(path: str, text: str) -> list[str]:
    """Package files that hold more than a docstring."""
    if not path.endswith("__init__.py"):
        return []
    body = ast.parse(text).body
    is_docstring = len(body) == 1 and ast.get_docstring(ast.parse(text))
    return [] if is_docstring else [f"{path}: wants a docstring and nothing else"]


def mirror_faults(path: str, text: str) -> list[str]:
    """Tests that do not stand where the module stands, or hide in classes."""
    room, _, name = path.removeprefix("tests/").rpartition("/")
    if not path.startswith("tests/") or not name.startswith("test_"):
        return []
    faults = [
        f"{path}: class {node.name}; tests are plain functions"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
    ]
    folder = ROOT / (room if room in ("launch", "configs") else f"{PACKAGE}/{room}")
    modules = [module.stem for module in folder.glob("*")]
    subject = name.removeprefix("test_").removesuffix(".py")
    is_case = room.split("/")[0] in ("web_cases", "apps")  # no module is meant
    if room and not is_case and not is_under(subject, tuple(modules), "_"):
        faults.append(f"{path}: wants to begin with test_ and a module of {room}")
    return faults


RULES = (
    floor_faults,
    outside_faults,
    size_faults,
    name_faults,
    init_faults,
    mirror_faults,
)


@pytest.mark.parametrize("rule", RULES)
def test_every_source_keeps_the_rule(rule):
    faults = [fault for source in sources().items() for fault in rule(*source)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (floor_faults, "core/checks.py", "from openwebrl_jax.web import env"),
        (floor_faults, "web/env.py", "from openwebrl_jax.agent import grammar"),
        (floor_faults, "web/env.py", "def f():\n    import openwebrl_jax.tasks.sites"),
        (floor_faults, "web/env.py", "from .browser import Pool"),
        (floor_faults, "rollout/ledger.py", "from openwebrl_jax.algos import mm_grpo"),
        (floor_faults, "rollout/ledger.py", "from openwebrl_jax import algos"),
        (floor_faults, "batch/rows.py", "from openwebrl_jax.tokens import positions"),
        (floor_faults, "batch/collate.py", "from openwebrl_jax.tokens import chat"),
        (floor_faults, "policy/remote.py", "from openwebrl_jax.tokens import chat"),
        (floor_faults, "evals/report.py", "from openwebrl_jax.rollout import episode"),
        (floor_faults, "learn/loop.py", "from openwebrl_jax.policy import sampler"),
        (floor_faults, "attic/old.py", "from openwebrl_jax.core import types"),
        (floor_faults, "learn/loop.py", "from configs import common"),
        (floor_faults, "learn/loop.py", "import launch.train"),
        (outside_faults, "tokens/images.py", "import jax.numpy as jnp"),
        (outside_faults, "algos/advantages.py", "import jax"),
        (outside_faults, "policy/remote.py", "from flax import nnx"),
        (outside_faults, "runtime/learner.py", "import jax"),
        (outside_faults, "policy/sampler.py", "import ray"),
        (outside_faults, "web/env.py", "from playwright.async_api import Page"),
        (outside_faults, "models/load.py", "import torch"),
        (size_faults, "web/env.py", "\n" * 401),
        (name_faults, "web/utils.py", ""),
        (name_faults, "helpers/text.py", ""),
        (init_faults, "web/__init__.py", '"""Doors."""\nfrom . import env'),
        (init_faults, "web/__init__.py", ""),
    ],
)
def test_a_bad_source_is_found(rule, path, text):
    assert len(rule(f"{PACKAGE}/{path}", text)) == 1


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (floor_faults, "configs/tiny.py", "from openwebrl_jax.core import types"),
        (floor_faults, "launch/train.py", "from configs import common"),
        (outside_faults, "launch/train.py", "import jax"),
        (size_faults, "launch/train.py", "\n" * 80),
        (mirror_faults, "tests/core/test_history.py", ""),
        (mirror_faults, "tests/test_floors.py", "class TestRules: ..."),
    ],
)
def test_a_bad_source_outside_the_package_is_found(rule, path, text):
    assert len(rule(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("openwebrl_jax/core/checks.py", "from openwebrl_jax.core import types"),
        ("openwebrl_jax/rollout/build.py", "import openwebrl_jax.algos.advantages"),
        ("openwebrl_jax/learn/update.py", "import jax\nimport numpy as np"),
        ("openwebrl_jax/runtime/worker.py", "import ray"),
        ("openwebrl_jax/web/browser.py", "from playwright import async_api"),
        ("configs/common.py", "from ml_collections import ConfigDict"),
        (
            "launch/train.py",
            "from launch import cli\nfrom openwebrl_jax.web import env",
        ),
        ("tests/core/test_checks_batch.py", "def test_one(): ..."),
        ("tests/web_cases/17_covered/test_covered.py", "def test_one(): ..."),
        ("tests/test_floors.py", "import torch\nfrom configs import common"),
    ],
)
def test_a_good_source_passes(path, text):
    assert [fault for rule in RULES for fault in rule(path, text)] == []


@pytest.mark.parametrize("module", ["rollout.build", "runtime.worker"])
def test_a_browser_worker_brings_in_no_jax(module):
    script = (
        f"import sys, {PACKAGE}.{module}\n"
        "print(*sorted({'jax', 'jaxlib', 'flax', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
