"""The ledger's events on disk: one checksummed JSON line each, never rewritten.

In: events, in order. Out: the same after a crash; a torn last line is dropped.
"""

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Journal:
    """The open file `path`; reading it back is `read`."""

    def __init__(self, path: Path):
        _drop_torn_line(path)
        self._file = open(path, "ab", buffering=0)

    def append(self, events: Iterable[dict[str, Any]], *, is_durable: bool) -> None:
        """Writes all events or none; `is_durable` waits until the disk has them.

        Raises OSError where they could not be written, as on a full disk.
        """
        left = b"".join(map(_line, events))
        length = os.fstat(self._file.fileno()).st_size
        try:
            while left:
                left = left[self._file.write(left) :]
            if is_durable:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(length)
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read(path: Path) -> list[dict[str, Any]]:
    """All events of a journal, [] where there is none.

    Raises ValueError for a line in the middle that is damaged: what came after it
    cannot be trusted.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    events = []
    for number, line in enumerate(lines, start=1):
        event = _event(line)
        if event is None and number == len(lines):
            break
        if event is None:
            raise ValueError(
                f"{path}, line {number} of {len(lines)} is damaged; start a new "
                "workdir, or cut the file there to lose what came later"
            )
        events.append(event)
    return events


def _line(event: dict[str, Any]) -> bytes:
    text = json.dumps(event, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None = the line is damaged."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    is_whole = line.endswith(b"\n") and b"%08x" % zlib.crc32(text) == checksum
    return json.loads(text) if is_whole else None


def _drop_torn_line(path: Path) -> None:
    """Cuts off a damaged last line; the file is never written anew, nor empty."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and _event(lines[-1]) is None:
        os.truncate(path, sum(map(len, lines[:-1])))
