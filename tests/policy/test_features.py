"""Each different screenshot is encoded once for one version of the weights."""

import jax.numpy as jnp
import numpy as np

from openwebrl_jax.policy import features, generate
from openwebrl_jax.policy.prompt import Picture

PATCHES, VALUES, MERGE = 8, 3, 2


def make_store(places):
    """A store whose feature of an image is its first value; and its calls' sizes."""
    sizes = []

    def encode(params, store, images, place_I):
        sizes.append(len(place_I))
        store = np.array(store)
        store[place_I] = params * np.asarray(images.patches_IPN)[:, 0, 0]
        return store

    others = dict.fromkeys(("init_cache", "prefill", "copy", "decode"), encode)
    programs = generate.Programs(
        init_store=lambda params: np.zeros(places), encode=encode, **others
    )
    store = features.FeatureStore(
        programs,
        places=places,
        patches=PATCHES,
        merge=MERGE,
        table_side=4,
    )
    return store, sizes


def weight(value):
    return jnp.float32(value)


def pictures(*numbers):
    cut = np.ones((4, VALUES), np.float32)
    return {str(n): Picture(patches_PN=cut * n, grid=(2, 2)) for n in numbers}


def values(store, offsets):
    """What the store holds for each key."""
    features_an_image = PATCHES // MERGE**2
    return {key: store.arrays[at // features_an_image] for key, at in offsets.items()}


def test_only_what_is_new_is_encoded_in_calls_of_few_sizes():
    store, sizes = make_store(places=32)
    offsets = store.offsets(weight(1.0), pictures(*range(1, 24)))
    assert sizes == [16, 4, 1, 1, 1]
    assert values(store, offsets) == {str(n): n for n in range(1, 24)}
    store.offsets(weight(1.0), pictures(3, 7, 30))
    assert sizes[5:] == [1]


def test_the_least_recently_used_make_room():
    store, sizes = make_store(places=3)
    store.offsets(weight(1.0), pictures(1, 2, 3))
    store.offsets(weight(1.0), pictures(1))
    offsets = store.offsets(weight(1.0), pictures(4, 1))  # 2 goes, it is the oldest
    assert values(store, offsets) == {"4": 4, "1": 1}
    del sizes[:]
    store.offsets(weight(1.0), pictures(1, 3, 4))
    assert sizes == []
    assert values(store, store.offsets(weight(1.0), pictures(5, 6, 7))) == {
        "5": 5,
        "6": 6,
        "7": 7,
    }


def test_new_weights_forget_all():
    store, sizes = make_store(places=4)
    store.offsets(weight(1.0), pictures(1, 2))
    store.forget()
    offsets = store.offsets(weight(10.0), pictures(2, 1))
    assert values(store, offsets) == {"1": 10, "2": 20}
    assert sizes == [1, 1, 1, 1]


def test_an_image_smaller_than_the_viewport_is_padded():
    (small,) = pictures(5).values()
    images = features.pad([small], PATCHES, MERGE, 4)
    assert images.count_I.tolist() == [4]
    assert images.patches_IPN[0, :4].min() == 5 and images.patches_IPN[0, 4:].max() == 0
    np.testing.assert_allclose(images.table_weight_4IP.sum(0)[0], [1] * 4 + [0] * 4)
