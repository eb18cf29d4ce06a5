from __future__ import annotations

import signal
import sys
import traceback

import pytest

from penstock._lab.inside import frames
from penstock._lab.inside.quiet import lost, quiet


def _raise():
    raise ValueError("no")


def _around():
    try:
        return _raise()
    except BaseException as error:
        frames.unwind(error)
        raise


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 keeps the entry of a frame that re-raises"
)
def test_a_wrapper_that_unwinds_leaves_no_line_in_the_traceback():
    with pytest.raises(ValueError, match="no") as caught:
        _around()
    text = "".join(traceback.format_exception(caught.value))
    assert "in _raise" in text
    assert "in _around" not in text


def test_user_code_is_what_is_neither_installed_nor_pythons_nor_ours():
    assert frames.is_user_code(__file__)
    assert frames.is_user_code("/home/me/train.py")
    assert not frames.is_user_code(traceback.__file__)
    assert not frames.is_user_code("/x/lib/python3.11/site-packages/torch/utils/data/dataloader.py")
    assert not frames.is_user_code(frames.__file__)
    assert not frames.is_user_code("<frozen importlib._bootstrap>")


def test_the_site_of_an_error_is_the_innermost_line_of_user_code():
    with pytest.raises(ValueError, match="no") as caught:
        _raise()
    site = frames.site_of_error(caught.value)
    assert site["file"] == __file__
    assert site["line"] == _raise.__code__.co_firstlineno + 1


def test_an_error_in_library_code_is_told_with_the_users_line_that_led_there():
    with pytest.raises(ValueError, match="invalid literal") as caught:
        traceback.walk_tb(int("x"))
    assert frames.site_of_error(caught.value)["symbol"].endswith("that_led_there")


class Plain:
    def method(self):
        return None


def test_the_site_of_a_class_is_its_head():
    site = frames.site_of_code(Plain)
    assert site["line"] == Plain.method.__code__.co_firstlineno - 1
    assert site["symbol"] == "Plain"


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError


def test_an_exception_that_cannot_be_printed_is_still_told():
    told = frames.failure(UnspeakableError())
    assert told["type"].endswith("UnspeakableError")
    assert told["text"] == ""


def test_our_own_mistakes_are_swallowed_and_counted():
    before = len(lost)

    @quiet
    def wrong():
        return {}["missing"]

    assert wrong() is None
    assert len(lost) == before + 1
    del lost[before:]


def test_what_a_signal_handler_of_the_program_raises_goes_on():
    def ring(_number, _frame):
        raise TimeoutError("too long")

    @quiet
    def interrupted():
        signal.raise_signal(signal.SIGUSR1)
        return [None for _ in range(3)]  # the handler runs before this does

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(TimeoutError, match="too long"):
            interrupted()
    finally:
        signal.signal(signal.SIGUSR1, before)


class Stays:
    def __init__(self, rows, eligible):
        self.rows, self.eligible = rows, eligible

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.eligible[i]["age"][0]


@pytest.mark.parametrize(
    ("index", "beyond"),
    [(3, {"type": "Stays", "length": 5, "held": "eligible", "size": 3}), (2, None), (7, None)],
)
def test_a_dataset_that_is_shorter_than_it_says_is_told_and_no_other_index_error(index, beyond):
    stays = Stays([0] * 5, [{"age": [1]}, {"age": [2]}, {"age": []}])
    with pytest.raises(IndexError) as caught:
        stays[index]
    assert frames.failure(caught.value)["beyond"] == beyond
