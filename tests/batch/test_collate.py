import dataclasses
import io
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from configs import common
from openwebrl_jax.batch import collate, rows
from openwebrl_jax.core import checks, types
from openwebrl_jax.tokens import images, positions
from tests.batch import toys

PAD = 5  # the id of an image pad
SIDE = 8
SPEC = toys.SPEC
SHAPE = collate.Lattice(
    rows=4, lengths=(8, 16, 32), loss_tokens=6, images=(1, 2, 4), patches=(8, 16)
)


def png(shade, width=16, height=16):
    """A grey page; 16 x 16 pixels make 16 patches and 4 tokens."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), (shade, shade, 0)).save(out, format="PNG")
    return out.getvalue()


def make_row(ids, live, images=(), advantage=0.5, name="t:0"):
    weight = np.zeros(len(ids), np.float32)
    weight[list(live)] = [0.25 + 0.1 * n for n in range(len(live))]
    return types.Row(
        ids=np.array(ids, np.int32),
        loss_weight=weight,
        old_logp=np.where(weight > 0, -weight, 0.0).astype(np.float32),
        advantage=advantage,
        images=tuple(images),
        source=name,
    )


def call(made, shape=SHAPE):
    lines = [[row] for row in made]
    return collate.collate(lines, shape, SPEC, image_id=PAD, table_side=SIDE)


def test_two_rows_that_share_an_image_by_hand():
    page = png(10)
    first = make_row([1, PAD, PAD, PAD, PAD, 2, 3], [5, 6], [page])
    second = make_row(
        [1, PAD, PAD, 9, PAD, PAD, PAD, PAD, 4], [8], [png(20, 16, 8), page], -2.0
    )
    batch = call([first, second])
    assert batch.ids_BL.shape == (4, 16)
    assert batch.ids_BL[0].tolist() == [1, 5, 5, 5, 5, 2, 3] + [0] * 9
    assert batch.segment_BL[0].tolist() == [0] * 7 + [-1] * 9
    assert (batch.segment_BL[2:] == -1).all()
    # the page is image 0, the half page image 1; 16 patches = 4 tokens a slot
    assert batch.image_index_BL[0, :7].tolist() == [-1, 0, 1, 2, 3, -1, -1]
    assert batch.image_index_BL[1, :9].tolist() == [-1, 4, 5, -1, 0, 1, 2, 3, -1]
    assert batch.patch_count_I.tolist() == [16, 8]
    assert batch.patches_IPC.shape == (2, 16, SPEC.values)
    np.testing.assert_array_equal(batch.patches_IPC[0], images.patches(SPEC, page)[0])
    assert not batch.patches_IPC[1, 8:].any()
    want = positions.rope_positions(first.ids, [(4, 4)], image_id=PAD, merge=2)
    np.testing.assert_array_equal(batch.positions_3BL[:, 0, :7], want)
    assert batch.loss_index_BN[0].tolist() == [5, 6, 0, 0, 0, 0]
    np.testing.assert_allclose(batch.loss_weight_BN[0, :3], [0.25, 0.35, 0.0])
    np.testing.assert_allclose(batch.old_logp_BN[0, :3], [-0.25, -0.35, 0.0])
    assert batch.advantage_BN[1].tolist() == [-2.0, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(batch.table_weight_4IP[:, 0].sum(0), 1.0, rtol=1e-6)


def test_dtypes_are_those_of_the_record():
    batch = call([make_row([1, 2], [1])])
    for field in dataclasses.fields(types.Batch):
        is_float = field.name.startswith(("patches", "table_weight", "loss_weight"))
        is_float |= field.name.startswith(("old_logp", "advantage"))
        dtype = getattr(batch, field.name).dtype
        assert dtype == (np.float32 if is_float else np.int32), field.name


def test_no_rows_and_no_images_take_the_smallest_buckets():
    batch = call([])
    assert batch.ids_BL.shape == (4, 8)
    assert batch.patches_IPC.shape[:2] == (1, 8)
    assert not batch.loss_weight_BN.any()
    assert (batch.segment_BL == -1).all() and (batch.image_index_BL == -1).all()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([make_row(range(10, 43), [1])], "33 tokens in a row.*config.batch.lengths"),
        ([make_row(range(10, 20), range(1, 8))], "7 loss tokens.*batch.loss_tokens"),
        ([make_row([1, 2], [1])] * 5, "5 lines for a batch of 4"),
        (
            [make_row([1] + [PAD] * 8, [], [png(1, 32, 16)])],
            "32 patches.*config.web.width_px",
        ),
        ([make_row([1, 2], [0])], "first token"),
        ([make_row([1, PAD], [1], [])], "0 grids for 1 images"),
        ([make_row([1, PAD, 3], [2], [png(0)])], "has 1 pads"),
    ],
)
def test_what_does_not_fit_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        call(made)


def test_too_many_images_are_refused():
    made = [
        make_row([1] + ([PAD] * 2 + [9]) * 2, [6], [png(i, 16, 8), png(i + 99, 16, 8)])
        for i in range(3)
    ]
    with pytest.raises(ValueError, match="6 images, the largest bucket holds 4"):
        call(made)


@given(st.lists(st.tuples(st.integers(2, 30), st.integers(0, 2)), max_size=11))
def test_micro_batches_hold_every_row_once_and_in_few_shapes(sizes):
    made = [
        make_row(
            [1, PAD, PAD, *range(100, 100 + length)] if shade else range(9, 9 + length),
            [length - 1],
            [png(shade, 16, 8)] if shade else [],
            name=f"t{i}:0",
        )
        for i, (length, shade) in enumerate(sizes)
        if length + 3 <= 32
    ]
    parts = collate.split(made, SHAPE)
    packed = [row.source for part in parts for line in part for row in line]
    assert sorted(packed) == sorted(row.source for row in made)
    batches = [
        collate.collate(part, SHAPE, SPEC, image_id=PAD, table_side=SIDE)
        for part in parts
    ]
    total = sum(float(batch.loss_weight_BN.sum()) for batch in batches)
    assert total == pytest.approx(0.25 * len(made), rel=1e-5)
    for batch in batches:
        assert batch.ids_BL.shape[1] in SHAPE.lengths
        assert batch.patches_IPC.shape[0] in SHAPE.images
        used = batch.patch_count_I[batch.patch_count_I > 0]
        assert len(used) <= 2  # two different pages at most, each once


def test_packed_rows_and_a_tree_by_hand():
    page, half = png(10), png(20, 16, 8)
    tree = make_row(
        [1, 2, 3, PAD, PAD, 4, 6, PAD, PAD, PAD, PAD, 6, 7], [6, 12], [half, page]
    )
    runs = (types.Run(), types.Run(first=3, limit=1), types.Run(first=7, limit=3))
    tree = dataclasses.replace(tree, runs=runs)
    alone = make_row([8, PAD, PAD, 9], [3], [half], advantage=-1.0)
    batch = collate.collate([[tree, alone]], SHAPE, SPEC, image_id=PAD, table_side=SIDE)
    assert batch.ids_BL.shape == (4, 32)
    assert batch.segment_BL[0].tolist() == [0] * 13 + [1] * 4 + [-1] * 15
    start, limit, own = batch.sight_3BL[:, 0, :18].tolist()
    assert start == [0] * 13 + [13] * 4 + [0]
    assert limit == [0] * 3 + [1] * 4 + [3] * 6 + [13] * 4 + [0]
    assert own == [0] * 3 + [3] * 4 + [7] * 6 + [13] * 4 + [17]
    # a branch goes on where the trunk that it sees ends: at 1, and at 3
    time, height, width = batch.positions_3BL[:, 0, :17].tolist()
    assert time == [0, 1, 2, 1, 1, 3, 4, 3, 3, 3, 3, 5, 6, 0, 1, 1, 3]
    assert height == [0, 1, 2, 1, 1, 3, 4, 3, 3, 4, 4, 5, 6, 0, 1, 1, 3]
    assert width == [0, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 5, 6, 0, 1, 2, 3]
    assert batch.image_index_BL[0, [3, 4, 7, 10, 14, 15]].tolist() == [0, 1, 4, 7, 0, 1]
    assert batch.loss_index_BN[0].tolist() == [6, 12, 16, 0, 0, 0]
    assert batch.advantage_BN[0].tolist() == [0.5, 0.5, -1.0, 0, 0, 0]
    assert collate.loss_slices([tree, alone]) == [slice(0, 2), slice(2, 3)]


def test_loss_on_the_first_token_of_a_branch_is_refused():
    row = make_row([1, 2, 3, 4], [2])
    row = dataclasses.replace(row, runs=(types.Run(), types.Run(first=2, limit=1)))
    with pytest.raises(ValueError, match="first token"):
        call([row])


@pytest.mark.parametrize(("tokens", "live"), [(33, 1), (32, 7)])
def test_a_row_that_fits_no_batch_is_refused_by_name(tokens, live):
    collate.check(make_row(range(32), range(1, 7)), SHAPE)
    with pytest.raises(ValueError, match="^t:0.* raise config.batch."):
        collate.check(make_row(range(tokens), range(1, live + 1)), SHAPE)


@pytest.mark.parametrize("horizon", [30, 15, 5])
def test_random_trajectories_waste_little_and_meet_few_shapes(horizon):
    """R48: the default lattice and page with all lengths an eighth of what they are."""
    config = common.get_config().batch
    config.lengths = tuple(length // 8 for length in config.lengths)
    config.loss_tokens //= 8
    lattice = collate.make_lattice(config, (20, 31), 2)
    draw = np.random.default_rng(horizon)
    made = [
        row
        for number in range(300)
        for row in rows.tree_rows(
            make_trajectory(draw, horizon, image=155),
            f"t{number}",
            lattice.lengths[-1],
            lattice.loss_tokens,
        )
    ]

    def split(epoch):
        parts = [
            part
            for step in rows.minibatches(made, 256, seed=0, iteration=1, epoch=epoch)
            for part in collate.split(step, lattice)
        ]
        return parts, [collate.buckets(part, lattice) for part in parts]

    parts, shapes = split(epoch=0)
    assert set(split(epoch=1)[1]) == set(shapes)
    pages = [
        len({p for line in part for r in line for p in r.images}) for part in parts
    ]
    assert len(set(shapes)) <= 12 < len(lattice.lengths) * len(lattice.images)
    tokens = sum(len(row.ids) for row in made)
    assert tokens == sum(len(r.ids) for part in parts for line in part for r in line)
    assert tokens > 0.7 * lattice.rows * sum(length for length, _ in shapes)
    assert sum(pages) > 0.7 * sum(slots for _, slots in shapes)


def make_trajectory(draw, horizon, image):
    """Turns of random text, a page of their own each, K of 1 to 3."""

    def turn(t):
        text, reply = draw.integers(10, 90), draw.integers(4, 75)
        return dataclasses.replace(
            toys.make_turn(t),
            observation=dataclasses.replace(
                toys.make_turn(t).observation, screenshot=draw.bytes(8)
            ),
            seen_ids=(1,) * int(text + image),
            remembered_ids=(1,) * int(text + reply),
            response_ids=(1,) * int(reply),
            logprobs=(-1.0,) * int(reply),
        )

    turns = [turn(t) for t in range(draw.integers(1, horizon + 1))]
    made = toys.make_trajectory(turns, newest=int(draw.integers(1, 4)))
    return dataclasses.replace(made, system_ids=(1,) * int(draw.integers(190, 370)))


@given(
    st.lists(st.sampled_from([(1, 1), (27, 1003), (4000, 300), (64, 48)]), max_size=4),
    st.integers(1, 3),
    st.integers(20, 1500),
)
@settings(max_examples=15)
def test_images_are_whole_whatever_their_sizes_and_the_limit(sizes, newest, longest):
    """R19: a row has as many pads as its images have tokens, or it is refused."""
    counts = [images.token_count(SPEC, *size) for size in sizes]
    turns = [
        dataclasses.replace(
            toys.make_turn(t),
            observation=dataclasses.replace(
                toys.make_turn(t).observation, screenshot=png(t, *size)
            ),
            seen_ids=(1, *[PAD] * count, 2),
        )
        for t, (size, count) in enumerate(zip(sizes, counts, strict=True))
    ]
    trajectory = toys.make_trajectory(turns, newest=newest)
    shape = collate.Lattice(
        rows=1,
        lengths=(longest,),
        loss_tokens=64,
        images=(len(sizes) or 1,),
        patches=(65_536 // 16,),
    )
    alone = rows.turn_rows(trajectory, "t")
    for row in [*alone, *rows.tree_rows(trajectory, "t", longest)]:
        pads = np.count_nonzero(row.ids == PAD)
        tokens = [images.token_count(SPEC, *images.size_of(p)) for p in row.images]
        assert pads == sum(tokens)
        if len(row.ids) > longest:
            with pytest.raises(ValueError, match="config.batch.lengths"):
                call([row], shape)
            continue
        batch = call([row], shape)
        checks.check_batch(batch, image_id=PAD)
        assert batch.patch_count_I.sum() == 4 * sum(
            images.token_count(SPEC, *images.size_of(p)) for p in set(row.images)
        )


def test_make_lattice_from_config():
    config = SimpleNamespace(rows=4, lengths=(128, 192, 320), loss_tokens=32)
    lattice = collate.make_lattice(config, (14, 10), 2)
    assert lattice == collate.Lattice(
        rows=4,
        lengths=(128, 192, 320),
        loss_tokens=32,
        images=(4, 5, 7, 9, 14, 18, 27, 36),  # nine of 35 tokens fit into a line of 320
        patches=(140,),
    )
    config.rows, config.lengths = 1, (8,)
    assert collate.make_lattice(config, (4, 4), 2).images == (1, 2)
