"""Features of screenshots on the device, each different one encoded once.

In: pictures by content hash. Out: where in the store their features begin. What is
kept belongs to one version of the weights and is forgotten with it. The store has one
shape whatever a chunk holds, so that images multiply no shapes of prompts.

Letters: I images, P patches, N bytes a patch.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from openwebrl_jax.policy import generate, weights
from openwebrl_jax.policy.prompt import Picture
from openwebrl_jax.tokens import positions

# Sizes of a call, greatest first: any number of images is a sum of few of them, so
# nothing is padded. Attention within an image is dense, which bounds the patches.
_CALL_SIZES = (16, 4, 1)
_CALL_PATCHES = 8192


class FeatureStore:
    """Owns the features' arrays, which each encoding donates; for one thread."""

    def __init__(
        self,
        programs: generate.Programs,
        *,
        places: int,
        patches: int,
        merge: int,
        table_side: int,
    ):
        self._programs = programs
        self._places = places
        self._patches = patches
        self._merge = merge
        self._table_side = table_side
        most = max(1, min(places, _CALL_PATCHES // patches))
        self._sizes = [size for size in _CALL_SIZES if size <= most]
        self._place: collections.OrderedDict[str, int] = collections.OrderedDict()
        self.arrays: Any = None  # None = nothing was encoded yet by these weights

    def forget(self) -> None:
        """Empties the store, for new weights or after a program that failed."""
        self._place.clear()
        self.arrays = None

    def offsets(self, params: Any, pictures: Mapping[str, Picture]) -> dict[str, int]:
        """Encodes what is new and says where the features of each picture begin.

        There may be at most as many pictures as places; the ones that were used least
        recently make room.
        """
        if self.arrays is None:
            self.arrays = jax.device_put(
                self._programs.init_store(params), weights.beside(params)
            )
        for key in pictures.keys() & self._place.keys():
            self._place.move_to_end(key)
        new = [key for key in pictures if key not in self._place]
        for key in new:
            is_full = len(self._place) == self._places
            free = self._place.popitem(last=False)[1] if is_full else len(self._place)
            self._place[key] = free
        while new:
            size = next(n for n in self._sizes if n <= len(new))
            self._encode(params, {key: pictures[key] for key in new[:size]})
            new = new[size:]
        features = self._patches // self._merge**2
        return {key: self._place[key] * features for key in pictures}

    def warm_up(self, params: Any, values: int) -> None:
        """Compiles each size of call, for patches of so many values."""
        nothing = Picture(patches_PN=np.zeros((0, values), np.uint8), grid=(0, 0))
        for size in self._sizes:
            self.forget()
            self.offsets(params, {str(n): nothing for n in range(size)})
        self.forget()

    def _encode(self, params: Any, pictures: Mapping[str, Picture]) -> None:
        place_I = np.array([self._place[key] for key in pictures], np.int32)
        images = pad([*pictures.values()], self._patches, self._merge, self._table_side)
        with weights.host_inputs():
            self.arrays = self._programs.encode(params, self.arrays, images, place_I)


def pad(
    pictures: Sequence[Picture], patches: int, merge: int, table_side: int
) -> generate.Images:
    """Pictures side by side, each padded to so many patches."""
    count, like_PN = len(pictures), pictures[0].patches_PN
    images = generate.Images(
        patches_IPN=np.zeros((count, patches, like_PN.shape[1]), like_PN.dtype),
        count_I=np.array([len(p.patches_PN) for p in pictures], np.int32),
        position_2IP=np.zeros((2, count, patches), np.int32),
        table_index_4IP=np.zeros((4, count, patches), np.int32),
        table_weight_4IP=np.zeros((4, count, patches), np.float32),
    )
    for i, picture in enumerate(pictures):
        there = slice(len(picture.patches_PN))
        plan = positions.vision_plan(*picture.grid, merge, table_side)
        images.patches_IPN[i, there] = picture.patches_PN
        images.position_2IP[:, i, there] = plan[0]
        images.table_index_4IP[:, i, there] = plan[1]
        images.table_weight_4IP[:, i, there] = plan[2]
    return images
