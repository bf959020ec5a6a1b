"""Episodes as an agent plays them, and what the learner says of their replies."""

import dataclasses
import functools
import hashlib
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx

from openwebrl_jax.core import types
from openwebrl_jax.models import head, qwen3_vl, sight
from openwebrl_jax.models import sizes as sizes_of
from openwebrl_jax.policy import features, prompt
from openwebrl_jax.tokens import chat, images, positions

PICTURES = 3  # at most, in one prompt
PICTURE_TOKENS = 6
TOKENS = 512  # the longest row


class Played(NamedTuple):
    """A turn: the prompt's ids by the design, the reply, and the PNGs shown."""

    ids: list[int]
    reply: types.Reply
    pngs: list[bytes]


class Player:
    """One episode, asked for a turn at a time.

    The prompt of turn t is system + remembered turns 0..t-K + seen turns t-K+1..t.
    """

    def __init__(self, png, newest, name="e", key=(1, 2, 3), text="step", first=0):
        """Turn t shows picture `first` + t."""
        self._png, self._first = png, first
        self._newest, self._name, self.key, self._text = newest, name, key, text
        self._system = types.Segment(role="system", text="You act.")
        self._users: list[types.Segment] = []
        self._shown: list[tuple[str, bytes]] = []
        self.played: list[Played] = []

    async def turn(self, sampler) -> Played:
        turn = len(self.played)
        screenshot = self._png(self._first + turn)
        sha = hashlib.sha256(screenshot).hexdigest()
        user = types.Segment(
            role="user",
            text=f"{self._text} {turn}\n{types.IMAGE_MARK}\n",
            image=sha,
            remembered_text=f"{self._text} {turn}\n",
        )
        self._shown = [*self._shown, (sha, screenshot)][-self._newest :]
        past = self._past()
        reply = await sampler.sample(
            types.SampleRequest(
                episode_id=self._name,
                turn=turn,
                segments=(self._system, *past, user),
                images=dict(self._shown),
                key=(*self.key, turn),
            )
        )
        ids = [i for segment in past for i in segment.ids]
        ids = [*reply.system_ids, *ids, *reply.seen_ids]
        self._system = dataclasses.replace(self._system, ids=reply.system_ids)
        self._users.append(user)
        self.played.append(Played(ids, reply, [png for _, png in self._shown]))
        return self.played[-1]

    def _past(self) -> list[types.Segment]:
        segments = []
        turns = zip(self._users, self.played, strict=True)
        for age, (user, (_, reply, _)) in zip(
            range(len(self.played), 0, -1), turns, strict=True
        ):
            if age >= self._newest:
                kept = types.Segment(role="user", text="", ids=reply.remembered_ids)
                segments.append(kept)
                continue
            spoken = reply.response_ids + reply.closing_ids
            segments += [
                dataclasses.replace(user, ids=reply.seen_ids),
                types.Segment(role="assistant", text="", ids=spoken),
            ]
        return segments


@functools.partial(jax.jit, static_argnums=(0, 2))
def _logps(graphdef, params, rule, pictures, ids_BL, positions_3BL, index_BL, loss_BN):
    model = nnx.merge(graphdef, params)
    before_BN, target_BN = head.at_positions(ids_BL, loss_BN)
    hidden_BND = qwen3_vl.forward(
        model,
        ids_BL,
        positions_3BL,
        sight.Sight(*np.zeros((3, *ids_BL.shape), np.int32)),
        index_BL,
        qwen3_vl.encode_images(model, *pictures),
        before_BN,
    )
    table_VD = qwen3_vl.table_VD(model)
    return head.token_logps(hidden_BND[0], table_VD, target_BN[0], rule)[0]


def learner_logps(folder, graphdef, params, rule, turn: Played) -> np.ndarray:
    """The learner's log-probs of a reply: one forward pass, no cache."""
    spec, sizes = images.load_spec(folder), sizes_of.load_sizes(folder)
    image_id = chat.load_chat(folder, history="full", open_think=True).image_id
    response_ids = turn.reply.response_ids
    ids = np.array([*turn.ids, *response_ids], np.int32)
    cut = [images.patches(spec, png) for png in turn.pngs]
    grids = [grid for _, grid in cut]
    places = positions.rope_positions(ids, grids, image_id=image_id, merge=spec.merge)
    offsets = range(0, PICTURE_TOKENS * len(cut), PICTURE_TOKENS)
    index = positions.image_index(ids, image_id, offsets)
    pictures = [prompt.Picture(patches_PN=p, grid=grid) for p, grid in cut]
    pictures += pictures[:1] * (PICTURES - len(pictures))
    fill = (0, TOKENS - len(ids))
    loss_N = np.arange(len(turn.ids), len(ids), dtype=np.int32)
    logp_N = _logps(
        graphdef,
        params,
        rule,
        features.pad(pictures, 4 * PICTURE_TOKENS, spec.merge, sizes.vision.table_side),
        np.pad(ids, fill)[None],
        np.pad(places, ((0, 0), fill))[:, None],
        np.pad(index, fill, constant_values=-1)[None],
        np.pad(loss_N, (0, 8 - len(loss_N)))[None],
    )
    return np.asarray(logp_N)[: len(loss_N)]
