from __future__ import annotations

import json
import os

import numpy as np
import torch

from penstock._lab.inside import log as logs
from penstock._lab.inside import page
from penstock._lab.inside.log import Log, plain


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_a_line_with_kind_process_and_time(tmp_path):
    log = Log(str(tmp_path / "log"))
    log.write("loader", key="a.py:1#0")
    (event,) = read(tmp_path / "log")
    assert (event["kind"], event["pid"], event["key"]) == ("loader", os.getpid(), "a.py:1#0")
    os.close(log._fd)


def test_what_was_held_is_written_with_the_next_event(tmp_path):
    log = Log(str(tmp_path / "log"))
    log.hold("sample", index=1)
    assert not (tmp_path / "log").exists()
    log.write("fetch")
    assert [event["kind"] for event in read(tmp_path / "log")] == ["sample", "fetch"]
    os.close(log._fd)


def test_a_descriptor_that_the_program_closed_and_uses_again_is_left_alone(tmp_path):
    log = Log(str(tmp_path / "log"))
    log.write("one")
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    os.dup2(other, log._fd)
    stolen = log._fd
    log.write("two")
    assert (tmp_path / "other").read_bytes() == b""
    assert [event["kind"] for event in read(tmp_path / "log")] == ["one", "two"]
    for fd in {other, stolen, log._fd}:
        os.close(fd)


def test_a_full_log_takes_only_what_is_essential(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MOST_BYTES", 100)
    log = Log(str(tmp_path / "log"))
    log.write("sample", text="x" * 200)
    log.write("sample")
    log.write("failed")
    assert [event["kind"] for event in read(tmp_path / "log")] == ["sample", "failed"]
    os.close(log._fd)


def test_a_log_that_cannot_be_written_troubles_nobody(tmp_path):
    Log(str(tmp_path / "missing" / "log")).write("sample")


def test_indices_of_all_sorts_can_be_said_in_json():
    values = [3, "a", (1, 2), np.int64(4), torch.tensor(5), {1}, slice(1, 2)]
    said = [plain(value) for value in values]
    assert said == [3, "a", [1, 2], 4, 5, [1], "slice(1, 2, None)"]


def test_a_page_says_what_its_process_has_in_hand(tmp_path):
    own = page.Page(str(tmp_path / "log"))
    own.put('["train.py:3#0",1,0,17]')
    assert page.read(str(tmp_path / "log")) == {os.getpid(): ("train.py:3#0", 1, 0, 17)}
    own.put("")
    assert page.read(str(tmp_path / "log")) == {}
    own._map.close()


def test_a_page_that_was_torn_is_passed_over(tmp_path):
    folder = tmp_path / "log.taking"
    folder.mkdir()
    (folder / "123").write_bytes(b"\x09\x00[1,2")
    assert page.read(str(tmp_path / "log")) == {}
