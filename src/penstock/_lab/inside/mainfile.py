"""Which classes and functions of the main script a fresh worker would find there.

A spawned worker runs the script again under another name, so that what stands under `if __name__ ==
"__main__":` does not exist in it; and a notebook or standard input cannot be run again at all.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

_cached: dict[str, frozenset[str] | None] = {}


def is_lost(value: Any) -> bool:
    """Whether a class or function of `__main__` cannot be found by a spawned worker."""
    if getattr(value, "__module__", None) != "__main__" or "<" in value.__qualname__:
        return False
    names = _names()
    return names is None or value.__qualname__.partition(".")[0] not in names


def _names() -> frozenset[str] | None:
    """Names that the script binds outside of its guard; None when there is no file to run."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str):
        return None
    if file not in _cached:
        _cached[file] = _read(file)
    return _cached[file]


def _read(file: str) -> frozenset[str] | None:
    from penstock._lab.inside.overlay import text_of

    try:
        text = text_of(file)
        if text is None:
            with open(file, encoding="utf-8") as stream:  # noqa: PTH123 - pathlib is not loaded in the program
                text = stream.read()
        return frozenset(_bound(ast.parse(text).body))
    except OSError:
        return None
    except (SyntaxError, ValueError):
        return frozenset()


def _bound(body: list[ast.stmt]) -> list[str]:
    found: list[str] = []
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            found += [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
        elif isinstance(statement, ast.Assign):
            found += [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.If):
            found += (
                _bound(statement.orelse)
                if _is_guard(statement.test)
                else _bound([*statement.body, *statement.orelse])
            )
        elif isinstance(statement, (ast.With, ast.Try)):
            found += _bound(statement.body)
    return found


def _is_guard(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))
