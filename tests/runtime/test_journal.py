import pytest

from openwebrl_jax.runtime import journal

EVENTS = [{"kind": "opened", "ordinal": n, "text": "é\n"} for n in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def write(path, events):
    book = journal.Journal(path)
    book.append(events, is_durable=True)
    book.close()


def test_no_file_is_no_events(path):
    assert journal.read(path) == []


def test_events_come_back_across_processes_in_order(path):
    write(path, EVENTS[:2])
    write(path, EVENTS[2:])
    assert journal.read(path) == EVENTS


def test_any_cut_loses_the_torn_event_and_no_other(path):
    write(path, EVENTS)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        ended = whole[:cut].count(b"\n")
        assert journal.read(path) == EVENTS[:ended]
        write(path, [{"kind": "restarted"}])
        assert journal.read(path) == [*EVENTS[:ended], {"kind": "restarted"}]


def test_damage_in_the_middle_is_refused_with_its_line(path):
    write(path, EVENTS)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"opened", b"opemed")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(ValueError, match="line 3 of 5 is damaged"):
        journal.read(path)
