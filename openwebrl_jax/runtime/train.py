"""The driver of one training run: checks, actors, metrics, a clean end.

It holds no arrays and touches no jax backend. A run that was killed goes on from its
newest checkpoint when the same command is given again.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from openwebrl_jax.batch import feed
from openwebrl_jax.core import checks, metrics
from openwebrl_jax.learn import folder
from openwebrl_jax.rollout import build, store
from openwebrl_jax.runtime import cluster, demonstrate, replicas
from openwebrl_jax.runtime import crew as crews
from openwebrl_jax.runtime import news as news_of
from openwebrl_jax.runtime import watch as watches
from openwebrl_jax.runtime.crew import Crew
from openwebrl_jax.runtime.queue import Queue
from openwebrl_jax.runtime.team import Team

# Of a workdir: what of the data its digest was when the stage was begun.
_DATA = {"sft": "demonstrations", "grpo": "training tasks"}

_SHOWN = {
    "sft": ("learner/loss",),
    "grpo": ("rollout/success", "rollout/mixed", "learner/ratio", "episodes_per_s"),
}


def run(config: Any, workdir: str) -> None:
    """The command: everything is checked before anything is started."""
    origin = check(config, workdir)
    with checks.held(workdir):
        cluster.start(config)
        try:
            cluster.check_room(config, folder.width(folder.find(origin)))
            if config.stage == "sft":
                sft(config, workdir, origin)
            else:
                crew = Crew(config)
                grpo(config, workdir, origin, crew)
                crew.close()
        finally:
            cluster.stop()


def check(config: Any, workdir: str) -> str:
    """Refuses what cannot run; returns the checkpoint folder to begin from."""
    checks.check_config(config)
    if config.agent.lenient and config.stage == "grpo":
        raise ValueError(
            "config.agent.lenient=True would reward malformed replies; it is for "
            "measuring models that are not trained here, set it to False"
        )
    build.check(config)
    cluster.check(config)
    name = config.init_from or config.model.path
    origin = folder.find(name, command=config.init_command)
    folder.check(origin)
    cluster.check_room(config, folder.width(origin))
    feed.check(str(origin), config, build.opening(config))
    checks.check_workdir(workdir, config)
    _check_data(config, workdir)
    return folder.everywhere(name)


def _check_data(config: Any, workdir: str) -> None:
    """Refuses to go on with other tasks or demonstrations under the same ordinals."""
    path, here = _digest_path(config, workdir), _digest(config)
    there = (path.read_text().strip() if path.exists() else "") or here
    if there != here:
        where = "config.tasks" if config.stage == "grpo" else "config.sft.data"
        raise ValueError(
            f"the {_DATA[config.stage]} have changed since {workdir} was begun: their "
            f"digest was {there[:12]}, it is {here[:12]}; bring the old ones back (see "
            f"{where}) or take another --workdir"
        )


def _digest_path(config: Any, workdir: str) -> Path:
    return Path(workdir) / f"{_DATA[config.stage].split()[-1]}.sha256"


def _digest(config: Any) -> str:
    """Of what the stage is trained on."""
    if config.stage == "grpo":
        return build.make_source(config, "train").digest
    names = [demonstrate.names(workdir) for workdir in config.sft.data]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _keep(config: Any, workdir: str) -> None:
    """Notes in the workdir what it is of."""
    checks.keep_config(workdir, config)
    checks.keep_text(_digest_path(config, workdir), f"{_digest(config)}\n")


def sft(config: Any, workdir: str, origin: str) -> str:
    """Runs the SFT stage and returns the exported folder."""
    _keep(config, workdir)
    deaths = crews.Deaths()

    def life(learner: Team) -> str:
        cluster.check_shared(workdir, learner.actors)
        ray.get(learner.start(config, workdir, origin))
        with contextlib.closing(_writer(config, workdir)) as writer:
            for step, told in learner.results("sft"):
                writer.write(step, told)
                deaths.forget()
        return learner.call("export")

    while True:
        learner = Team(config)
        try:
            return life(learner)
        except ray.exceptions.RayError as error:
            _bear(error, deaths, learner)
        finally:
            learner.kill()


def grpo(config: Any, workdir: str, origin: str, crew: Crew) -> str:
    """Runs the RL stage with the crew's workers and returns the exported folder.

    A worker that dies is replaced. After any other death all actors are, and go on
    from the newest checkpoint and the journal as after the death of this process.
    """
    _keep(config, workdir)
    while True:
        learner = Team(config)
        queue = cluster.actor(Queue, config, "ledger")
        try:
            return _grpo(config, workdir, origin, crew, learner, queue)
        except ray.exceptions.RayError as error:
            _bear(error, crew.deaths, learner)
        finally:
            learner.kill()
            cluster.kill(queue)
        crew.disband()


def _grpo(
    config: Any, workdir: str, origin: str, crew: Crew, learner: Team, queue: Any
) -> str:
    """One life of the RL stage, until it is done or an actor dies."""
    cluster.check_shared(workdir, [*learner.actors, queue, *crew.workers.values()])
    start = learner.start(config, workdir, origin)
    if config.cluster.colocated:
        crew.serve(origin, config, learner.first)
    elif crew.serving is None:
        crew.serve(origin, config)
    done, snapshot = ray.get(start)[0]
    ray.get(queue.start.remote(config, workdir, snapshot, done))
    ports = cluster.Near(queue), replicas.port(config, crew.serving)
    learner.call("connect", *ports)
    news = news_of.News(config, queue, crew)
    kept = str(Path(workdir) / store.FOLDER)
    judges = watches.Watch(config, crew.judge, kept)
    with contextlib.closing(_writer(config, workdir)) as writer:
        for iteration, told in _supervised(crew, queue, learner, workdir):
            told |= news.read()
            told |= judges.see(iteration, news.slots)
            judges.check(writer.write(iteration, told))
            crew.deaths.forget()
    ray.get(queue.close.remote())
    return learner.call("export")


def _supervised(
    crew: Crew, queue: Any, learner: Team, workdir: str
) -> Iterator[tuple[int, dict[str, float]]]:
    """What the learner tells, while dead workers are replaced; others' deaths raise.

    A worker serves once it has started; until then the others go on without it.
    """
    stream = learner.stream("grpo")
    watched = [actor.watch.remote() for actor in (crew.serving, crew.judge) if actor]
    kept = str(Path(workdir) / store.FOLDER)
    others = [*watched, *learner.following]
    working = {crew.starts[name]: name for name in crew.workers}
    while True:
        refs = [stream, *others, *working]
        (ref,), _ = ray.wait(refs, num_returns=1)
        if ref is stream:
            try:
                told: Any = ray.get(next(stream))
            except StopIteration:
                return
            if told is not None:
                yield told
        elif ref in others:
            ray.get(ref)
            others.remove(ref)
        else:
            name = working.pop(ref)
            try:
                ray.get(ref)
            except ray.exceptions.RayActorError:
                ray.get(queue.worker_lost.remote(name))
                name = crew.replace(name)
                working[crew.starts[name]] = name
                continue
            if ref == crew.starts[name]:
                working[crew.workers[name].serve.remote(queue, kept)] = name


def _bear(error: ray.exceptions.RayError, deaths: crews.Deaths, learner: Team) -> None:
    """Tells of an actor's death; anything else goes on its way."""
    if not cluster.is_death(error) and not learner.has_lost_one():
        raise error
    lines = (line.strip() for line in str(error).splitlines())
    who = next((line for line in lines if line.startswith("class_name:")), "")
    deaths.mourn(
        f"the actor {who.removeprefix('class_name:').strip() or '(unknown)'} died; all "
        "go on from the newest checkpoint"
    )


def _writer(config: Any, workdir: str) -> metrics.Writer:
    """A new one for each life: what a life before wrote too late is purged."""
    is_sft = config.stage == "sft"
    return metrics.Writer(
        workdir,
        stage="sft" if is_sft else "rl",
        total=config.sft.steps if is_sft else config.algo.iterations,
        show=_SHOWN[config.stage],
    )
