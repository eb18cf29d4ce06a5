"""What a rule is: a question put to facts.

A rule reads and answers. It runs nothing, changes nothing, never raises, and knows no other rule. The
docstring of its module is its page, in the sections that `penstock explain` prints: What it finds, Why it
matters, How we know, What to do, When we stay silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding


class Rule(Protocol):
    """One question. `needs` names the facts without which it is not asked: source, observed, ladder."""

    code: ClassVar[str]
    cause: ClassVar[str]
    needs: ClassVar[frozenset[str]]

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield what is found, worst first; nothing where all is well."""
        ...
