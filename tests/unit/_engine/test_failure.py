"""What the consumer raises for what a worker caught."""

from __future__ import annotations

import pickle

import pytest

from penstock._engine.failure import Failure, describe, unpack
from penstock.errors import ArenaError, DataError


class Plain(Exception):
    """An exception of the user's."""


class Demanding(Exception):
    """One that cannot be made from a text alone."""

    def __init__(self, code, url):
        super().__init__(code, url)
        self.code, self.url = code, url


class Worded(Exception):
    """One with a `message`, which torch fills by name."""

    message = "unset"

    def __init__(self, *, message):
        super().__init__(message)


class Unrebuildable(Exception):
    """Pickles, and then cannot be rebuilt, nor made from a text."""

    def __init__(self, one, two):
        super().__init__("text")


class Stop(StopIteration):
    """A kind of StopIteration."""


def caught(error, note="", worker=2):
    """The failure of a worker, after its journey."""
    try:
        raise error
    except BaseException as raised:  # as the worker does
        failure = describe(raised, worker, note)
    return Failure(*pickle.loads(pickle.dumps(tuple(failure))))


@pytest.mark.parametrize(
    "error", [ValueError("x"), IndexError(3), Plain("x"), OSError(2, "gone"), MemoryError()]
)
def test_an_exception_keeps_its_type(error):
    assert type(unpack(caught(error))) is type(error)


def test_the_message_is_torchs_with_the_workers_traceback_and_the_sample():
    text = str(unpack(caught(ValueError("bad pixel"), "sample index: 7 (position 1 in its batch)")))
    first, second, *frames = text.splitlines()
    assert first == "Caught ValueError in DataLoader worker process 2."
    assert second == "Original Traceback (most recent call last):"
    assert "in caught" in frames[0]
    assert frames[-2:] == ["ValueError: bad pixel", "sample index: 7 (position 1 in its batch)"]
    assert text.endswith("batch)\n")


def test_without_a_note_the_message_ends_with_the_traceback():
    assert str(unpack(caught(ValueError("bad pixel")))).endswith("ValueError: bad pixel\n")


def test_the_cause_is_part_of_the_text():
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")
    assert "KeyError: 'inner'" in str(unpack(caught(error)))


def test_a_key_error_is_readable():
    error = unpack(caught(KeyError("label"), "sample index: 7"))
    assert type(error) is KeyError
    assert "\\n" not in str(error)
    assert str(error).startswith("Caught KeyError in DataLoader worker process 2.\nOriginal Traceback")


def test_an_exception_that_wants_its_message_by_name_gets_it():
    assert type(unpack(caught(Worded(message="x")))) is Worded


def test_an_exception_with_required_arguments_keeps_its_type_and_arguments():
    error = unpack(caught(Demanding(404, "http://x"), "sample index: 7"))
    assert type(error) is Demanding
    assert (error.code, error.url) == (404, "http://x")


@pytest.mark.skipif(not hasattr(BaseException, "add_note"), reason="Python 3.11 and later")
def test_an_exception_with_required_arguments_has_the_traceback_as_a_note():
    (note,) = unpack(caught(Demanding(404, "http://x"), "sample index: 7")).__notes__
    assert note.startswith("Caught Demanding in DataLoader worker process 2.\nOriginal Traceback")
    assert note.endswith("sample index: 7\n")


def test_a_decoding_error_keeps_its_type():
    error = unpack(caught(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")))
    assert type(error) is UnicodeDecodeError
    assert error.object == b"\xff"


def test_an_exception_of_a_local_class_becomes_a_runtime_error_with_its_text():
    class Local(Exception):
        pass

    error = unpack(caught(Local("lost in transit")))
    assert type(error) is RuntimeError
    assert "Caught Local in DataLoader worker process 2." in str(error)
    assert "lost in transit" in str(error)


def test_an_exception_that_cannot_be_rebuilt_becomes_a_runtime_error_with_its_text():
    error = unpack(caught(Unrebuildable(1, 2)))
    assert type(error) is RuntimeError
    assert "Caught Unrebuildable in DataLoader worker process 2." in str(error)


def test_an_exception_that_holds_what_cannot_be_pickled_keeps_its_type():
    error = unpack(caught(Plain("x", (x for x in ()))))
    assert type(error) is Plain


def test_a_class_that_is_unknown_here_becomes_a_runtime_error():
    failure = caught(Plain("x"))._replace(kind=b"cnowhere\nNothing\n.", whole=None)
    assert type(unpack(failure)) is RuntimeError


def test_a_kind_that_is_no_exception_becomes_a_runtime_error():
    failure = caught(Plain("x"))._replace(kind=pickle.dumps(int))
    assert type(unpack(failure)) is RuntimeError


@pytest.mark.parametrize(
    "error", [DataError("PS501", "w", why="y", fix="f"), ArenaError("PS701", "w", why="y")]
)
def test_an_error_of_our_own_comes_as_it_was(error):
    got = unpack(caught(error))
    assert type(got) is type(error)
    assert str(got) == str(error)


def test_stop_iteration_becomes_an_error():
    failure = caught(StopIteration(), "sample index: 7 (position 0 in its batch)")
    error = unpack(failure)
    assert type(error) is DataError
    assert str(error) == (
        "[PS502] worker 2 met StopIteration in a map-style dataset\n"
        f"  why:  sample index: 7 (position 0 in its batch)\n{failure.text.rstrip()}\n"
        "  fix:  raise IndexError or ValueError there: StopIteration would end the epoch silently\n"
        "  more: penstock explain PS502"
    )


def test_stop_iteration_without_a_sample_says_so():
    assert unpack(caught(StopIteration())).why.startswith("it was raised while a batch was made\nTraceback")


def test_a_kind_of_stop_iteration_becomes_an_error():
    assert not isinstance(unpack(caught(Stop("x"))), StopIteration)


def test_a_failure_is_plain_data():
    assert all(part is None or type(part) in (int, str, bytes) for part in caught(Plain("x")))
