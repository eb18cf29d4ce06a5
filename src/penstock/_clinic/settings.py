"""The options of an exam: from the call, then from `[tool.penstock]` in pyproject.toml, then defaults.

Every mistake is refused before anything starts, with the name that was probably meant. Pure but for reading
one file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from penstock._clinic.causes import CAUSES
from penstock._clinic.ignore import EVERY
from penstock.errors import SettingsError, SettingsTypeError

FORMATS = ("text", "json", "html", "sarif", "github")

# An exam that cannot import torch twice says nothing; and one that takes an hour is no exam.
SHORTEST_S, LONGEST_S = 5.0, 3600.0


@dataclass(frozen=True, slots=True)
class Options:
    """How an exam is done, and what of it is shown."""

    timeout: float = 120.0  # seconds for the whole exam
    quick: bool = False  # only num_workers=0 and the user's own number
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    experiments: bool = True
    workers: int | None = None  # the ladder goes no higher
    format: str = "text"
    output: str | None = None
    per_file_ignores: dict[str, tuple[str, ...]] = field(default_factory=dict)


def options(given: Mapping[str, Any], near: Path | None = None) -> Options:
    """The options of one exam; None in `given` means "not said".

    Raises SettingsError for an unknown name, a wrong type or a value out of range.
    """
    said = {name.replace("-", "_"): value for name, value in given.items() if value is not None}
    merged = {**(read(near) if near is not None else {}), **said}
    known = [each.name for each in fields(Options)]
    for name in merged:
        if name not in known:
            raise _unknown(name, known)
    return Options(**{name: _checked(name, value) for name, value in merged.items()})


def read(near: Path) -> dict[str, Any]:
    """`[tool.penstock]` of the nearest pyproject.toml at or above a place; {} where there is none."""
    file = _nearest(near)
    if file is None:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover - the same parser under its old name
        import tomli as tomllib
    try:
        whole = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            "PS002", f"{file} is no TOML file", why=str(error), fix="repair that line of pyproject.toml"
        ) from error
    table = whole.get("tool", {}).get("penstock", {})
    if not isinstance(table, dict):
        raise SettingsTypeError("PS001", f"[tool.penstock] in {file} is no table", why=f"got {table!r}")
    return {name.replace("-", "_"): value for name, value in table.items()}


def _nearest(near: Path) -> Path | None:
    start = near.resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return file
    return None


def _unknown(name: str, known: list[str]) -> SettingsError:
    import difflib  # only a mistake pays for it: `penstock lint` starts in a tenth of a second

    close = difflib.get_close_matches(name, known, n=1)
    fix = f"did you mean {_written(close[0])}?" if close else f"known: {', '.join(map(_written, known))}"
    return SettingsError("PS002", f"there is no option {_written(name)!r} of an exam", fix=fix)


def _written(name: str) -> str:
    return name.replace("_", "-")


def _checked(name: str, value: Any) -> Any:
    if name in {"select", "ignore"}:
        return _patterns(name, value)
    if name == "per_file_ignores":
        return _per_file(value)
    return _CHECKS[name](name, value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(name, "a number of seconds", value)
    if not SHORTEST_S <= value <= LONGEST_S:
        raise _out_of_range(name, value, f"{SHORTEST_S:g} to {LONGEST_S:g} seconds")
    return float(value)


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(name, "true or false", value)
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(name, "a number of workers", value)
    if value < 0:
        raise _out_of_range(name, value, "0 or more")
    return value


def _format(name: str, value: Any) -> str:
    if value not in FORMATS:
        raise _out_of_range(name, value, ", ".join(FORMATS))
    return str(value)


def _path(name: str, value: Any) -> str:
    if not isinstance(value, (str, Path)):
        raise _wrong_type(name, "the path of a file", value)
    return str(value)


_CHECKS = {
    "timeout": _number,
    "quick": _truth,
    "experiments": _truth,
    "workers": _count,
    "format": _format,
    "output": _path,
}


def _patterns(name: str, value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise _wrong_type(name, "a list of codes or causes", value)
    split = tuple(part.strip() for word in words for part in word.split(",") if part.strip())
    for pattern in split:
        _known_pattern(name, pattern)
    return split


def _known_pattern(name: str, pattern: str) -> None:
    code = pattern.upper()
    if (
        pattern == EVERY
        or pattern.lower() in CAUSES.values()
        or any(known.startswith(code) for known in CAUSES)
    ):
        return
    import difflib

    close = difflib.get_close_matches(pattern.lower(), list(CAUSES.values()), n=1)
    close = close or difflib.get_close_matches(code, list(CAUSES), n=1)
    raise SettingsError(
        "PS002",
        f"{_written(name)} names {pattern!r}, and no code or cause is called so",
        fix=f"did you mean {close[0]}?" if close else "`penstock explain` lists every code",
    )


def _per_file(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise _wrong_type("per_file_ignores", "a table from file pattern to codes", value)
    return {str(glob): _patterns("per_file_ignores", codes) for glob, codes in value.items()}


def _wrong_type(name: str, wanted: str, value: Any) -> SettingsTypeError:
    return SettingsTypeError("PS001", f"{_written(name)} takes {wanted}", why=f"got {value!r}")


def _out_of_range(name: str, value: Any, allowed: str) -> SettingsError:
    return SettingsError(
        "PS002", f"{_written(name)} is out of range", why=f"got {value!r}", fix=f"allowed: {allowed}"
    )
