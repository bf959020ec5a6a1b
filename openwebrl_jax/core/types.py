"""The nouns of the project, each meaning one thing everywhere, and its Protocols.

Read top to bottom it is the way of the data: Task -> Observation -> Segment ->
Reply -> Turn -> Trajectory -> Reward -> Group -> Row -> Batch. Records are frozen,
slotted and keyword-only; fields that may be None say what None means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from openwebrl_jax.core.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do on a website. Made by `tasks`, eaten by `rollout.episode`.

    Example: Task(id="miniwob/click-test/7", intent="", start_url=
    "http://miniwob.test/miniwob/click-test.html", max_turns=2, setup="<script>",
    end_script="<script>", checks=({"kind": "fact", "name": "raw_reward",
    "equals": 1.0},), suite="miniwob", split="train", sites=("miniwob.test",)).
    """

    id: str
    intent: str  # "" = the setup script returns it, see `setup`
    start_url: str
    max_turns: int
    # How success is known without a judge, see rewards.outcome; empty = ask the judge.
    checks: tuple[Mapping[str, Any], ...] = ()
    # Page function run once after load, "" = none. It may return {"intent": str}.
    setup: str = ""
    # Page function run after every call, "" = none. It returns {"is_done": bool,
    # "facts": {...}} and must take away what the page shows about its own reward.
    end_script: str = ""
    # True = `setup` alone brings the loaded page back to a fresh start, so that one
    # context may serve many episodes of the same start_url.
    is_resettable: bool = False
    sites: tuple[str, ...] = ()  # local sites by fixed name, see tasks.sites
    hints: str = ""
    suite: str = ""
    split: Literal["train", "heldout", ""] = ""
    tags: tuple[str, ...] = ()
    # What a teacher needs to know, never shown to the policy, see rollout.oracle.
    oracle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One browser tab as the policy is told of it."""

    url: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the browser shows. Made by `web.env`, eaten by `agent` and `rollout`.

    Example: Observation(screenshot=b"\\x89PNG...", width_px=160, height_px=224,
    tabs=(Tab(url="http://miniwob.test/...", title="Click Test"),), active_tab=0).
    """

    screenshot: bytes  # one PNG; this very blob feeds sampler, learner and viewer
    width_px: int
    height_px: int
    tabs: tuple[Tab, ...]
    active_tab: int
    is_stale: bool = False  # True = the page did not paint; this is the last good one


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call as the model wrote it; coordinates are 0..1000 on each axis.

    Example: ToolCall(name="click", arguments={"point_2d": [480, 520]}).
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What one call did. Made by `web`, eaten by `agent.history`; one line.

    Example: Feedback(tool="click", state="no_effect", text="clicked <button> 'OK':
    nothing changed"). Text from pages is escaped: never a control token.
    """

    tool: str
    state: Literal["effect", "no_effect", "failed"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What `Env.step` returns for the calls of one reply."""

    observation: Observation
    feedback: tuple[Feedback, ...]  # one per call that was run
    cause: Cause | None  # DONE or PAGE_DONE; None = the episode goes on
    answer: str  # of `done`, exactly as the model wrote it; "" = none
    facts: Mapping[str, Any]  # of the task's end_script, the first that was final
    asked_s: float  # browser time that the policy itself asked for (wait, goto)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a prompt, tokenised alone. Made by `agent.history`.

    `text` is what the model sees now, `remembered_text` what later turns keep of it.
    Where an image stands, `text` holds the mark `IMAGE_MARK` once and `image` its
    sha256. `ids` are the known ids of an earlier turn's piece: such a segment is
    never encoded again (empty = not tokenised yet).

    Example: Segment(role="user", text="click OK\\n<|image|>\\n", image="9f2c...",
    remembered_text="click OK\\n").
    """

    role: Literal["system", "user", "assistant"]
    text: str
    image: str | None = None  # None = no image in it
    remembered_text: str = ""
    ids: tuple[int, ...] = ()


IMAGE_MARK = "<|image|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRule:
    """The distribution that is sampled from, the same for sampler and learner.

    log-prob of token t = log_softmax(logits / temperature with the forbidden ids at
    -inf)[t]. There is no top-p, top-k or penalty: they would make the two disagree.
    """

    temperature: float
    forbidden_ids: tuple[int, ...]  # image and video pads and other markers


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One turn to sample. Made by `rollout.episode`, eaten by a `Sampler`.

    `segments` are the whole prompt in order; earlier turns come with their ids.
    `key` is (seed, group ordinal, slot, turn): the token stream of an episode does
    not depend on what else runs.
    """

    episode_id: str
    turn: int
    segments: tuple[Segment, ...]
    images: Mapping[str, bytes]  # sha256 -> PNG, for each image in the segments
    key: tuple[int, int, int, int]
    is_greedy: bool = False  # True = argmax; log-probs are still those of the rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a Sampler answers. A sampler that is not ours leaves all ids empty.

    `response_ids` are the sampled ids, the end-of-turn id included iff it was
    sampled, the first `thought_ids` of them the thought with its closing tag;
    `closing_ids` the fixed ids that end the turn after them, never sampled
    and never learnt. `logprobs` has one value <= 0 for each response id; `seen_ids`
    are the ids of the last user segment (image pads and the opening of the reply
    included), `remembered_ids` what later turns keep of this turn: its user segment
    without the image, then the remembered reply and its fixed end.
    """

    text: str
    system_ids: tuple[int, ...] = ()
    seen_ids: tuple[int, ...] = ()
    remembered_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    thought_ids: int = 0
    closing_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    version: int = -1  # -1 = no sampler of ours
    is_truncated: bool = False  # True = the token limit cut it
    queued_s: float = 0.0  # waited before decoding began

    def __post_init__(self):
        if len(self.response_ids) != len(self.logprobs):
            raise ValueError(
                f"got {len(self.logprobs)} log-probs for {len(self.response_ids)} "
                "ids; a reply needs one for each, never filled with zeros"
            )
        if any(not value <= 0.0 for value in self.logprobs):
            raise ValueError("a log-prob is above 0 or not a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One observation and what the policy made of it. Made by `agent.single`.

    `seen_ids`, `remembered_ids`, `response_ids`, `logprobs` and `version` are those
    of the Reply: all there when a sampler of ours spoke, else all empty (RL rows
    refuse such turns). No turn keeps its whole prompt: storage is linear in turns.
    """

    observation: Observation
    segments: tuple[Segment, ...]  # this turn's user segment
    reply_text: str
    thought: str
    calls: tuple[ToolCall, ...]
    feedback: tuple[Feedback, ...] = ()
    parse_error: str = ""  # "" = the reply could be read
    leniencies: tuple[str, ...] = ()  # how it departs from the wire format
    seen_ids: tuple[int, ...] = ()
    remembered_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    closing_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    version: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds that an episode spent waiting, by whom it waited for."""

    env_s: float = 0.0
    asked_s: float = 0.0  # the part of env_s that the policy asked for
    sampler_queue_s: float = 0.0
    sampler_s: float = 0.0
    judge_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One finished episode. Made by `rollout.episode`; may have zero turns.

    Example: two turns (click, done) on a live site end with cause DONE and an
    answer; a Chromium that died at reset ends with no turns, BROWSER_CRASH.
    """

    task: Task
    system_segment: Segment
    system_ids: tuple[int, ...]
    turns: tuple[Turn, ...]
    final: Observation | None  # None = the browser never showed a page
    answer: str
    facts: Mapping[str, Any]
    cause: Cause
    detail: str = ""  # free text for humans, never read by code
    waits: Waits = Waits()
    rule: SamplingRule | None = None  # None = no sampler of ours spoke
    history_mode: str = "full"
    context_screenshots: int = 1
    grammar: int = 1  # version of the grammar that read the replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The worth of a trajectory, final when its Group closes.

    Example: Reward(value=1.0, parts={"outcome": 1.0}, is_valid=True). Validity is not
    reward: a void slot has is_valid False and its value means nothing.
    """

    value: float
    parts: Mapping[str, float]
    is_valid: bool
    cause: Cause | None = None  # set where judging itself failed, else None
    # What judging took: replies, unparseable, calls, tokens, usd; see policy.remote.
    spent: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One finished attempt of a group's task, as the ledger keeps it.

    `trajectory` is the content hash of the stored trajectory, never the thing itself.
    """

    index: int
    trajectory: str
    reward: Reward
    cause: Cause
    versions: tuple[int, ...]  # of its turns
    turns: int
    format: Mapping[str, int] = field(default_factory=dict)  # see rollout.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """G slots of one task. Made by `rollout.ledger`, eaten by `batch.rows`.

    `advantages` stand beside `slots`, by position; a void slot has none (None).
    Example: rewards (1, 0, void) -> advantages (0.707, -0.707, None).
    """

    ordinal: int
    task: Task
    slots: tuple[Slot, ...]
    advantages: tuple[float | None, ...]


class Run(NamedTuple):
    """Tokens of a Row that follow each other: a prompt, a trunk, or a branch of it.

    A token sees the trunk's tokens [0, limit) of its Row, then its own run up to
    itself. Example: Run(first=0) is all of a plain prompt; Run(first=120, limit=80) is
    a branch that begins at token 120 and goes on where the trunk's first 80 end.
    """

    first: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training sequence. Made by `batch.rows` or `batch.demos`, eaten by collate.

    Index t of `loss_weight` and `old_logp` belongs to token t given what it sees.
    `loss_weight` is 0 where nothing is learnt; its meaning and sum are fixed by the
    weighting mode, see batch.rows.
    """

    ids: np.ndarray  # [L] int32
    loss_weight: np.ndarray  # [L] float32
    old_logp: np.ndarray  # [L] float32, 0 where loss_weight is 0
    advantage: float
    images: tuple[bytes, ...]  # PNGs in the order of their pads in `ids`
    source: str  # trajectory hash and turn, or demonstration and ability
    runs: tuple[Run, ...] = (Run(),)  # in the order in which they stand


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows as arrays of static shape. Made by `batch.collate`, eaten by learn.update.

    B lines that hold some Rows each, L tokens, N loss positions a line, I images (each
    different one once), P patches an image, C values a patch. Padding: segment -1,
    weight 0, image index -1, patch_count 0.
    """

    ids_BL: np.ndarray  # int32
    positions_3BL: np.ndarray  # int32: time, height, width
    segment_BL: np.ndarray  # int32, which Row of its line a token is of, -1 = padding
    sight_3BL: np.ndarray  # int32: start and limit of the trunk seen, start of the run
    image_index_BL: np.ndarray  # int32 into the merged features [I * P / 4], -1 = text
    patches_IPC: np.ndarray  # float32, merge-block-major
    patch_count_I: np.ndarray  # int32, patches that are there; 0 = no image
    patch_position_2IP: np.ndarray  # int32: row and column of the patch in its image
    table_index_4IP: np.ndarray  # int32, four corners in the learned position table
    table_weight_4IP: np.ndarray  # float32, their bilinear weights
    loss_index_BN: np.ndarray  # int32, positions t >= 1 that carry loss; 0 = unused
    loss_weight_BN: np.ndarray  # float32, 0 = unused
    old_logp_BN: np.ndarray  # float32
    advantage_BN: np.ndarray  # float32


class Env(Protocol):
    """A browser context with one task in it. Errors are `Failure`s with a cause."""

    async def reset(self, task: Task) -> tuple[Task, Observation]:
        """Opens the task; the Task that comes back has the intent filled in."""
        ...

    async def step(self, calls: tuple[ToolCall, ...]) -> Step:
        """Runs calls in order and stops after `done` or the task's own end."""
        ...

    async def facts(self, script: str, url: str = "") -> Any:
        """Runs a page function for a checker or an oracle; bounded in time.

        `url` = on that page, opened beside the others; "" = on the one in view.
        """
        ...

    async def close(self) -> None: ...


class Sampler(Protocol):
    """Speaks for the policy."""

    async def sample(self, request: SampleRequest) -> Reply: ...

    async def release(self, episode_id: str) -> None:
        """The episode has ended; what is kept for it may go."""
        ...


class Complete(Protocol):
    """A chat endpoint: OpenAI-style messages in, text out (`policy.remote`)."""

    async def __call__(self, messages: list[dict[str, Any]], *, seed: int) -> str: ...
