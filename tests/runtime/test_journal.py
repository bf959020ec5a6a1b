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


def test_what_could_not_be_written_whole_is_not_there(path):
    """A full disk: all events of a call or none."""
    book = journal.Journal(path)
    book.append(EVENTS[:1], is_durable=True)
    whole, book._file = book._file, Full(book._file, 50)
    with pytest.raises(OSError, match="full"):
        book.append(EVENTS[1:4], is_durable=False)
    assert journal.read(path) == EVENTS[:1]
    book._file = whole
    book.append(EVENTS[4:], is_durable=True)
    book.close()
    assert journal.read(path) == [EVENTS[0], EVENTS[4]]


class Full:
    """A file on a disk that has room for some bytes."""

    def __init__(self, file, room):
        self.room, self.fileno, self.truncate = room, file.fileno, file.truncate
        self._write = file.write

    def write(self, data):
        if not self.room:
            raise OSError("full")
        written = self._write(data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize(
    "tail", [b"\xff\xfe\x00", b"\x00" * 40, b"0badc0de {}\n", b"\xff\n"]
)
def test_a_damaged_last_line_is_cut_before_anything_follows_it(path, tail):
    """R37: whatever a power cut left there, and with its end of line or without."""
    write(path, EVENTS)
    with open(path, "ab") as file:
        file.write(tail)
    assert journal.read(path) == EVENTS
    write(path, [{"kind": "restarted"}])
    assert journal.read(path) == [*EVENTS, {"kind": "restarted"}]


def test_cutting_a_torn_line_never_takes_the_whole_lines_away(path, monkeypatch):
    """R37: killed in the middle of it, nothing that was whole is gone."""
    write(path, EVENTS)
    with open(path, "ab") as file:
        file.write(b"torn")

    def die(path, data):
        open(path, "wb").close()  # a file that is written anew is empty at first
        raise OSError

    monkeypatch.setattr(type(path), "write_bytes", die)
    journal.Journal(path).close()
    assert journal.read(path) == EVENTS
