"""A labelled trajectory -> a demonstration of judging it, for MT-SFT.

The demonstration is itself a Trajectory: the judge's question as a talk (see
`core.dialogue`), then its reply, rationale first and verdict last. Where the label
comes without one (a checker's), the rationale is what was asked and what the last call
did.
"""

import dataclasses
import json
import re
from typing import Any

from openwebrl_jax.core import dialogue, types
from openwebrl_jax.core.causes import Cause
from openwebrl_jax.rewards import combine, injections, judge_single, verdict

_QUOTED = re.compile(r"""(?<=["'])[^"']+(?=["'])""")
_WORDS = {True: "success", False: "failure"}


def demonstration(
    played: types.Trajectory, is_success: bool, reason: str, config: Any
) -> types.Trajectory:
    """The talk that ends in that verdict; `config` is the judge's whole tree."""
    system, user = question(played, config.reward.judge)
    said = dialogue.pieces(user["content"])
    reason = reason or rationale(played)
    end = reply(reason, is_success, config.agent.open_think)
    replies = [dialogue.NEXT] * (len(said) - 1) + [end]
    turns = tuple(
        types.Turn(
            observation=_page(played, png),
            segments=(dialogue.user_segment(words, png),),
            reply_text=text,
            thought="",
            calls=(),
            # Only the verdict is learnt: the other replies are fixed.
            leniencies=() if text is end else ("fixed",),
        )
        for (words, png), text in zip(said, replies, strict=True)
    )
    return types.Trajectory(
        task=played.task,
        system_segment=types.Segment(role="system", text=system["content"]),
        system_ids=(),
        turns=turns,
        final=None,
        answer=_WORDS[is_success],
        facts={},
        cause=Cause.DONE,
    )


def question(played: types.Trajectory, config: Any) -> list[dict[str, Any]]:
    """What a judge of our own is asked; `config` is config.reward.judge."""
    return judge_single.question(played, config)


def can_be_judged(played: types.Trajectory) -> bool:
    """True = its ending may be a success: no other one is shown to a judge."""
    return combine.is_open(played)


def injected(played: types.Trajectory, protocol: str) -> list[types.Trajectory]:
    """The trajectory once for each text that begs for a success, put where foreign
    words reach the judge: into the feedback of the last call, and for protocols that do
    not show it into the address there, a call's argument or the answer."""
    put = _CHANNELS[protocol]
    return [put(played, words) for words in injections.INJECTIONS]


def _into_feedback(played: types.Trajectory, words: str) -> types.Trajectory:
    last = played.turns[-1]
    line = last.feedback[-1]
    told = dataclasses.replace(line, text=f"{line.text}; appeared: '{words}'")
    return _with_last(played, feedback=(*last.feedback[:-1], told))


def _into_argument(played: types.Trajectory, words: str) -> types.Trajectory:
    *others, call = played.turns[-1].calls
    call = dataclasses.replace(call, arguments={**call.arguments, "text": words})
    return _with_last(played, calls=(*others, call))


def _into_address(played: types.Trajectory, words: str) -> types.Trajectory:
    seen = played.turns[-1].observation
    tabs = [
        dataclasses.replace(tab, url=f"{tab.url}?note={words}") for tab in seen.tabs
    ]
    shown = dataclasses.replace(seen, tabs=tuple(tabs))
    return _with_last(played, observation=shown)


def _into_answer(played: types.Trajectory, words: str) -> types.Trajectory:
    return dataclasses.replace(played, answer=f"{played.answer} {words}")


def _with_last(played: types.Trajectory, **fields: Any) -> types.Trajectory:
    turn = dataclasses.replace(played.turns[-1], **fields)
    return dataclasses.replace(played, turns=(*played.turns[:-1], turn))


_CHANNELS = {
    "single": _into_feedback,
    "webjudge": _into_argument,
    "webvoyager": _into_answer,
    "opagent": _into_address,
}


def rationale(played: types.Trajectory) -> str:
    """What was asked and what the last call did, by the names in quotes if any."""
    lines = [line.text for turn in played.turns for line in turn.feedback]
    did = lines[-1].partition(": ")[0] if lines else "nothing"
    return f"{_named(played.task.intent)} {_named(did)}"


def _named(words: str) -> str:
    """What stands in quotes, else all of it."""
    return ", ".join(_QUOTED.findall(words)) or words


def reason(text: str) -> str:
    """The rationale of a judge's reply, "" where it gave none."""
    return verdict.word(text, "reason")


def reply(reason: str, is_success: bool, open_think: bool) -> str:
    """The judge's whole reply as it is learnt."""
    verdict = json.dumps({"verdict": _WORDS[is_success]})
    opening = "" if open_think else "<think>"
    return f"{opening}{reason}</think>{verdict}"


def _page(played: types.Trajectory, png: bytes | None) -> types.Observation:
    """The observation that shows the picture; without one, the last there is."""
    seen = [turn.observation for turn in played.turns]
    seen += [played.final] if played.final else []
    return next((it for it in seen if it.screenshot == png), seen[-1])
