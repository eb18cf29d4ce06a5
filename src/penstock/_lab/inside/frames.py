"""Whose code a frame is, where in the user's source something happened, and how we stay out of tracebacks.

NOTE [ No trace ]

A wrapper around a function of torch's would show up in every traceback that passes through it. It need not:

    try:
        return original(...)
    except BaseException as error:
        ...                       # report
        unwind(error)             # takes the entry of this very frame off the traceback
        raise                     # a bare `raise` takes the traceback from the exception and adds no entry

What the program prints, and what torch's workers send home as text, is then the same as without us.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from types import FrameType, TracebackType
from typing import Any

from penstock._lab.inside import proc

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs 10 ms at each start
_STDLIB = os.path.dirname(os.path.abspath(os.__file__))  # noqa: PTH100, PTH120
_PENSTOCK = os.path.dirname(os.path.dirname(_HERE)) + os.sep  # noqa: PTH120
_DEMO = os.path.join(_PENSTOCK, "_cli", "demo") + os.sep  # noqa: PTH118 - examples, to be examined as a user's
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TORCH = (f"{os.sep}torch{os.sep}utils{os.sep}data{os.sep}", f"{os.sep}torch{os.sep}")
_MOST_TEXT = 2_000
_NO_MAP = "unable to mmap"  # as torch says it
_MOST_TRACEBACK = 8_000

_is_user: dict[str, bool] = {}


def unwind(error: BaseException) -> None:
    """Take the newest entry, the caller's own, off a traceback. See NOTE [ No trace ]."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def is_user_code(file: str) -> bool:
    """Whether a file is the user's own: neither installed, nor Python's, nor ours."""
    known = _is_user.get(file)
    if known is None:
        known = _is_user[file] = _judge(file)
    return known


def _judge(file: str) -> bool:
    if file.startswith("<"):
        return file == "<stdin>" or file.startswith("<ipython")
    path = os.path.abspath(file)  # noqa: PTH100
    if path.startswith(_PENSTOCK):
        return path.startswith(_DEMO)
    return not path.startswith(_STDLIB + os.sep) and not any(part in path for part in _PACKAGES)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame in user code; failing that, the innermost that is neither torch's nor ours."""
    other = None
    while frame is not None:
        file = frame.f_code.co_filename
        if is_user_code(file):
            return frame
        if other is None and not file.startswith((_HERE, "<")) and not any(part in file for part in _TORCH):
            other = frame
        frame = frame.f_back
    return other


def site_of_frame(frame: FrameType | None) -> dict[str, Any] | None:
    """A Site, as the log has it."""
    if frame is None:
        return None
    return {
        "file": os.path.abspath(frame.f_code.co_filename),  # noqa: PTH100
        "line": frame.f_lineno or 0,
        "symbol": _symbol(frame.f_code),
    }


def site_of_error(error: BaseException) -> dict[str, Any] | None:
    """The innermost line of user code that an exception came through, with the user's own name for it."""
    found: TracebackType | None = None
    step = error.__traceback__
    while step is not None:
        if is_user_code(step.tb_frame.f_code.co_filename):
            found = step
        step = step.tb_next
    if found is None:
        return None
    code = found.tb_frame.f_code
    return {
        "file": os.path.abspath(code.co_filename),  # noqa: PTH100
        "line": found.tb_lineno or 0,
        "symbol": _symbol(code),
    }


def functions_of(error: BaseException) -> list[str]:
    """The names of the functions that an exception came through, outermost first."""
    step, found = error.__traceback__, []
    while step is not None:
        found.append(step.tb_frame.f_code.co_name)
        step = step.tb_next
    return found


def site_of_code(value: Any) -> dict[str, Any] | None:
    """Where a class or function was written, as far as its code tells."""
    code = getattr(value, "__code__", None)
    if code is None and isinstance(value, type):
        line, file = _first_line(value)
        return None if file is None else {"file": file, "line": line, "symbol": value.__qualname__}
    if code is None:
        return None
    return {
        "file": os.path.abspath(code.co_filename),  # noqa: PTH100
        "line": code.co_firstlineno,
        "symbol": value.__qualname__,
    }


def _first_line(kind: type) -> tuple[int, str | None]:
    """The first method of a class stands near its head; Python 3.13 also has the line itself."""
    line = vars(kind).get("__firstlineno__")
    codes = [code for member in vars(kind).values() if (code := _code(member)) is not None]
    if not codes:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None)
        return (line or 0), file if isinstance(file, str) else None
    first = min(codes, key=lambda code: code.co_firstlineno)
    return line or _head(first, kind), os.path.abspath(first.co_filename)  # noqa: PTH100


def _code(member: Any) -> Any:
    function = getattr(member, "__func__", getattr(member, "fget", member))
    return getattr(function, "__code__", None)


def _head(first: Any, kind: type) -> int:
    """The line `class Name` above the first method."""
    import linecache

    for line in range(first.co_firstlineno, 0, -1):
        if linecache.getline(first.co_filename, line).lstrip().startswith(f"class {kind.__name__}"):
            return line
    return int(first.co_firstlineno)


def _symbol(code: Any) -> str:
    name = getattr(code, "co_qualname", code.co_name)  # Python 3.11
    return "" if name == "<module>" else str(name)


def failure(error: BaseException) -> dict[str, Any]:
    """A Failure's own fields of an exception."""
    import traceback

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    text = _text(error)
    return {
        "type": _name(type(error)),
        "text": text,
        "traceback": "".join(lines)[-_MOST_TRACEBACK:],
        "site": site_of_error(error),
        "maps": proc.maps() if _NO_MAP in text else 0,
        "beyond": _beyond(error) if isinstance(error, IndexError) else None,
    }


_SELF_AND_INDEX = 2


def _beyond(error: BaseException) -> dict[str, Any] | None:
    """A Beyond: the line that raised reads `self.x[i]`, and x is shorter than what holds it says it is."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code if step is not None else None
    if step is None or code is None or code.co_name != "__getitem__" or code.co_argcount != _SELF_AND_INDEX:
        return None
    owner, index = (step.tb_frame.f_locals.get(name) for name in code.co_varnames[:_SELF_AND_INDEX])
    held = getattr(owner, "__dict__", None)
    if type(index) is not int or index < 0 or type(held) is not dict:
        return None
    line = linecache.getline(code.co_filename, step.tb_lineno or 0)
    for name, place in re.findall(r"\bself\.(\w+)\[(\w+)\]", line):
        value = held.get(name)
        if place == code.co_varnames[1] and isinstance(value, (list, tuple)) and len(value) <= index:
            length = _length(owner)
            return _told(owner, length, name, len(value)) if index < length else None
    return None


def _length(owner: Any) -> int:
    try:
        return len(owner)
    except Exception:  # noqa: BLE001 - the user's code
        return 0


def _told(owner: Any, length: int, name: str, size: int) -> dict[str, Any]:
    return {"type": type(owner).__qualname__, "length": length, "held": name, "size": size}


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except Exception:  # noqa: BLE001 - an exception of the user's, with a `__str__` of its own
        return ""
