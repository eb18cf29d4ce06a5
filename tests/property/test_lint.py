"""Whatever a program looks like, no rule of the source fails on it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock._clinic import lint, source
from penstock._clinic.settings import Options

CASES = Path(__file__).parents[1] / "rules" / "source" / "cases"
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(CASES.glob("*.py"))]


@st.composite
def programs(draw):
    """Pieces of programs, with statements missing, doubled, or out of order."""
    lines = [
        line
        for text in draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
        for line in text.splitlines()
    ]
    kept = draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    few = draw(st.booleans())
    return "\n".join(line for line, keep in zip(lines, kept, strict=True) if keep or few)


@st.composite
def renamed(draw):
    """A program in which one name has become another: classes inherit from functions, loaders are modules."""
    text = draw(st.sampled_from(TEXTS))
    names = ["Dataset", "DataLoader", "self", "open", "__init__", "__getitem__", "loader", "index", "torch"]
    return text.replace(draw(st.sampled_from(names)), draw(st.sampled_from(names)))


@given(programs() | renamed())
def test_no_program_makes_a_rule_fail(text):
    read = source.read_text(text)
    assert len(read.files) + len(read.broken) == 1
    assert lint.lint(read, Options()).notes == ()
