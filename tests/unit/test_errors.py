"""What every error says, and that it survives a journey."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import penstock
from penstock import errors
from penstock._clinic.causes import CAUSES
from penstock._clinic.reasons import PAGES
from penstock.errors import (
    CODES,
    ArenaError,
    DataError,
    PenstockError,
    SettingsError,
    SettingsTypeError,
    ShippingError,
    WorkerLostError,
)

CLASSES = [
    PenstockError,
    SettingsError,
    SettingsTypeError,
    DataError,
    ShippingError,
    WorkerLostError,
    ArenaError,
]

SOURCE = Path(penstock.__file__).parent
RAISED = {
    code
    for path in SOURCE.rglob("*.py")
    if path != SOURCE / "errors.py"
    for code in re.findall(r"PS\d{3}", path.read_text())
}


def test_a_message_has_what_why_fix_and_where_to_read_more():
    error = WorkerLostError(
        "PS601",
        "worker 3 (pid 4121) was killed by SIGKILL while loading ticket 1842",
        why="the memory cgroup counted one oom_kill since the worker started",
        fix="lower num_workers from 8 to 4, or prefetch_factor from 4 to 2",
    )
    assert str(error) == (
        "[PS601] worker 3 (pid 4121) was killed by SIGKILL while loading ticket 1842\n"
        "  why:  the memory cgroup counted one oom_kill since the worker started\n"
        "  fix:  lower num_workers from 8 to 4, or prefetch_factor from 4 to 2\n"
        "  more: penstock explain PS601"
    )


def test_a_message_leaves_out_what_is_not_known():
    assert str(DataError("PS501", "no batch")) == "[PS501] no batch\n  more: penstock explain PS501"


def test_a_message_may_have_a_fix_without_a_why():
    assert str(ArenaError("PS701", "full", fix="free some")) == (
        "[PS701] full\n  fix:  free some\n  more: penstock explain PS701"
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_the_parts_of_an_error_can_be_read(kind):
    error = kind("PS601", "what", why="why", fix="fix")
    assert (error.code, error.what, error.why, error.fix) == ("PS601", "what", "why", "fix")


@pytest.mark.parametrize("protocol", [0, pickle.DEFAULT_PROTOCOL, 5])
@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_pickling(kind, protocol):
    error = kind("PS601", "what", why="why", fix="fix")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is kind
    assert (str(again), again.code, again.why) == (str(error), "PS601", "why")


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_rebuilt_from_one_text_is_that_text(kind):
    text = str(kind("PS601", "what", why="why", fix="fix"))
    assert str(kind(text)) == text


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_rebuilt_from_one_text_survives_pickling(kind):
    assert str(pickle.loads(pickle.dumps(kind("some text")))) == "some text"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (SettingsError, ValueError),
        (SettingsTypeError, TypeError),
        (SettingsTypeError, ValueError),
        (DataError, RuntimeError),
        (ShippingError, TypeError),
        (ShippingError, RuntimeError),
        (WorkerLostError, RuntimeError),
        (ArenaError, RuntimeError),
    ],
)
def test_an_error_is_also_what_torch_raises_there(kind, builtin):
    assert issubclass(kind, builtin)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_is_public(kind):
    assert kind.__name__ in errors.__all__


def test_every_public_class_is_tested_here():
    assert set(errors.__all__) == {kind.__name__ for kind in CLASSES} | {"CODES", "MistakeWarning"}


@pytest.mark.parametrize("kind", CLASSES)
def test_the_tree_in_the_docstring_has_every_class(kind):
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__)


def test_every_code_that_is_raised_has_a_page():
    assert set(CODES) | set(CAUSES) | set(PAGES) >= RAISED


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_page_is_for_a_code_that_is_raised(code):
    assert code in RAISED


def test_every_page_has_a_title_and_a_text():
    for code, (title, text) in CODES.items():
        assert re.fullmatch(r"PS\d{3}", code)
        assert title.strip() == title != "", code
        assert not title.endswith("."), code
        assert text.endswith("."), code


def test_no_page_is_servile():
    for code, page in CODES.items():
        assert not re.search(r"\b(please|sorry|oops)\b|!", " ".join(page), re.IGNORECASE), code
