"""Steps and resets of BrowserGym, timed; run by `benchmarks.web` in its own Python.

In: {"chromium", "miniwob", "delays", "episodes"} as one JSON argument, where an
episode is [page, seed, [[x, y], ...]]. Out, as the last line: {"steps_s", "resets_s"}.
"""

import json
import os
import sys
import time

asked = json.loads(sys.argv[1])
os.environ["MINIWOB_URL"] = asked["miniwob"]

import browsergym.miniwob  # noqa: E402, F401  (registers the pages)
import gymnasium  # noqa: E402
from browsergym.core.action.highlevel import HighLevelActionSet  # noqa: E402

fast = {} if asked["delays"] else {"slow_mo": 0, "pre_observation_delay": 0.0}
envs, steps_s, resets_s = {}, [], []
for page, seed, points in asked["episodes"]:
    if page not in envs:
        envs[page] = gymnasium.make(
            f"browsergym/miniwob.{page}",
            action_mapping=HighLevelActionSet(["coord"]).to_python_code,
            pw_chromium_kwargs={"executable_path": asked["chromium"]},
            **fast,
        )
        envs[page].reset(seed=seed)  # the first one starts the browser
    env = envs[page]
    began = time.perf_counter()
    env.reset(seed=seed)
    resets_s.append(time.perf_counter() - began)
    for x, y in points:
        began = time.perf_counter()
        env.step(f"mouse_click({x}, {y})")
        steps_s.append(time.perf_counter() - began)
for env in envs.values():
    env.close()
print(json.dumps({"steps_s": steps_s, "resets_s": resets_s}))
