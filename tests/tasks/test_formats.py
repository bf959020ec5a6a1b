import json

import pyarrow
import pyarrow.parquet
import pytest

from openwebrl_jax.core.types import Task
from openwebrl_jax.tasks import formats

GOOD = {"id": "a", "start_url": "https://a.test/x", "intent": "Buy milk"}


@pytest.fixture
def jsonl(tmp_path):
    """Writes lines (values or raw texts) to a file and loads it."""

    def load(*lines):
        path = tmp_path / "shop.jsonl"
        texts = [x if isinstance(x, str) else json.dumps(x) for x in lines]
        path.write_text("\n".join(texts))
        return formats.load(path, max_turns=15)

    return load


def test_a_line_is_a_task(jsonl):
    assert jsonl(GOOD) == (Task(**GOOD, max_turns=15, suite="shop"),)


def test_optional_fields_are_read_and_others_left_alone(jsonl):
    checks = [{"kind": "url", "matches": "/cart$"}]
    more = {"max_turns": 3, "tags": ["x"], "checks": checks, "split": "heldout"}
    (task,) = jsonl({**GOOD, **more, "id": 7, "difficulty": "hard", "hints": None})
    assert (task.id, task.max_turns, task.tags) == ("7", 3, ("x",))
    assert (task.checks, task.split, task.hints) == (tuple(checks), "heldout", "")


def test_blank_lines_and_a_byte_order_mark_do_no_harm(jsonl):
    assert len(jsonl("\ufeff" + json.dumps(GOOD), "", {**GOOD, "id": "b"}, "  ")) == 2


def without(field):
    return {name: value for name, value in GOOD.items() if name != field}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (without("start_url"), "field 'start_url' is missing"),
        ({**GOOD, "id": ""}, "field 'id': got '', wanted a text"),
        ({**GOOD, "id": True}, "field 'id': got True"),
        ({**GOOD, "intent": 3}, "field 'intent': got 3, wanted a text"),
        (
            {**GOOD, "start_url": "a.test"},
            "field 'start_url': got 'a.test', wanted a wh",
        ),
        ({**GOOD, "start_url": "file:///etc/passwd"}, "field 'start_url'"),
        ({**GOOD, "start_url": "http://[x/"}, "field 'start_url'"),
        ({**GOOD, "max_turns": 0}, "field 'max_turns': got 0"),
        ({**GOOD, "max_turns": 1.5}, "field 'max_turns': got 1.5"),
        ({**GOOD, "split": "test"}, "field 'split'"),
        ({**GOOD, "sites": ["b.test"]}, "field 'sites'"),
        ({**GOOD, "checks": [{"kind": "fact"}]}, "field 'checks'"),
        ({**GOOD, "checks": {"kind": "url"}}, "field 'checks'"),
        ({**GOOD, "tags": "x"}, "field 'tags'"),
        ("{", "no JSON"),
        ("[1]", "got list, wanted an object"),
        ("\udce4", "no JSON"),
    ],
)
def test_a_faulty_line_is_named_by_number_and_field(tmp_path, line, told):
    path = tmp_path / "shop.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_bytes(f"{json.dumps(GOOD)}\n\n{text}".encode(errors="surrogateescape"))
    with pytest.raises(ValueError) as refusal:
        formats.load(path, max_turns=15)
    assert str(refusal.value).startswith(f"{path}, line 3: {told}")


def test_all_faulty_lines_are_told_at_once_but_not_thousands(jsonl):
    with pytest.raises(ValueError) as refusal:
        jsonl(*(["{"] * 12), GOOD, GOOD)
    told = str(refusal.value)
    assert "line 10: no JSON" in told and "line 11" not in told
    assert told.endswith("and 3 more")


def test_an_id_may_stand_once(jsonl):
    with pytest.raises(ValueError, match="line 2: field 'id': 'a' stands in line 1"):
        jsonl(GOOD, GOOD)


@pytest.mark.parametrize(
    ("name", "told"),
    [("no.jsonl", "no such task file"), ("tasks.csv", "ends in .jsonl or .parquet")],
)
def test_other_files_are_refused(tmp_path, name, told):
    with pytest.raises(ValueError, match=told):
        formats.load(tmp_path / name, max_turns=15)


def test_a_file_without_tasks_is_refused(jsonl):
    with pytest.raises(ValueError, match="no task in it"):
        jsonl("")


def write_parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def upstream(task_id="pae/1", task="Find it", url="https://a.test/"):
    prompt = [{"role": "user", "content": "x"}]
    facts = {"task_id": task_id, "start_url": url, "task": task}
    return {"prompt": prompt, "metadata": facts}


def test_upstream_rows_are_tasks(tmp_path):
    path = write_parquet(tmp_path / "rl.parquet", [upstream(), upstream("pae/2")])
    first, second = formats.load(path, max_turns=15)
    assert (first.id, first.intent, first.start_url) == (
        "pae/1",
        "Find it",
        "https://a.test/",
    )
    assert (second.id, second.suite, second.max_turns) == ("pae/2", "rl", 15)


def test_upstream_metadata_may_be_json_text(tmp_path):
    row = {"metadata": json.dumps(upstream()["metadata"])}
    (task,) = formats.load(write_parquet(tmp_path / "a.parquet", [row]), max_turns=15)
    assert task.intent == "Find it"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (upstream(task=None), "row 2: field 'task': got None"),
        (upstream(url="ftp://a.test"), "row 2: field 'start_url'"),
        (upstream(task_id=""), "row 2: field 'task_id'"),
        ({"metadata": None}, "row 2: got NoneType"),
    ],
)
def test_a_faulty_row_is_named_by_number_and_upstreams_field(tmp_path, row, told):
    path = write_parquet(tmp_path / "rl.parquet", [upstream("pae/0"), row])
    with pytest.raises(ValueError) as refusal:
        formats.load(path, max_turns=15)
    assert str(refusal.value).startswith(f"{path}, {told}")


def test_a_parquet_file_must_be_one_of_upstreams(tmp_path):
    (tmp_path / "no.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(ValueError, match="no parquet file"):
        formats.load(tmp_path / "no.parquet", max_turns=15)
    path = write_parquet(tmp_path / "other.parquet", [{"text": "x"}])
    with pytest.raises(ValueError, match="no column 'metadata', got"):
        formats.load(path, max_turns=15)
