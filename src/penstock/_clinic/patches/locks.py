"""The patch that leaves a lock out."""

from __future__ import annotations

from typing import Any

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import Page, PatchImpossible, dotted


def remove_lock(page: Page, fix: Fix) -> str:
    """Do without `with self.lock:` what it holds, wherever the class at the site takes that lock."""
    assert fix.site is not None
    attribute = str(fix.arguments.get("path", "")).split(".")[-1]
    held = [
        each
        for each in page.all(cst.With)
        if len(each.items) == 1
        and dotted(each.items[0].item).split(".")[-1] == attribute
        and isinstance(each.body, cst.IndentedBlock)
    ]
    if not attribute or not held:
        raise PatchImpossible("no such lock is taken")
    return page.replaced(*((each, _body(each)) for each in held)).code


def _body(held: cst.With) -> cst.FlattenSentinel[cst.BaseStatement]:
    rows: list[Any] = list(held.body.body)
    rows[0] = rows[0].with_changes(leading_lines=[*held.leading_lines, *rows[0].leading_lines])
    return cst.FlattenSentinel(rows)
