"""Two serving actors of a real Ray: the token streams of one, and one is killed."""

import subprocess
import sys

import pytest

from tests.runtime import test_train

# The same episodes by a sampler in this process, by two replicas of which one is killed
# in the middle, and by the other one with the successor.
DRIVER = """
import asyncio, io, os, sys

import jax
import numpy as np
import ray
from flax import nnx
from PIL import Image

from configs import grpo_short
from openwebrl_jax.core.causes import Failure
from openwebrl_jax.models import load
from openwebrl_jax.policy import sampler
from openwebrl_jax.runtime import cluster, replicas, worker
from openwebrl_jax.web import processes
from tests.policy.episodes import Player
from tests.runtime import test_train

folder = sys.argv[1]
config = grpo_short.get_config("tiny")
small = {"sample.response_tokens": 12, "sample.prompt_buckets": (180,)}
config.update_from_flattened_dict(test_train.SMALL | small)
KEYS = [(0, ordinal, slot) for ordinal in range(4) for slot in range(2)]

def png(seed):
    shape = (config.web.height_px, config.web.width_px, 3)
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()

def players(name):
    return [Player(png, 1, f"{name} {key}", key) for key in KEYS]

async def turns(episodes, voice, count):
    await asyncio.gather(*(turn(each, voice, count) for each in episodes))

async def turn(each, voice, count):
    for _ in range(count):
        await each.turn(voice)

def ids(episodes):
    return [[played.reply.response_ids for played in each.played] for each in episodes]

def versions(episodes):
    return sorted({p.reply.version for each in episodes for p in each.played})

def title(pid):
    try:
        return open(f"/proc/{pid}/cmdline").read()
    except OSError:
        return ""

def serving():
    return sum("ray::Serving" in title(n) for n in processes.descendants(os.getpid()))

async def by_one():
    voice = sampler.make_sampler(folder, config)
    episodes = players("alone")
    await turns(episodes, voice, 3)
    await voice.close()
    return ids(episodes)

async def by_two(one):
    config.cluster.serving_replicas = 2
    actor = replicas.make(config)
    await actor.serve.remote(config, folder)
    voice, port = worker.RoutedSampler(actor, 60.0), replicas.port(config, actor)
    first = players("first")
    await turns(first, voice, 1)
    of = {key: voice._kept[f"first {key}"]._actor_id for key in KEYS}
    assert len(set(of.values())) == 2
    assert all(of[key] == of[*key[:2], 0] for key in KEYS)  # of its group

    params = nnx.split(load.load_model(folder)[1], nnx.Param)[1]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    assert await asyncio.to_thread(port.load, 1, leaves) == 1
    await turns(first, voice, 1)
    assert ids(first) == [each[:2] for each in one] and versions(first) == [0, 1]

    victim = voice._kept[f"first {KEYS[0]}"]
    ray.kill(victim)
    ended = await asyncio.gather(
        *(each.turn(voice) for each in first), return_exceptions=True
    )
    for key, end, each in zip(KEYS, ended, one):
        if of[key] == victim._actor_id:
            assert isinstance(end, Failure) and end.cause == "sampler_unavailable"
        else:
            assert end.reply.response_ids == each[2]

    while (await actor.route.remote(KEYS[0][:2]))._actor_id == victim._actor_id:
        await asyncio.sleep(0.05)
    loading = actor.load.remote(2, [ray.put(leaves)])
    assert not ray.wait([loading], timeout=0.5)[0]  # nor until a successor has it
    again = players("again")
    await turns(again, voice, 3)
    assert ids(again) == one
    assert await loading == 2 and serving() == 2
    last = players("last")
    await turns(last, voice, 3)
    assert ids(last) == one and versions(last) == [2]
    assert len({voice._kept[f"last {key}"]._actor_id for key in KEYS}) == 2
    told = await actor.stats.remote()
    assert told["replicas"] == 2.0 and told["compilations"] == 0.0
    assert told["replies"] >= len(KEYS) * 3
    cluster.kill(actor)
    while serving():
        await asyncio.sleep(0.1)

cluster.start(config)  # before jax has threads
try:
    one = asyncio.run(by_one())
    assert all(len(each) == 3 for each in one)
    asyncio.run(by_two(one))
finally:
    cluster.stop()
"""


@pytest.mark.long
def test_two_replicas_speak_as_one_and_one_may_die(tiny_folder):
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tiny_folder)],
        capture_output=True,
        text=True,
        env=test_train.one_device(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a serving replica died; another one takes its place" in (
        done.stderr + done.stdout
    )
