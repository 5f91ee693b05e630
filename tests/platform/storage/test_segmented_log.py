"""A growing log in a store: how little is sent, and what a reader finds after a kill between any two requests."""

import shutil
from pathlib import Path

import pytest
from store_requests import killed_before_change

from ebclab.errors import RunError
from ebclab.storage import mirror as mirrors
from ebclab.storage.mirror import Mirror
from ebclab.storage.object_store import RemoteFolder, Store
from ebclab.storage.segmented_log import assembled, grows, joined, new_part, taken_apart

PART = 200


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "PART_BYTES", PART)


def write(folder: Path, first: int, end: int) -> bytes:
    """Append lines to the log in ``folder`` and return all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "trials.jsonl").open("ab") as file:
        file.writelines(b'{"event": "note", "number": %d}\n' % number for number in range(first, end))
    return (folder / "trials.jsonl").read_bytes()


def read(remote: RemoteFolder) -> bytes:
    """Return the log as a process finds it that has nothing yet."""
    shutil.rmtree(remote.of("reader").cache, ignore_errors=True)
    Mirror(remote.of("reader")).pull()
    return (remote.of("reader").cache / "trials.jsonl").read_bytes()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes a store is sent, request by request."""
    noted, write = list[int](), Store.write
    monkeypatch.setattr(Store, "write", lambda *given: (noted.append(len(given[-1])), write(*given)))
    return noted


def test_what_is_taken_apart_is_what_was_joined_and_a_plain_log_stays_one() -> None:
    parts = [new_part("s/trials.jsonl", b"one\n"), new_part("s/trials.jsonl", b"two\n")]
    held = dict(zip([part.name for part in parts], [b"one\n", b"two\n"], strict=True))
    assert taken_apart(joined(parts, b"rest")) == (parts, b"rest")
    assert assembled(joined(parts, b"rest"), held.__getitem__) == b"one\ntwo\nrest"
    assert joined([], b'{"event"') == b'{"event"'
    assert taken_apart(b'{"event"') == ([], b'{"event"')
    assert parts[0].name != parts[1].name
    assert [grows(name) for name in ("trials.jsonl", "s/trials.jsonl", "metrics.jsonl")] == [True, True, False]


def test_a_long_log_is_sent_about_once_and_every_reader_sees_all_of_it(remote, there, sent):
    mirror, log = Mirror(remote), b""
    for number in range(200):
        log = write(remote.cache, number, number + 1)
        assert mirror.push() == 1
        if number % 3 == 0:  # new parts come at other intervals
            assert read(remote) == log
    assert mirror.push() == 0
    assert read(remote) == log
    assert max(sent) < 15 * PART  # the names of 30 parts, and the rest
    assert sum(sent) < 200 * len(log) / 4  # a whole log each time is half of 200 logs
    assert [path.name for path in there.iterdir() if not path.name.startswith(".")] == ["trials.jsonl"]


def test_a_log_that_an_older_version_sent_whole_is_read_and_goes_on_in_parts(remote, there, sent):
    old = write(there, 0, 100)
    mirror = Mirror(remote)
    mirror.pull()
    assert (remote.cache / "trials.jsonl").read_bytes() == old
    log = write(remote.cache, 100, 101)
    mirror.push()
    assert read(remote) == log
    before = sum(sent)
    log = write(remote.cache, 101, 102)
    mirror.push()
    assert read(remote) == log
    assert sum(sent) - before < PART


@pytest.mark.parametrize("requests", range(14))
def test_killed_at_any_request_a_reader_finds_the_log_of_one_push_and_the_next_process_goes_on(requests, remote):
    mirror, pushed = Mirror(remote), [b""]
    with killed_before_change(requests):
        for number in range(30):
            log = write(remote.cache, 3 * number, 3 * number + 3)
            mirror.push()
            pushed.append(log)
    assert requests // 2 < len(pushed) < 31
    if pushed[-1]:
        assert read(remote) == pushed[-1]  # what was pushed, all of it, and nothing of what was not
    other = remote.of("worker")
    follower = Mirror(other)
    follower.pull()
    log = write(other.cache, 1000, 1020)
    follower.push()
    assert read(remote) == log
    assert log.startswith(pushed[-1])


def test_what_a_process_that_lost_its_sweep_still_sends_never_mixes_with_what_its_successor_sends(remote):
    first, second = Mirror(remote), Mirror(remote.of("worker"))
    write(remote.cache, 0, 20)
    first.push()
    second.pull()
    for number in range(100, 140):
        write(remote.cache, number, number + 1)
        first.push()
        log = write(remote.of("worker").cache, -number, -number + 1)
        second.push()
        assert read(remote) == log


def test_a_part_that_somebody_deleted_is_said_and_nothing_is_made_up(remote: RemoteFolder, there: Path) -> None:
    write(remote.cache, 0, 20)
    Mirror(remote).push()
    shutil.rmtree(there / ".trials.jsonl")
    with pytest.raises(RunError, match=r"run/trials\.jsonl: a part of it is missing, got no \.trials\.jsonl/"):
        read(remote)


@pytest.mark.parametrize(
    "listed",
    [
        '[["../../../home/own/file", 3]]',
        '[[".trials.jsonl/0123456789abcdef0123456789abcdef/../../x", 3]]',
        '[[".trials.jsonl/0123456789abcdef0123456789abcdef", 0]]',
        '[[".trials.jsonl/0123456789abcdef0123456789abcdef"]]',
        '[[".trials.jsonl/0123456789abcdef0123456789abcdef", "3"]]',
        "7",
        "[7]",
        "[",
    ],
)
def test_a_log_whose_first_line_lists_files_elsewhere_is_damaged_and_they_are_not_read(listed, remote, there):
    there.mkdir()
    (there / "trials.jsonl").write_text('{"parts": ' + listed + "}\n")
    with pytest.raises(ValueError, match=r"parts|Expecting value"):
        taken_apart((there / "trials.jsonl").read_bytes())
    with pytest.raises(RunError, match=r"run/trials\.jsonl: damaged, "):
        read(remote)
