import json

import pytest

from configs import common
from openwebrl_jax.tasks import source


@pytest.fixture
def pages():
    """A config of two MiniWoB pages with small ranges of seeds."""
    config = common.get_config().tasks
    config.suite = "miniwob"
    config.names = ("click-test", "click-tab")
    config.train_seeds = (0, 100)
    config.heldout_seeds = (100, 110)
    config.max_turns = 2
    return config


@pytest.fixture
def shop(tmp_path):
    """A config of a file with tasks 0 to 9, the last of them held out."""
    path = tmp_path / "shop.jsonl"
    lines = [{"id": n, "start_url": "http://a.test/", "intent": "x"} for n in range(10)]
    lines[9]["split"] = "heldout"
    path.write_text("\n".join(map(json.dumps, lines)))
    config = common.get_config().tasks
    config.path = str(path)
    return config


def ids(made, count):
    return [made.task_at(n).id for n in range(count)]


def test_pages_take_turns_and_seeds_stay_in_their_range(pages):
    made = source.make_source(pages, 0, "train")
    tasks = [made.task_at(n) for n in range(made.length)]
    assert [task.tags for task in tasks[:3]] == [
        ("click-test",),
        ("click-tab",),
        ("click-test",),
    ]
    assert len({task.id for task in tasks}) == made.length == 200
    assert {task.split for task in tasks} == {"train"}
    assert made.task_at(made.length).id == tasks[0].id


def test_what_is_held_out_is_never_trained_on(pages):
    train, heldout = (source.make_source(pages, 5, s) for s in ("train", "heldout"))
    assert not set(ids(train, 400)) & set(ids(heldout, 40))
    assert ids(heldout, 2) == ["miniwob/click-test/100", "miniwob/click-tab/100"]


@pytest.mark.parametrize("suite", ["pages", "shop"])
def test_a_task_depends_on_seed_and_ordinal_alone(suite, request):
    config = request.getfixturevalue(suite)
    made = source.make_source(config, 1, "train")
    backwards = [made.task_at(n) for n in reversed(range(30))]
    again = source.make_source(config, 1, "train")
    assert backwards[::-1] == [again.task_at(n) for n in range(30)]
    other = source.make_source(config, 2, "train")
    assert ids(other, 30) != ids(made, 30)


def test_a_file_is_shuffled_anew_each_epoch_and_nothing_is_left_out(shop):
    made = source.make_source(shop, 0, "train")
    epochs = [ids(made, 27)[start : start + 9] for start in (0, 9, 18)]
    assert made.length == 9
    assert [sorted(epoch) for epoch in epochs] == [[str(n) for n in range(9)]] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_heldout_part_of_a_file_is_what_says_so(shop):
    assert ids(source.make_source(shop, 0, "heldout"), 2) == ["9", "9"]


def test_a_file_without_splits_is_used_for_both_and_evaluated_in_order(shop, tmp_path):
    lines = (tmp_path / "shop.jsonl").read_text().splitlines()[:9]
    (tmp_path / "shop.jsonl").write_text("\n".join(lines))
    heldout = source.make_source(shop, 0, "heldout")
    assert ids(heldout, 10) == [*map(str, range(9)), "0"]
    assert source.make_source(shop, 0, "train").length == 9


def test_a_split_that_is_empty_is_refused(shop, tmp_path):
    line = {"id": "a", "start_url": "http://a.test/", "intent": "x", "split": "train"}
    (tmp_path / "shop.jsonl").write_text(json.dumps(line))
    with pytest.raises(ValueError, match="no task of the split 'heldout'"):
        source.make_source(shop, 0, "heldout")


def test_the_digest_tells_other_data(pages, shop, tmp_path):
    def digest(config):
        return source.make_source(config, 0, "train").digest

    before = digest(pages), digest(shop)
    assert before == (digest(pages), digest(shop))
    pages.names = ("click-test",)
    with (tmp_path / "shop.jsonl").open("a") as file:
        file.write("\n")
    assert digest(pages) != before[0]
    assert digest(shop) != before[1]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("suite", "webarena", "config.tasks.suite='webarena'"),
        ("names", (), "config.tasks.names is empty"),
        ("names", ("click-tst",), "did you mean click-test"),
        ("names", ("chase-circle",), "runs by the clock"),
        ("train_seeds", (5, 5), r"train_seeds=\(5, 5\) holds no seed"),
        ("train_seeds", (0, 101), "overlaps train_seeds"),
    ],
)
def test_a_source_that_cannot_be_is_refused(pages, field, value, told):
    pages[field] = value
    with pytest.raises(ValueError, match=told):
        source.make_source(pages, 0, "train")
