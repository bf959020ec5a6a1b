"""A request becomes arrays: its ids, their positions, and pictures cut into patches.

In: a SampleRequest. Out: a Prompt, or a Failure for this request alone. `stack` lays
pieces of prompts side by side as the padded chunk that `policy.generate` eats.

L tokens of a prompt, I its pictures, B rows, P patches, N values a patch.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from openwebrl_jax.core import types
from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.policy import generate
from openwebrl_jax.tokens import chat as chats
from openwebrl_jax.tokens import images, positions

_PATCH_BYTES = 1 << 28  # of patches kept, since the slots of a group see one page


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A screenshot ready for the vision tower."""

    patches_PN: np.ndarray  # bytes, as many patches as there are, not padded
    grid: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request ready to be sampled. Made by `Reader`, eaten by `policy.speaker`."""

    episode_id: str
    ids_L: np.ndarray
    positions_3L: np.ndarray
    image_L: np.ndarray  # which of the pictures a token is of, -1 = text
    pad_L: np.ndarray  # which token of its picture
    identity_L: np.ndarray  # int64: the id; for a pad a number of picture and pad
    pictures: tuple[tuple[str, Picture], ...]  # by sha256, in the order of their pads
    key: tuple[int, int, int, int]
    is_greedy: bool
    system_ids: tuple[int, ...]
    seen_ids: tuple[int, ...]
    remembered_user_ids: tuple[int, ...]

    def pictures_of(self, piece: slice) -> dict[str, Picture]:
        """The pictures that have a pad in this piece."""
        shown = np.unique(self.image_L[piece])
        return dict(self.pictures[i] for i in shown if i >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens of a prompt for a row of the cache. Made by `policy.speaker`."""

    prompt: Prompt
    row: int
    tokens: slice


class Reader:
    """Reads requests; keeps the patches of recent screenshots.

    `prompt_tokens` is the longest prompt, `patches` the most in one image, and
    `pictures` the most images in one prompt.
    """

    def __init__(
        self,
        chat: chats.Chat,
        spec: images.ImageSpec,
        *,
        prompt_tokens: int,
        patches: int,
        pictures: int,
    ):
        self._chat = chat
        self._spec = spec
        self._prompt_tokens = prompt_tokens
        self._patches = patches
        self._pictures = pictures
        kept = max(4, _PATCH_BYTES // (patches * spec.values))
        # Keyed by the PNG itself: Python keeps the hash of a bytes object.
        self._cut = functools.lru_cache(kept)(functools.partial(images.cut, spec))

    def read(self, request: types.SampleRequest) -> Prompt:
        """The request as a prompt; a Failure says why it cannot be one."""
        try:
            prompt = self._read(request)
        except (OSError, SyntaxError, ValueError) as error:  # pillow raises all three
            raise Failure(Cause.SAMPLER_PROTOCOL, str(error)) from error
        if len(prompt.ids_L) > self._prompt_tokens:
            raise Failure(
                Cause.CONTEXT_FULL if request.turn > 0 else Cause.PROMPT_TOO_LONG,
                f"the prompt has {len(prompt.ids_L)} tokens, {self._prompt_tokens} fit",
            )
        return prompt

    def _read(self, request: types.SampleRequest) -> Prompt:
        keys = [s.image for s in request.segments if s.image is not None]
        self._check_images(request, keys)
        counts = {
            key: images.token_count(self._spec, *images.size_of(request.images[key]))
            for key in keys
        }
        first, *_, last = request.segments
        system_ids = first.ids or self._chat.system(first)
        seen_ids, remembered_user_ids = self._chat.user(
            last, counts.get(last.image or "", 0)
        )
        segments = (
            replace(first, ids=system_ids),
            *request.segments[1:-1],
            replace(last, ids=seen_ids),
        )
        ids_L = np.array(self._chat.prompt(segments, counts.__getitem__), np.int32)
        pictures = tuple((key, self._picture(request.images[key])) for key in keys)
        image_L, pad_L = self._pads(ids_L, len(keys))
        return Prompt(
            episode_id=request.episode_id,
            ids_L=ids_L,
            image_L=image_L,
            pad_L=pad_L,
            identity_L=_identity(ids_L, image_L, pad_L, keys),
            positions_3L=positions.rope_positions(
                ids_L,
                [picture.grid for _, picture in pictures],
                image_id=self._chat.image_id,
                merge=self._spec.merge,
            ),
            pictures=pictures,
            key=request.key,
            is_greedy=request.is_greedy,
            system_ids=system_ids,
            seen_ids=seen_ids,
            remembered_user_ids=remembered_user_ids,
        )

    def _pads(self, ids_L: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """For each token which picture it is of, -1 = text, and which of its pads."""
        most = self._patches // self._spec.merge**2
        index_L = positions.image_index(
            ids_L, self._chat.image_id, range(0, count * most, most)
        )
        return index_L // most, index_L % most

    def _check_images(self, request: types.SampleRequest, keys: Sequence[str]) -> None:
        if missing := [key for key in keys if key not in request.images]:
            raise ValueError(f"the request lacks the image {missing[0]}")
        if len(keys) > self._pictures:
            raise ValueError(
                f"the prompt has {len(keys)} images, the sampler was made for "
                f"{self._pictures}; set config.agent.context_screenshots"
            )

    def _picture(self, png: bytes) -> Picture:
        patches_PN, grid = self._cut(png)
        if len(patches_PN) > self._patches:
            raise ValueError(
                f"an image of {grid} patches is larger than the {self._patches} of "
                "the viewport; set config.web.width_px and height_px"
            )
        return Picture(patches_PN=patches_PN, grid=grid)


def stack(
    pieces: Sequence[Piece], offsets: Mapping[str, int], *, rows: int, tokens: int
) -> generate.Chunk:
    """Pieces as one padded chunk; `offsets` is where a picture's features begin."""
    chunk = generate.Chunk(
        row_B=np.zeros(rows, np.int32),
        start_B=np.zeros(rows, np.int32),
        ids_BL=np.zeros((rows, tokens), np.int32),
        positions_3BL=np.zeros((3, rows, tokens), np.int32),
        image_index_BL=np.full((rows, tokens), -1, np.int32),
        count=np.int32(len(pieces)),
    )
    for b, piece in enumerate(pieces):
        prompt, there = piece.prompt, slice(piece.tokens.stop - piece.tokens.start)
        chunk.row_B[b] = piece.row
        chunk.start_B[b] = piece.tokens.start
        chunk.ids_BL[b, there] = prompt.ids_L[piece.tokens]
        chunk.positions_3BL[:, b, there] = prompt.positions_3L[:, piece.tokens]
        begin_I = np.array([*(offsets.get(key, 0) for key, _ in prompt.pictures), 0])
        image_L, pad_L = prompt.image_L[piece.tokens], prompt.pad_L[piece.tokens]
        index_L = np.where(image_L >= 0, begin_I[image_L] + pad_L, -1)
        chunk.image_index_BL[b, there] = index_L
    return chunk


def _identity(
    ids_L: np.ndarray, image_L: np.ndarray, pad_L: np.ndarray, keys: Sequence[str]
) -> np.ndarray:
    """What makes a token the same as another: its id, or its picture and pad."""
    digests = (hashlib.sha256(key.encode()).digest()[:7] for key in keys)
    picture_I = np.array([*(int.from_bytes(d, "big") for d in digests), 0], np.int64)
    return np.where(image_L >= 0, -1 - picture_I[image_L] - pad_L, ids_L)
