"""Kills the processes of a real run at random, and counts whether anything was lost.

In: the command of a training run. Out: the summary, see `run`. Only processes of that
run's own tree are killed, by pid: this process adopts what the run leaves behind, so
that the tree stays whole when a parent in it dies.
"""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openwebrl_jax.core import metrics
from openwebrl_jax.rollout import audit, books, store
from openwebrl_jax.runtime import journal, queue

KINDS = ("browser", "worker", "serving", "ledger", "learner", "driver")
_ACTORS = {"Worker": "worker", "Serving": "serving", "Queue": "ledger"}
_ACTORS |= {"Learner": "learner"}
_CHEAP = ("browser", "worker")  # the run goes on without a new start of all actors

_BETWEEN_S = (10.0, 35.0)  # two kills
_RECOVERY_S = 45.0  # at most so long, the next costly kill waits for an iteration
_TELL_S = 10.0
_LAST_ITERATIONS = 2  # after the last kill
_END_S = 600.0  # the run ends within this once nobody harms it
_GONE_S = 20.0  # what a run has left behind ends within this
_EACH_MINUTES = 15.0  # a siege as long as this has killed each kind
# Of a summary. No driver ends by itself: what kills its actors is borne, and an error
# of its own that a siege brings out is one.
_NONE = ("lost", "trained_twice", "scored_twice", "processes_left")
_NONE += ("driver_ends_unasked",)

_LIBC = ctypes.CDLL(None)
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER


def run(
    command: Sequence[str],
    workdir: Path,
    limits: books.Limits,
    *,
    minutes: float,
    seed: int,
) -> dict[str, Any]:
    """Harms the run for so long, lets it end, and returns what came of it.

    Args:
      command: a `launch.train` of the RL stage in `workdir` that would never end.
      limits: of its ledger.
    """
    siege = _Siege(command, workdir, seed)
    try:
        siege.harm(minutes * 60)
        ended_well = siege.finish()
    finally:
        left = siege.clear()
    told = audit.audit(
        limits,
        journal.read(workdir / queue.JOURNAL),
        store.listing(workdir / store.FOLDER),
    )
    return {
        "minutes": round(siege.watch.lap() / 60, 1),
        "kills": {kind: siege.kills[kind] for kind in KINDS},
        **told,
        "processes_left": left,
        "iterations": siege.iteration(),
        "memory_mb": _memory(workdir),
        "driver_starts": siege.starts,
        "driver_ends_unasked": siege.unasked,
        "ended_well": ended_well,
    }


def faults(summary: dict[str, Any]) -> list[str]:
    """What does not add up, a line each; [] = all that was harmed went on by itself.

    A siege that harmed nothing, or a run that did nothing, proves nothing.
    """
    found = [f"{name} is {summary[name]}; wanted 0" for name in _NONE if summary[name]]
    kills = summary["kills"]
    missing = [kind for kind in KINDS if not kills[kind]]
    if len(missing) == len(KINDS):
        found.append("nothing was killed; wanted a longer siege")
    elif summary["minutes"] >= _EACH_MINUTES:
        found += [f"no {kind} was killed; wanted each kind" for kind in missing]
    if not summary["iterations"]:
        found.append("no iteration was trained; wanted a longer siege")
    if not summary["ended_well"]:
        found.append("the run did not end well once it was left alone; see its log.txt")
    return found


class _Siege:
    """Owns the run's driver and knows its whole tree."""

    def __init__(self, command: Sequence[str], workdir: Path, seed: int):
        _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
        self._command, self._workdir = list(command), workdir
        self._choice = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.starts = self.unasked = 0
        self.watch = metrics.Stopwatch()
        workdir.mkdir(parents=True, exist_ok=True)
        self._log = open(workdir / "log.txt", "ab")
        self._driver = self._start(self._command)

    def iteration(self) -> int:
        """The newest that the run has told of."""
        told = metrics.read(self._workdir / "metrics.jsonl")
        return told[-1]["step"] if told else 0

    def harm(self, seconds: float) -> None:
        """Kills at random moments until the time is over."""
        begun_s = time.monotonic()
        deck: list[str] = []
        hurt_s, hurt_at = begun_s, self.iteration()  # when a costly kill was
        next_s = begun_s + _BETWEEN_S[1]
        tell_s = begun_s
        while (now_s := time.monotonic()) < begun_s + seconds:
            self._revive()
            if now_s > tell_s:
                tell_s = now_s + _TELL_S
                self._tell(now_s - begun_s, seconds)
            if now_s > next_s:
                deck = deck or self._choice.sample(KINDS, len(KINDS))
                is_well = self.iteration() > hurt_at or now_s > hurt_s + _RECOVERY_S
                kind = next((k for k in deck if is_well or k in _CHEAP), "")
                if kind and self._kill(kind):
                    deck.remove(kind)
                    next_s = now_s + self._choice.uniform(*_BETWEEN_S)
                    if kind not in _CHEAP:
                        hurt_s, hurt_at = now_s, self.iteration()
            time.sleep(0.5)

    def finish(self) -> bool:
        """Kills the driver once more and lets the same run come to its end."""
        if self._driver.poll() is None:
            self._kill("driver")
        self._driver.wait()
        self._note_end(self._driver.returncode)
        last = f"--config.algo.iterations={self.iteration() + _LAST_ITERATIONS}"
        self._driver = self._start([*self._command, last])
        end_s = time.monotonic() + _END_S
        while self._driver.poll() is None and time.monotonic() < end_s:
            self._reap()
            time.sleep(0.5)
        return self._driver.poll() == 0

    def clear(self) -> int:
        """How many processes are left once there was time to end; ends them too."""
        if self._driver.poll() is None:
            self._driver.kill()
            self._driver.wait()
        end_s = time.monotonic() + _GONE_S
        while (left := self._tree()) and time.monotonic() < end_s:
            time.sleep(0.5)
        for pid, title in left.items():
            print(f"left behind: {pid} {title[:120]}", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._tree() or self._reap():
            time.sleep(0.05)
        self._log.close()
        return len(left)

    def _start(self, command: Sequence[str]) -> subprocess.Popen:
        self.starts += 1
        return subprocess.Popen(
            command,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=lambda: _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL),
        )

    def _revive(self) -> None:
        """Gives the same command again where the driver has ended."""
        if (code := self._driver.poll()) is not None:
            self._note_end(code)
            self._driver = self._start(self._command)

    def _note_end(self, code: int) -> None:
        if code in (2, 3):
            raise ValueError(f"the run was refused or stopped: {self._last_line()}")
        self.unasked += code != -signal.SIGKILL

    def _kill(self, kind: str) -> bool:
        """Kills one process of that kind; False = there is none now."""
        tree = self._tree()
        victims = [pid for pid, title in tree.items() if self._kind(pid, title) == kind]
        if not victims:
            return False
        try:
            os.kill(self._choice.choice(victims), signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            return False
        self.kills[kind] += 1
        return True

    def _kind(self, pid: int, title: str) -> str:
        if pid == self._driver.pid:
            return "driver"
        if "--remote-debugging-pipe" in title and "--type=" not in title:
            return "browser"
        actor = title.removeprefix("ray::").split(".")[0].split(" ")[0]
        return _ACTORS.get(actor, "") if title.startswith("ray::") else ""

    def _tree(self) -> dict[int, str]:
        """Running processes below this one: pid -> command line."""
        self._reap()
        parents = {int(n): _parent(int(n)) for n in os.listdir("/proc") if n.isdigit()}
        below, new = set(), {os.getpid()}
        while new:
            new = {pid for pid, parent in parents.items() if parent in new}
            below |= new
        return {pid: title for pid in below if (title := _title(pid))}

    def _reap(self) -> int:
        """Buries adopted children; how many are at their end and not yet dead.

        The driver is waited for elsewhere.
        """
        me, dying = os.getpid(), 0
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != self._driver.pid:
                # Its title goes before it can be waited for.
                if _parent(int(name)) == me and not _title(int(name)):
                    dying += os.waitpid(int(name), os.WNOHANG) == (0, 0)
        return dying

    def _tell(self, at_s: float, seconds: float) -> None:
        kills = ", ".join(f"{kind} {self.kills[kind]}" for kind in KINDS)
        print(
            f"chaos {at_s / 60:.1f}/{seconds / 60:.0f} min  iteration "
            f"{self.iteration()}  kills {self.kills.total()} ({kills})  driver starts "
            f"{self.starts}",
            flush=True,
        )

    def _last_line(self) -> str:
        lines = (self._workdir / "log.txt").read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""


def _memory(workdir: Path) -> dict[str, float]:
    """The most that the driver and the ledger held, in any life."""
    told = metrics.read(workdir / "metrics.jsonl")
    names = ("driver", "ledger")
    return {
        name: round(max((x[f"host_rss/{name}_mb"] for x in told), default=0.0), 1)
        for name in names
    }


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def _title(pid: int) -> str:
    """The command line; "" = it is dead, or was never alive here."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode(errors="replace").strip()
