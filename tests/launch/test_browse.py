"""A session through a pipe on a MiniWoB page in real Chromium, then its replay."""

import json
import subprocess
import sys

import pytest
from PIL import Image

COMMAND = [sys.executable, "-m", "launch.browse", "--config=configs/grpo_short.py:tiny"]
PLACE = (
    "() => { const r = document.querySelector('#subbtn').getBoundingClientRect();"
    " return [r.x + r.width / 2, r.y + r.height / 2]; }"
)


class Session:
    """The command at the other end of two pipes."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [*COMMAND, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, start: str) -> str:
        """The next line that begins so."""
        for line in self.process.stdout:
            if line.startswith(start):
                return line.strip()
        raise AssertionError(self.process.stderr.read())

    def say(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


def size(path) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


@pytest.mark.browser
def test_a_session_is_told_drawn_stored_and_replayed(tmp_path, chromium):
    out = tmp_path / "out"
    flags = (f"--out={out}", f"--config.web.chromium={chromium}")
    session = Session("--task=miniwob/click-test/7", *flags)
    assert "Click the button" in session.until("task")
    assert "miniwob.test" in session.until("tab 0*")
    session.say("clik 1 2")
    assert "did you mean 'click'" in session.until("refused")
    session.say("help click")
    session.until("click X Y [clicks] [button]")
    session.say("click 0 1000")
    session.until("no_effect  clicked")
    session.say(f"facts {PLACE}")
    x, y = json.loads(session.until("["))
    point_2d = [1000 * x / 160, 1000 * y / 224]
    session.say(json.dumps({"name": "click", "arguments": {"point_2d": point_2d}}))
    assert "Click Me" in session.until("effect")
    assert session.until("ended") == 'ended   page_done {"raw_reward": 1}'
    stored = session.until("stored").split()[1]
    session.process.communicate()
    assert session.process.returncode == 0
    assert size(out / "latest.png") == (162, 226)
    assert {path.name for path in out.glob("0*.png")} == {"0001.png", "0002.png"}

    again = Session(f"--replay={stored}", *flags)
    told, errors = again.process.communicate()
    assert again.process.returncode == 0, errors
    assert told.count("\n  = ") == 2 and "≠" not in told
    assert told.splitlines()[-1] == "0 lines of feedback differ"


def test_a_wrong_command_is_one_line(tmp_path):
    command = [*COMMAND, f"--out={tmp_path}", "--task=miniwob/click-tset/7"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0)
    assert "did you mean click-test" in done.stderr


@pytest.mark.browser
def test_a_page_that_cannot_be_opened_is_one_line(tmp_path, chromium):
    done = subprocess.run(
        [
            *COMMAND,
            f"--out={tmp_path}",
            f"--config.web.chromium={chromium}",
            "--url=http://10.0.0.1/",
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0), done.stderr
    assert "refused" in done.stderr
