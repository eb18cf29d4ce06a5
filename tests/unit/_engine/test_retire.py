"""Who leaves, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine import retire
from penstock._engine.retire import LEAST, NEARLY_FULL, Scale, is_due

GIB = 1 << 30


@pytest.mark.parametrize(("own", "due"), [(99, False), (100, False), (101, True)])
def test_a_limit_is_a_limit(own, due):
    assert is_due(own, 100, left=GIB, total=GIB, workers=2) is due


def test_without_a_limit_a_worker_may_have_what_there_is():
    assert not is_due(10 * GIB, None, left=GIB, total=16 * GIB, workers=2)


def test_when_memory_is_nearly_used_up_the_large_ones_leave():
    assert is_due(GIB, None, left=GIB // 100, total=4 * GIB, workers=2)
    assert not is_due(GIB // 10, None, left=GIB // 100, total=4 * GIB, workers=2)


@given(st.integers(0, GIB), st.integers(0, GIB), st.integers(1, GIB), st.integers(1, 64))
def test_nobody_leaves_while_there_is_room_or_holds_too_little_to_help(own, left, total, workers):
    if is_due(own, None, left, total, workers):
        assert left < NEARLY_FULL * total
        assert own > LEAST


@pytest.fixture
def weighed(monkeypatch):
    """How often a scale has looked, and the clock."""
    state = {"now": 0.0, "quick": 0, "exact": 0, "own": 0}

    def quick():
        state["quick"] += 1
        return state["own"]

    def exact():
        state["exact"] += 1
        return state["own"]

    monkeypatch.setattr(retire.time, "monotonic", lambda: state["now"])
    monkeypatch.setattr(retire.host, "anonymous_memory", quick)
    monkeypatch.setattr(retire.host, "own_memory", exact)
    return state


def test_a_scale_looks_now_and_then_and_exactly_only_in_doubt(weighed):
    scale = Scale(1000, 2)
    for weighed["now"] in (0.0, 0.1, 0.9, 1.1, 1.2):
        assert not scale.is_due()
    assert (weighed["quick"], weighed["exact"]) == (2, 0)
    weighed["own"], weighed["now"] = 2000, 3.0
    assert scale.is_due()
    assert weighed["exact"] == 1
