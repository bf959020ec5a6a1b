"""Processes and folders that are ours, known by pid and start time, never by name.

Each Chromium has a home, a folder whose name says who owns it. It holds the profile
and all else that Chromium and its driver put on disk, and a note of both processes,
so that what a killed worker leaves behind is found and taken away at the next start.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import tempfile
from collections.abc import Iterable

_PREFIX = "openwebrl_browser"
_NOTE = "processes"
_HOME = re.compile(rf"{_PREFIX}_([0-9a-f]+)_([0-9a-f]+)_([0-9a-f]+)_")


def stat(pid: int) -> dict:
    """State, parent, group and start time of a process; {} = there is none."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return {}
    fields = text.rpartition(")")[2].split()
    return {
        "state": fields[0],
        "parent": int(fields[1]),
        "group": int(fields[2]),
        "born": int(fields[19]),
    }


def is_running(pid: int, born: int) -> bool:
    """True iff the very process that was started then still runs."""
    now = stat(pid)
    return bool(now) and now["born"] == born and now["state"] not in "ZX"


def members(group: int) -> list[int]:
    """The running processes of a process group (the dead that wait are none)."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    stats = ((pid, stat(pid)) for pid in pids)
    return [
        pid
        for pid, now in stats
        if now and now["group"] == group and now["state"] not in "ZX"
    ]


def descendants(pid: int) -> list[int]:
    """All processes below one, the dead that wait included."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    parents = {each: stat(each).get("parent") for each in pids}
    below, todo = [], [pid]
    while todo:
        parent = todo.pop()
        found = [each for each in pids if parents[each] == parent]
        below += found
        todo += found
    return below


def memory_mb(pids: Iterable[int]) -> float:
    """Memory of some processes; what processes share is counted once."""
    return sum(_share_kb(pid) for pid in pids) / 1024


def kill(pid: int, born: int) -> None:
    """Ends a process at once, if it is still the one that was started then."""
    if is_running(pid, born):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)


def kill_group(leader: int, born: int) -> None:
    """Ends the group that a process of ours led; one that is not ours is left alone."""
    now = stat(leader)
    if now and now["born"] != born:
        return  # the number belongs to somebody else by now
    if members(leader):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def make_home() -> str:
    """A new folder for one Chromium, named after this process."""
    pid = os.getpid()
    name = f"{_PREFIX}_{_namespace():x}_{pid:x}_{stat(pid)['born']:x}_"
    return tempfile.mkdtemp(prefix=name)


def note(home: str, *pids: int) -> None:
    """Writes down which processes live in a home; groups of theirs are ours too."""
    lines = [f"{pid} {stat(pid).get('born', 0)}\n" for pid in pids]
    pathlib.Path(home, _NOTE).write_text("".join(lines))


def reap() -> None:
    """Takes away the homes whose owner is gone, and what still runs in them."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}_*"):
        found = _HOME.match(path.name)
        if not found:
            continue
        namespace, pid, born = (int(digits, 16) for digits in found.groups())
        if namespace != _namespace():
            continue  # of another container, where our pids mean nothing
        if not is_running(pid, born) and _is_mine(path):
            _end(path)
            shutil.rmtree(path, ignore_errors=True)


def _is_mine(path: pathlib.Path) -> bool:
    """False also once another worker has taken it away."""
    try:
        return path.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _end(home: pathlib.Path) -> None:
    """Kills the processes that a home's note names, with the groups they lead."""
    try:
        lines = (home / _NOTE).read_text().splitlines()
    except OSError:
        return  # its owner ended before it had any
    for pid, born in (map(int, line.split()) for line in lines):
        if is_running(pid, born) and stat(pid)["group"] == pid:
            kill_group(pid, born)
        kill(pid, born)


def _namespace() -> int:
    """The number of our pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def _share_kb(pid: int) -> int:
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # it ended meanwhile
    found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0
