"""Sites on tape: what an episode was served is recorded, and later served again.

A recording is a HAR of Playwright's in a zip, one for each episode, written when its
context closes: `FOLDER/HASH OF START_URL/TIME.zip`. A replay is served from all
recordings of its start_url, the newest first; what none of them holds fails and is
counted, and no network is reached. The same request gets the same answer each time, so
a page that asks again for what has changed meanwhile is not replayed faithfully.
"""

import asyncio
import hashlib
import json
import os
import pathlib
import time
import uuid
import zipfile
from typing import Any

from absl import logging

from openwebrl_jax.core.causes import Cause, Failure

_PART = ".part.zip"
_INDEX = "har.har"  # the list of requests, in each zip


class Tape:
    """The tape of one episode; without config.tape it does nothing.

    Its order: made, `options` for the context, `attach` to it, `keep` once it closed.
    """

    def __init__(self, config: Any, start_url: str):
        self.is_replay = config.tape == "replay"
        self.unmatched = 0  # requests that no recording answers
        self._is_record = config.tape == "record"
        folder = _folder(config.tape_folder, start_url)
        self._path = folder / f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.zip"
        self._part = self._path.with_suffix(_PART)
        self._recordings = _recordings(folder) if self.is_replay else []
        if self.is_replay and not self._recordings:
            detail = f"{start_url}: there is no recording of it in {folder}"
            raise Failure(Cause.REFUSED, detail)

    def options(self) -> dict[str, Any]:
        """What a new context needs to be told."""
        return {"record_har_path": self._part} if self._is_record else {}

    async def attach(self, context) -> None:
        """Serves a new context from the recordings; the last one added is asked first.

        A request goes from one to the next, and at the end to `_miss`.
        """
        if not self.is_replay:
            return
        await context.route("**/*", self._miss)
        await context.route_web_socket("**/*", self._miss_socket)
        for path in self._recordings:
            await context.route_from_har(path, not_found="fallback")

    async def keep(self) -> None:
        """Takes over what Playwright wrote; a recording is whole or not there."""
        if self._is_record and self._part.exists():
            await asyncio.to_thread(_keep, self._part, self._path)

    def facts(self) -> dict[str, int]:
        """What a replay adds to the facts of a step."""
        return {"tape_unmatched": self.unmatched} if self.is_replay else {}

    async def _miss(self, route) -> None:
        self._count(route.request.url)
        await route.abort("internetdisconnected")

    async def _miss_socket(self, socket) -> None:
        self._count(socket.url)
        await socket.close()

    def _count(self, url: str) -> None:
        self.unmatched += 1
        logging.log_first_n(logging.WARNING, "not on tape: %s", 20, url)


def _folder(root: str, start_url: str) -> pathlib.Path:
    return pathlib.Path(root) / hashlib.sha256(start_url.encode()).hexdigest()[:16]


def _recordings(folder: pathlib.Path) -> list[pathlib.Path]:
    """The oldest first."""
    return sorted(p for p in folder.glob("*.zip") if not p.name.endswith(_PART))


def _keep(part: pathlib.Path, path: pathlib.Path) -> None:
    """Drops what was never answered: a replay would leave such requests hanging."""
    whole = path.with_suffix(".whole")
    try:
        with zipfile.ZipFile(part) as old, zipfile.ZipFile(whole, "w") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename == _INDEX:
                    data = _answered(data)
                new.writestr(entry.filename, data, zipfile.ZIP_DEFLATED)
        os.replace(whole, path)
    except zipfile.BadZipFile as error:
        logging.warning("a recording is lost, %s: %s", part, error)
    finally:
        whole.unlink(missing_ok=True)
        part.unlink(missing_ok=True)


def _answered(data: bytes) -> bytes:
    har = json.loads(data)
    entries = har["log"]["entries"]
    har["log"]["entries"] = [it for it in entries if it["response"]["status"] > 0]
    return json.dumps(har).encode()
