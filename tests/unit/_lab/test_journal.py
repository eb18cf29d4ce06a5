"""The log, read while it grows."""

from __future__ import annotations

import json
from pathlib import Path

from penstock._lab.journal import Journal, create, parse


def line(kind, pid=5, at=1.0, **fields):
    return json.dumps({"kind": kind, "pid": pid, "at": at, **fields}).encode() + b"\n"


def journal_of(tmp_path, *parts):
    path = create(str(tmp_path))
    journal = Journal(path)
    for part in parts:
        with Path(path).open("ab") as file:
            file.write(part)
        journal.read()
    return journal


def test_a_line_may_come_in_two_parts(tmp_path):
    whole = line("batch")
    journal = journal_of(tmp_path, whole[:10], whole[10:])
    assert journal.batches == 1
    assert len(journal.events()) == 1


def test_a_torn_line_is_left_out(tmp_path):
    journal = journal_of(tmp_path, line("batch"), b'{"kind": "batch", "pi\n', line("batch", at=2.0), b'{"kin')
    assert [event["at"] for event in journal.events()] == [1.0, 2.0]


def test_events_of_several_processes_are_put_in_order_of_time(tmp_path):
    journal = journal_of(tmp_path, line("next", pid=1, at=3.0), line("next", pid=2, at=2.0))
    assert [event["pid"] for event in journal.events()] == [2, 1]


def test_it_knows_who_iterates_and_with_which_workers(tmp_path):
    journal = journal_of(
        tmp_path,
        line("iter", loader="a", number=0),
        line("started", loader="a", number=0, workers=[7, 8]),
    )
    assert journal.consumers == {5}
    assert journal.workers == {7: ("a", 0), 8: ("a", 1)}
    assert journal.crews == {(5, "a", 0): (7, 8)}


def test_a_pass_that_ended_has_no_crew(tmp_path):
    journal = journal_of(
        tmp_path, line("started", loader="a", number=0, workers=[7]), line("ended", loader="a", number=0)
    )
    assert journal.crews == {}


def test_it_hears_that_it_is_enough(tmp_path):
    assert journal_of(tmp_path).why_enough is None
    assert journal_of(tmp_path, line("enough", why="2 epochs")).why_enough == "2 epochs"


def test_it_hears_of_a_batch_that_could_not_be_sent(tmp_path):
    assert not journal_of(tmp_path, line("failed", phase="sample")).has_lost_batch
    assert journal_of(tmp_path, line("failed", phase="feeder")).has_lost_batch


def test_nothing_new_is_no_news(tmp_path):
    journal = journal_of(tmp_path, line("next"))
    assert not journal.read()


def test_a_log_that_was_removed_does_no_harm(tmp_path):
    assert not Journal(str(tmp_path / "gone")).read()


def test_lines_that_are_none_of_ours():
    for text in (b"", b"[]", b"{}", b'{"kind": 3}', b'{"kind": "x", "pid": "1", "at": 2}'):
        assert parse(text) is None


def test_it_knows_who_waits_for_a_batch(tmp_path):
    start = [line("iter", pid=pid, loader="a") for pid in (1, 2, 3)]
    journal = journal_of(tmp_path, *start, line("next", pid=2), line("batch", pid=3), line("warned", pid=3))
    assert journal.waiting == {1, 2}


def test_it_knows_every_process_that_has_reported(tmp_path):
    assert journal_of(tmp_path, line("process", pid=1), line("process", pid=2)).pids == {1, 2}


def test_an_event_that_makes_no_sense_does_no_harm(tmp_path):
    journal = journal_of(tmp_path, line("started", workers=3), line("ended", number=[]), line("batch"))
    assert journal.batches == 1
