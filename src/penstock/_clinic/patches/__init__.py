"""Patches by name: from a `Fix` and the text of a file to the text as it should be.

    Fix ──▶ PATCHES[name](Page, Fix) ──▶ new text, or None where we cannot be sure ──▶ unified diff

A patch changes one file, keeps every comment and blank line that it does not have to move (libcst), and gives
up rather than guess. What it makes must still parse; whether it cures is for an experiment to say.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock._clinic.finding import Fix
from penstock._clinic.patches.call import set_option, set_threads, set_timeout
from penstock._clinic.patches.iterators import hoist_iterator
from penstock._clinic.patches.lifting import lambda_to_function, lift_class, main_guard
from penstock._clinic.patches.locks import remove_lock
from penstock._clinic.patches.page import Page, PatchImpossible
from penstock._clinic.patches.reopening import lazy_open
from penstock._clinic.patches.samples import clone_sample
from penstock._clinic.patches.seeding import seed_workers
from penstock._clinic.patches.sharding import shard

PATCHES: dict[str, Callable[[Page, Fix], str]] = {
    "clone-sample": clone_sample,
    "hoist-iterator": hoist_iterator,
    "lambda-to-function": lambda_to_function,
    "lazy-open": lazy_open,
    "main-guard": main_guard,
    "module-level-exception": lift_class,
    "move-class": lift_class,
    "one-thread": set_threads,
    "remove-lock": remove_lock,
    "reopen-in-worker": lazy_open,
    "reseed-in-worker": seed_workers,
    "reuse-iterator": hoist_iterator,
    "seed-workers": seed_workers,
    "set-option": set_option,
    "shard": shard,
    "socket-timeout": set_timeout,
}


def make(fix: Fix, texts: Mapping[str, str]) -> tuple[str, str] | None:
    """The file and its new text; None where the fix has no patch, or cannot be sure of one.

    `texts` are the program's files by absolute path.
    """
    patch = PATCHES.get(fix.name)
    path = None if fix.site is None else _find(fix.site.file, texts)
    if patch is None or fix.site is None or path is None:
        return None
    old = texts[path]
    try:
        new = patch(Page(old), fix)
        ast.parse(new)
    except (PatchImpossible, SyntaxError, RecursionError):
        return None
    return (path, new) if new != old else None


def diff(path: str, old: str, new: str) -> str:
    """The change as a unified diff."""
    rows = difflib.unified_diff(_rows(old), _rows(new), path, path)
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _rows(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _find(file: str, texts: Mapping[str, str]) -> str | None:
    """The one file that a site names: its whole path, or the end of it."""
    if file in texts:
        return file
    parts = Path(file).parts
    found = [path for path in texts if Path(path).parts[-len(parts) :] == parts]
    return found[0] if len(found) == 1 else None
