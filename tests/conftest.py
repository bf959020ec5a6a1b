"""What every test stands on: eight CPU devices, strict numerics, one Chromium.

All of it is environment, set before anything imports jax, so that child processes
(Ray's workers, clean interpreters) get the same.
"""

import os
import pathlib

import hypothesis
import pytest

ROOT = pathlib.Path(__file__).parent.parent

# Most of the time goes into compiling: a third less without LLVM's optimiser.
QUICK = "--xla_backend_optimization_level=0"

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{QUICK} --xla_force_host_platform_device_count=8"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
# A second run of the tests compiles next to nothing.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".jax_cache")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the network
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # no threads before a fork
os.environ["MPLBACKEND"] = "Agg"

# Two busy cores make any time limit of an example a coin toss.
hypothesis.settings.register_profile("here", deadline=None, max_examples=50)
hypothesis.settings.load_profile("here")


def pytest_collection_modifyitems(items):
    """A real browser on a busy machine gets a second try; nothing else does."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the Chromium that browser tests drive."""
    path = pathlib.Path("/usr/bin/chromium")
    if not path.exists():
        from playwright import sync_api

        with sync_api.sync_playwright() as playwright:
            path = pathlib.Path(playwright.chromium.executable_path)
    if not path.exists():
        pytest.fail("no Chromium on this machine; `make setup` brings one")
    return str(path)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> pathlib.Path:
    """The checkpoint folder of `launch.make_tiny`, made once; do not write to it."""
    from launch import make_tiny

    folder = tmp_path_factory.mktemp("tiny")
    make_tiny.make(folder, seed=0)
    return folder
