"""The reference is reproduced: eta = 0, killed at any point, equals no kill to the bit.

One process, no Ray: the real ledger, journal, store, worker, learner and checkpoints
around scripted pages and a policy whose replies follow from the weights' own bytes, so
that a weight that differed in one bit would be heard.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import shutil

import jax
import numpy as np
import pytest

from configs import grpo_short
from openwebrl_jax.agent import grammar
from openwebrl_jax.batch import feed
from openwebrl_jax.core import types
from openwebrl_jax.learn import checkpoint, setup
from openwebrl_jax.learn import state as states
from openwebrl_jax.models import init, load, sizes
from openwebrl_jax.rollout import audit, store
from openwebrl_jax.runtime import journal, learner, queue, worker

ITERATIONS = 2
SETTINGS = {
    "seed": 7,
    "init_from": "",
    "tasks.suite": "fake",
    "tasks.max_turns": 1,
    "tasks.train_seeds": (0, 7),  # several epochs
    "tasks.floor": 0.3,  # the curriculum is part of what is reproduced
    "agent.parse_failures": 1,
    "algo.eta": 0,
    "algo.groups": 2,
    "algo.group": 2,
    "algo.ppo_epochs": 1,
    "algo.iterations": ITERATIONS,
    "algo.starve_batches": 1000,
    "rollout.contexts": 1,
    "sample.response_tokens": 48,
    "sample.context_tokens": 192,
    "sample.prompt_buckets": (144,),
    "batch.rows": 4,
    "batch.lengths": (192,),
    "batch.loss_tokens": 48,
    "checkpoint.every": 1,
    "checkpoint.keep": 1,
}


class Killed(SystemExit):
    """The process ends here; nothing in it hears of it."""


class Far:
    """Stands for an actor's handle: methods on this event loop."""

    def __init__(self, thing):
        self._thing = thing

    def __getattr__(self, name):
        class Method:
            remote = staticmethod(getattr(self._thing, name))

        return Method


class Near:
    """Stands for `cluster.Near`: what is asked of it runs the event loop."""

    def __init__(self, thing, loop):
        self._thing, self._loop = thing, loop

    def __getattr__(self, name):
        method = getattr(self._thing, name)
        return lambda *arguments: self._loop.run_until_complete(method(*arguments))


class Policy:
    """Draws from the request's key and the weights; some replies are no call."""

    def __init__(self, chat, image_tokens):
        self._chat, self._image_tokens = chat, image_tokens

    async def load(self, version, leaves):
        content = b"".join(leaf.tobytes() for leaf in leaves)
        self._digest = int.from_bytes(hashlib.sha256(content).digest()[:8])
        self._version = version

    async def sample(self, request):
        await asyncio.sleep(0)
        draw = np.random.default_rng([self._digest, *request.key])
        point = draw.choice([160, 280, 640, 760, 840], 2).tolist()
        call = types.ToolCall(name="click", arguments={"point_2d": point})
        text = grammar.render("hm", (call,)) if draw.random() < 0.6 else "hm"
        response = self._chat.encode_reply(text)
        seen, remembered = self._chat.user(request.segments[-1], self._image_tokens)
        return types.Reply(
            text=text,
            system_ids=self._chat.system(request.segments[0]),
            seen_ids=seen,
            remembered_ids=self._chat.remembered(remembered, response),
            response_ids=response,
            closing_ids=self._chat.closing(response),
            logprobs=tuple((-draw.random(len(response))).tolist()),
            version=self._version,
        )

    async def release(self, episode_id):
        pass


class Bench:
    """What all lives share: an event loop, a worker, the compiled update."""

    def __init__(self, folder, loop, config):
        self.folder, self.loop, self.config = folder, loop, config
        self.feed = feed.make_feed(folder, config)
        self.policy = Policy(self.feed.chat, image_tokens=35)
        self.worker = worker.Worker()
        loop.run_until_complete(self.worker.start(config, "w"))
        self.worker._runner.connect(self.policy, self.feed.rule)

    def live(self, workdir):
        """One process: from what is on disk to the end, or to Killed.

        Yields (iteration, metrics); returns the last parameters' bytes.
        """
        actor, ledger = learner.Learner(), queue.Queue()
        try:
            done, snapshot = actor.start(self.config, str(workdir), str(self.folder))
            start = ledger.start(self.config, str(workdir), snapshot, done)
            self.loop.run_until_complete(start)
            near = Near(ledger, self.loop), Near(self.policy, self.loop)
            actor.connect(*near)
            folder = str(workdir / store.FOLDER)
            pulls = self.loop.create_task(self.worker.serve(Far(ledger), folder))
            yield from actor.grpo()
            self.loop.run_until_complete(ledger.close())
            self.loop.run_until_complete(pulls)
            yield None, [x.tobytes() for x in states.to_host(actor._state.params)]
        finally:
            self._bury(actor, ledger)

    def _bury(self, actor, ledger):
        """What the system does when a process ends."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        while any(not task.done() for task in left):
            # What was to stop the loop when it was killed may stop it now.
            with contextlib.suppress(RuntimeError):
                self.loop.run_until_complete(asyncio.wait(left))
        for thing in (actor, ledger):
            if hasattr(thing, "_fence"):
                thing._fence.close()
        if hasattr(ledger, "_journal"):
            ledger._journal.close()
        if hasattr(actor, "_keeper"):
            with contextlib.suppress(Killed):
                actor._keeper.close()
            actor._keeper._arrays.close()


class Fault:
    """Ends the process at the n-th call of what it is put around; it counts them."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch
        self.calls, self.fatal = 0, -1

    def around(self, owner, name, before=lambda *given: None):
        """`before` may do a part of the work, as a torn write does."""
        inner = getattr(owner, name)

        def call(*given, **named):
            self.calls += 1
            if self.calls - 1 == self.fatal:
                before(*given)
                raise Killed(name)
            return inner(*given, **named)

        self._patch.setattr(owner, name, call)

    def arm(self, fatal):
        self.calls, self.fatal = 0, fatal


def shrink(tiny_folder, folder):
    """The tiny checkpoint, smaller still."""
    shutil.copytree(tiny_folder, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["text_config"] |= {"num_hidden_layers": 2, "intermediate_size": 32}
    config["vision_config"] |= {"depth": 1, "intermediate_size": 32}
    config["vision_config"]["deepstack_visual_indexes"] = [0]
    path.write_text(json.dumps(config))
    shape = sizes.load_sizes(folder)
    load.save_model(folder, shape, init.init_model(shape, 0), tiny_folder)
    path.write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def bench(tiny_folder, tmp_path_factory):
    """Programs are compiled once; the state before the first step is copied."""
    config = grpo_short.get_config("tiny")
    config.update_from_flattened_dict(SETTINGS)
    folder = shrink(tiny_folder, tmp_path_factory.mktemp("small") / "model")
    make, kept = setup.make, []

    def make_once(*given):
        if not kept:
            programs, state = make(*given)
            kept.extend((programs, jax.tree.map(np.array, state), state))
        programs, values, like = kept
        place = jax.tree.map(lambda leaf: leaf.sharding, like)
        return programs, jax.device_put(values, place)

    loop = asyncio.new_event_loop()
    with pytest.MonkeyPatch.context() as patch:
        one = functools.partial(setup.mesh.make_mesh, devices=jax.devices()[:1])
        patch.setattr(setup.mesh, "make_mesh", one)
        patch.setattr(setup, "make", make_once)
        patch.setattr(learner.folder, "read", functools.cache(learner.folder.read))
        made = Bench(folder, loop, config)
        patch.setattr(feed, "make_feed", lambda *given: made.feed)
        yield made
        loop.run_until_complete(made.worker.close())
    loop.close()


def exact(told):
    """The numbers of an iteration that do not tell the time."""
    return {k: v for k, v in told.items() if not k.endswith(("_s", "idle_frac"))}


@pytest.fixture(scope="module")
def reference(bench, tmp_path_factory):
    """See `undisturbed`."""
    return undisturbed(bench, tmp_path_factory.mktemp("reference"))


def undisturbed(bench, workdir):
    """What comes of a run that nothing disturbs, and its journal."""
    told = {n: numbers for n, numbers in bench.live(workdir)}
    weights = told.pop(None)
    return (
        {n: exact(numbers) for n, numbers in told.items()},
        weights,
        journal.read(workdir / queue.JOURNAL),
    )


def disturbed(bench, workdir, fault, fatal):
    """Killed once at that call, then given the same command again.

    How many calls there are hangs on the order in which episodes end: of the last
    three some may never come.
    """
    fault.arm(fatal)
    told = {}
    with contextlib.suppress(Killed):
        for n, numbers in bench.live(workdir):
            told[n] = numbers
    assert fault.calls > fatal - 3, "it was not killed"
    told.pop(None, None)
    fault.arm(-1)
    told |= dict(bench.live(workdir))
    weights = told.pop(None)
    return {n: exact(numbers) for n, numbers in told.items()}, weights


def check(bench, workdir, reference, outcome):
    losses, weights, _ = reference
    told, ended_with = outcome
    differing = {
        (n, name): (numbers.get(name), value)
        for n, numbers in told.items()
        for name, value in losses[n].items()
        if numbers.get(name) != value
    }
    assert not differing
    assert set(told) == set(losses)
    assert ended_with == weights
    found = journal.read(workdir / queue.JOURNAL)
    stored = store.listing(workdir / store.FOLDER)
    counts = audit.audit(queue.limits(bench.config), found, stored)
    assert not counts["lost"] and not counts["scored_twice"]
    assert not counts["trained_twice"]
    algo = bench.config.algo
    assert counts["groups"]["trained"] == algo.iterations * algo.groups


def test_killed_at_every_append_to_the_journal(bench, reference, tmp_path, monkeypatch):
    """R34, R35, R37: each append is torn at another place.

    Of the first iteration, which has no checkpoint behind it, every second one.
    """
    fault = Fault(monkeypatch)

    def tear(book, found, *, is_durable=True):
        data = b"".join(journal._line(event) for event in found)
        book._file.write(data[: fault.fatal * 97 % (len(data) + 1)])

    fault.around(journal.Journal, "append", tear)
    fault.arm(-1)
    list(bench.live(tmp_path / "whole"))
    appends = fault.calls
    assert appends > 20
    half = appends // 2
    for fatal in (*range(0, half, 2), *range(half, appends)):
        workdir = tmp_path / str(fatal)
        check(bench, workdir, reference, disturbed(bench, workdir, fault, fatal))


def test_killed_at_every_step_of_a_checkpoint(bench, reference, tmp_path, monkeypatch):
    """R37: extras, arrays, digests, manifest, folder entry, removal of the old one."""
    fault = Fault(monkeypatch)
    fault.around(checkpoint, "_write", lambda path, data: path.write_bytes(data[:9]))
    for name in ("_sha256", "_sync_folder", "_remove"):
        fault.around(checkpoint, name)
    fault.arm(-1)
    list(bench.live(tmp_path / "whole"))
    assert fault.calls > 25
    for fatal in range(0, 25, 5):  # how many files there are is a matter of chance
        workdir = tmp_path / str(fatal)
        check(bench, workdir, reference, disturbed(bench, workdir, fault, fatal))


def test_killed_between_two_checkpoints(bench, tmp_path, monkeypatch):
    """R35: up to two iterations are gone and come again, before and after a version."""
    config = bench.config.copy_and_resolve_references()
    config.algo.iterations, config.checkpoint.every = 3, 2
    monkeypatch.setattr(bench, "config", config)
    wanted = undisturbed(bench, tmp_path / "whole")
    fault = Fault(monkeypatch)
    for name in ("_learn", "_publish"):
        fault.around(learner.Learner, name)
    # Before the second iteration, its publication, the third's; call 0 is the start's.
    for fatal in (3, 4, 6):
        workdir = tmp_path / str(fatal)
        check(bench, workdir, wanted, disturbed(bench, workdir, fault, fatal))
        found = journal.read(workdir / queue.JOURNAL)
        (back,) = (x["iteration"] for x in found if x["kind"] == "rolled_back")
        assert back == (2 if fatal > 4 else 0)


def test_more_is_at_stake_than_one_answer(reference):
    """The run has chosen tasks, and losses that differ."""
    losses, _, found = reference
    kinds = {event["kind"] for event in found}
    assert {"opened", "scored", "closed", "taken", "passed_over"} <= kinds
    assert len({numbers["learner/loss"] for numbers in losses.values()}) == ITERATIONS
    assert all(numbers["staleness/max"] == 0.0 for numbers in losses.values())
