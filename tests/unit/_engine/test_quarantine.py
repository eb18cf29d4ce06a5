"""The quarantine file: written once, read back, and refused when damaged."""

from __future__ import annotations

import json

import pytest

from penstock._engine.bad_samples import BadSample
from penstock._engine.quarantine import Quarantine
from penstock.errors import SettingsError


def bad(index, message="broken"):
    return BadSample(index, None, "ValueError", message, "Traceback …", 0, 1, 5.0, "skip")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bad.jsonl"


def lines(path):
    return path.read_bytes().splitlines()


def test_a_missing_file_is_made_and_empty(path):
    assert Quarantine(path).known == frozenset()
    assert path.read_bytes() == b""


def test_what_is_written_comes_back(path):
    Quarantine(path).add([bad(3), bad("a.jpg"), bad(None)])
    assert Quarantine(str(path)).known == {3, "a.jpg"}


def test_a_line_has_every_field(path):
    Quarantine(path).add([bad(3)])
    assert json.loads(path.read_text()) == {
        "index": 3,
        "key": None,
        "exception": "ValueError",
        "message": "broken",
        "traceback": "Traceback …",
        "worker": 0,
        "attempt": 1,
        "time": 5.0,
        "action": "skip",
    }


def test_an_index_is_written_once(path):
    quarantine = Quarantine(path)
    quarantine.add([bad(3), bad(3)])
    quarantine.add([bad(3), bad(4)])
    Quarantine(path).add([bad(4), bad(5)])
    assert [json.loads(line)["index"] for line in lines(path)] == [3, 4, 5]


def test_what_a_dataset_says_cannot_forge_a_line(path):
    evil = 'x\n{"index": 99}\r\u2028\x1b[31m\x00\ud800é'
    Quarantine(path).add([bad(3, evil)])
    assert len(lines(path)) == 1
    assert all(32 <= byte < 127 or byte == 10 for byte in path.read_bytes())
    assert json.loads(lines(path)[0])["message"] == evil
    assert Quarantine(path).known == {3}


def test_what_is_written_later_is_not_known_at_once(path):
    quarantine = Quarantine(path)
    quarantine.add([bad(3)])
    assert quarantine.known == frozenset()


def test_empty_lines_are_no_damage(path):
    path.write_text('\n{"index": 1}\n\n  \n{"index": "b", "note": "by hand"}')
    assert Quarantine(path).known == {1, "b"}


def refusal(path):
    with pytest.raises(SettingsError) as caught:
        Quarantine(path)
    return str(caught.value)


def test_a_damaged_line_is_named(path):
    path.write_text('{"index": 1}\n{"index": 2, "ke')
    assert refusal(path) == (
        f'[PS007] line 2 of the quarantine file {str(path)!r} is damaged: \'{{"index": 2, "ke\'\n'
        "  why:  JSONDecodeError: Unterminated string starting at: line 1 column 14 (char 13)\n"
        '  fix:  repair or remove the line: each is a JSON object with an "index", a number or a text\n'
        "  more: penstock explain PS007"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"17",
        b"{}",
        b"[1]",
        b"null",
        b'"index"',
        b'{"index": true}',
        b'{"index": 1.5}',
        b'{"index": [1]}',
        b"\xff\xfe",
        b"\x1b[31m",
        b"[" * 100_000,
    ],
    ids=lambda line: str(line[:20]),
)
def test_what_names_no_index_is_damage(path, line):
    path.write_bytes(b'{"index": 1}\n' + line + b"\n")
    text = refusal(path)
    assert text.startswith(f"[PS007] line 2 of the quarantine file {str(path)!r} is damaged: ")
    assert "\x1b" not in text


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    path = tmp_path / "none" / "bad.jsonl"
    assert refusal(path) == (
        f"[PS007] the quarantine file {str(path)!r} cannot be opened\n"
        "  why:  FileNotFoundError: No such file or directory\n"
        "  fix:  pass the path of a file that can be read and written, in a folder that exists\n"
        "  more: penstock explain PS007"
    )


def test_a_folder_is_refused(tmp_path):
    assert "IsADirectoryError" in refusal(tmp_path)


def test_a_file_that_cannot_be_written_any_more_is_an_os_error(tmp_path):
    path = tmp_path / "folder" / "bad.jsonl"
    path.parent.mkdir()
    quarantine = Quarantine(path)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(OSError):
        quarantine.add([bad(1)])
