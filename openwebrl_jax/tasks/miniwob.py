"""MiniWoB++ as tasks: a page and a seed are one problem.

The pages come from the package `miniwob`, served by `tasks.sites` under a fixed name.
Their own harness (START cover, timer, reward display, click marks) is taken away when
an episode starts: a click on the cover would begin a new problem and clear the flag
that this one has ended, and the display would tell the policy its reward. Success is
raw reward 1: no time discount, no partial credit.

A page that was loaded anew in mid-episode (reload, back, its own address) is a page
without our seed, where an easier problem might be started: nothing on it counts.
"""

import difflib
from typing import Literal

from openwebrl_jax.core.types import Task
from openwebrl_jax.tasks import miniwob_oracles, sites

SUITE = "miniwob"

# Run by the clock: what they show depends on when one looks, not on the seed alone.
EXCLUDED = ("chase-circle", "hover-shape", "moving-items", "simon-says", "stock-market")

FOLDER = sites.miniwob_folder() / "miniwob"
NAMES = tuple(
    sorted(page.stem for page in FOLDER.glob("*.html") if page.stem not in EXCLUDED)
)

# `core` is the harness that all pages share. Fields keep what the last episode typed
# where a page does not clear them itself.
_SETUP = """() => {
  if (!core.cover_div) core.startEpisode();
  if (!window.episode) {
    const style = document.createElement('style');
    style.textContent = 'html, body { overflow: clip }';
    document.head.append(style);
    document.body.removeEventListener('click', core.canvasDrawClick);
    for (const id of ['sync-task-cover', 'reward-display', 'click-canvas'])
      document.getElementById(id).remove();
    for (const part of ['startEpisode', 'countdownTimer', 'canvasClear'])
      core[part] = () => {};
    core.endEpisode = (reward) => {
      if (WOB_DONE_GLOBAL) return;
      WOB_RAW_REWARD_GLOBAL = reward;
      WOB_DONE_GLOBAL = true;
    };
  }
  window.episode = 'TASK_ID';
  document.querySelectorAll('#area input, #area textarea').forEach((field) => {
    field.value = field.defaultValue;
    field.checked = field.defaultChecked;
  });
  Math.seedrandom(SEED);
  core.startEpisodeReal();
  clearTimeout(core.EP_TIMER);  // the horizon is counted in turns
  document.activeElement?.blur();
  window.scrollTo(0, 0);
  const said = core.getUtterance();
  return { intent: typeof said === 'string' ? said : said.utterance };
}"""

_END = """() => {
  for (const id of ['sync-task-cover', 'reward-display', 'click-canvas'])
    document.getElementById(id)?.remove();
  const ended = window.episode === 'TASK_ID' && WOB_DONE_GLOBAL;
  return {
    is_done: ended,
    facts: { raw_reward: ended ? WOB_RAW_REWARD_GLOBAL : null },
  };
}"""


def make_task(
    name: str,
    seed: int,
    *,
    max_turns: int,
    split: Literal["train", "heldout", ""] = "",
) -> Task:
    """One problem of one page, the same whenever and wherever it is opened."""
    check_name(name)
    task_id = f"{SUITE}/{name}/{seed}"
    return Task(
        id=task_id,
        intent="",
        start_url=f"http://{sites.MINIWOB}/miniwob/{name}.html",
        max_turns=max_turns,
        checks=({"kind": "fact", "name": "raw_reward", "equals": 1.0},),
        setup=_SETUP.replace("TASK_ID", task_id).replace("SEED", str(seed)),
        end_script=_END.replace("TASK_ID", task_id),
        is_resettable=name in miniwob_oracles.SCRIPTS,
        sites=(sites.MINIWOB,),
        suite=SUITE,
        split=split,
        tags=(name,),
        oracle=miniwob_oracles.oracle(name),
    )


def check_name(name: str) -> None:
    """Refuses a page that is not there, or whose seed does not make its problem."""
    if name in EXCLUDED:
        raise ValueError(
            f"MiniWoB task {name!r} runs by the clock, so that a seed is no problem of "
            "its own; take it out of config.tasks.names"
        )
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=3) or NAMES[:3]
        raise ValueError(
            f"unknown MiniWoB task {name!r} in config.tasks.names; did you mean "
            f"{', '.join(near)}? There are {len(NAMES)}"
        )
