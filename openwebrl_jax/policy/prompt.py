"""A request becomes arrays: its ids, their positions, and pictures cut into patches.

In: a SampleRequest. Out: a Prompt, or a Failure for this request alone. `stack` lays
prompts side by side as the padded batch that `policy.generate` eats.
"""

import functools
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

    patches_PN: np.ndarray  # as many patches as there are, not padded
    grid: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request ready to be sampled. Made by `Reader`, eaten by `stack`."""

    ids_L: np.ndarray
    positions_3L: np.ndarray
    pictures: tuple[tuple[str, Picture], ...]  # by sha256, in the order of their pads
    key: tuple[int, int, int, int]
    is_greedy: bool
    system_ids: tuple[int, ...]
    seen_ids: tuple[int, ...]
    remembered_user_ids: tuple[int, ...]


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
        kept = max(4, _PATCH_BYTES // (4 * patches * spec.values))
        # Keyed by the PNG itself: Python keeps the hash of a bytes object.
        self._cut = functools.lru_cache(kept)(functools.partial(images.patches, spec))

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
        return Prompt(
            ids_L=ids_L,
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
    prompts: Sequence[Prompt],
    offsets: Mapping[str, int],
    *,
    rows: int,
    length: int,
    image_id: int,
) -> generate.Prompts:
    """Prompts as one padded batch; `offsets` is where an image's features begin."""
    fill = rows - len(prompts)
    batch = generate.Prompts(
        ids_BL=np.zeros((rows, length), np.int32),
        positions_3BL=np.zeros((3, rows, length), np.int32),
        image_index_BL=np.full((rows, length), -1, np.int32),
        length_B=np.array([*(len(p.ids_L) for p in prompts), *[1] * fill], np.int32),
        last_position_B=np.zeros(rows, np.int32),
        key_B4=np.zeros((rows, 4), np.uint32),
        is_greedy_B=np.array([*(p.is_greedy for p in prompts), *[False] * fill]),
        is_live_B=np.arange(rows) < len(prompts),
    )
    for row, prompt in enumerate(prompts):
        tokens = len(prompt.ids_L)
        batch.ids_BL[row, :tokens] = prompt.ids_L
        batch.positions_3BL[:, row, :tokens] = prompt.positions_3L
        batch.image_index_BL[row, :tokens] = positions.image_index(
            prompt.ids_L, image_id, [offsets[key] for key, _ in prompt.pictures]
        )
        batch.last_position_B[row] = prompt.positions_3L[0, -1]
        batch.key_B4[row] = [part % 2**32 for part in prompt.key]
    return batch
