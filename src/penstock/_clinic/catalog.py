"""Every rule, family by family: the index of what the doctor asks."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules import data, endings, failures, limits, source, speed, start

RULES: tuple[Rule, ...] = (
    *start.RULES,
    *limits.RULES,
    *data.RULES,
    *failures.RULES,
    *endings.RULES,
    *speed.RULES,
    *source.RULES,
)
