"""The learner as an actor: it reads rows, makes versions, and keeps checkpoints.

One process, one mesh, one update for both stages. `sft` and `grpo` are generators of
(step, metrics): the driver writes what they yield.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import ray

from openwebrl_jax.batch import feed, rows
from openwebrl_jax.core import types
from openwebrl_jax.learn import checkpoint, folder, loop, optim, state, update
from openwebrl_jax.models import mesh
from openwebrl_jax.rollout import store
