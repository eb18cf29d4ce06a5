"""Every rule, family by family: the index of what the doctor asks."""

from __future__ import annotations

import importlib
import importlib.util

from penstock._clinic.rule import Rule

FAMILIES = ("start", "limits", "data", "failures", "endings", "speed", "source")


def _family(name: str) -> tuple[Rule, ...]:
    module = f"penstock._clinic.rules.{name}"
    if importlib.util.find_spec(module) is None:
        return ()
    rules: tuple[Rule, ...] = getattr(importlib.import_module(module), "RULES", ())
    return rules


RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in _family(family))
