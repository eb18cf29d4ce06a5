"""What hangs on dataset, collate function and the rest that matters to workers: Thing's fields.

Walks without running code of the user's (see `walk`). Only when workers are started by pickling it is tried
whether each part can be pickled, which the program is about to do itself.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from typing import Any

from penstock._lab.inside import frames, kinds, mainfile, pickling
from penstock._lab.inside.walk import LEAVES, is_users, reachable
from penstock._lab.inside.weighing import weigh

ROOTS = ("dataset", "collate_fn", "worker_init_fn", "sampler", "batch_sampler", "generator")
MOST_THINGS = 80
MOST_S = 0.5  # for one loader
LARGE = 10_000  # Python objects in a container from which on it is told
NESTED = 64  # elements, each of which may hold many
HELD = "held"  # said of a lock
_LOCK = type(threading.Lock())
_NAMES = ("name", "filename", "path")  # by which readers call their file
_OPEN_KINDS = frozenset({"lambda", "local-function", "local-class", "main-class", "large-list"})  # have parts
_SHIPPED = ("dataset", "collate_fn", "worker_init_fn")  # what workers get


class Handle:
    """A descriptor that workers share with the consumer, and where it stood."""

    def __init__(self, thing: dict[str, Any], fd: int) -> None:
        self.thing = thing
        self._fd = fd
        self._offset = _offset(fd)

    def moved(self) -> bool:
        """Whether somebody has moved it since."""
        now = _offset(self._fd)
        return now is not None and self._offset is not None and now != self._offset


def add(fields: dict[str, Any], loader: Any) -> list[Handle]:
    """Add what was found to LoaderSeen's fields; returns the files that are open."""
    is_shipped = fields["start_method"] != "fork" and bool(fields["settings"].get("num_workers"))
    found = _Search(is_shipped=is_shipped)
    found.look(loader)
    if is_shipped:
        found.try_pickling(loader, fields)
    fields["things"] = found.things
    return found.handles


class _Search:
    """One walk over a loader."""

    def __init__(self, *, is_shipped: bool) -> None:
        self._is_shipped = is_shipped
        self._until = time.monotonic() + MOST_S
        self._seen: set[int] = set()
        self._sent: list[tuple[dict[str, Any], Any]] = []  # things that travel to workers
        self._closed: list[str] = []  # paths of things whose parts say no more
        self.things: list[dict[str, Any]] = []
        self.handles: list[Handle] = []

    def look(self, loader: Any) -> None:
        for name in ROOTS:
            root = getattr(loader, name, None)
            for path, value, depth in reachable(root, name) if root is not None else ():
                if time.monotonic() > self._until or len(self.things) >= MOST_THINGS:
                    return
                if type(value) in LEAVES or id(value) in self._seen:
                    continue
                self._seen.add(id(value))
                if not self._is_inside(path):
                    self._judge(path, value, is_global=depth < 0)

    def _is_inside(self, path: str) -> bool:
        """Whether this is a part of a thing that was told already, such as the file under an archive."""
        return any(path.startswith((known + ".", known + "[")) for known in self._closed)

    def _judge(self, path: str, value: Any, *, is_global: bool) -> None:
        kind = kinds.kind_of(value) or ("open-file" if _is_reader(value) else "")
        if is_global and kind in {"module", "lambda", "local-function", "local-class", "generator"}:
            return  # a name of the module's: it is not sent to workers
        if kind:
            self._thing(path, kind, value, is_global=is_global)
        elif kinds.is_local_instance(value):
            self._thing(path, "local-class", value, is_global=is_global, detail=type(value).__qualname__)
        elif not is_global and self._is_lost(value):
            named = value if hasattr(value, "__qualname__") else type(value)
            self._thing(path, "main-class", value, is_global=is_global, detail=named.__qualname__)
        elif isinstance(value, (list, tuple, dict)) and len(value) >= NESTED:
            self._large(path, value)

    def _is_lost(self, value: Any) -> bool:
        named = value if isinstance(value, type) or hasattr(value, "__code__") else type(value)
        return self._is_shipped and mainfile.is_lost(named)

    def _thing(self, path: str, kind: str, value: Any, *, is_global: bool, detail: str = "") -> None:
        thing: dict[str, Any] = {
            "path": path,
            "kind": kind,
            "type": _type_name(value),
            "detail": detail or _detail(value, kind),
            "site": _site(value),
        }
        if kind in {"open-file", "archive"}:
            thing["mode"] = str(getattr(value, "mode", "") or "")[:10]
            fd = descriptor(value)
            if fd is not None:
                self.handles.append(Handle(thing, fd))
        if not is_global and path.startswith(_SHIPPED):
            self._sent.append((thing, value))
        if kind not in _OPEN_KINDS:
            self._closed.append(path)
        self.things.append(thing)

    def _large(self, path: str, value: Any) -> None:
        count, nbytes = weigh(value)
        if count >= LARGE:
            thing = {"path": path, "kind": "large-list", "type": _type_name(value)}
            self.things.append({**thing, "count": count, "nbytes": nbytes})

    def try_pickling(self, loader: Any, fields: dict[str, Any]) -> None:
        """Whether what workers get can be sent; where not, which things on it refuse by themselves.

        The whole comes first: a `__getstate__` may leave out what would refuse.
        """
        for name in _SHIPPED:
            root = getattr(loader, name, None)
            error = pickling.refusal(root) if root is not None else ""
            if error is None:
                continue
            if not error:
                if name == "dataset":
                    fields["dataset"]["nbytes"] = pickling.dumps(root)
                self._mark(name, refuses=False)
            elif not self._mark(name, refuses=True):
                self._hidden(name, root, error)

    def _mark(self, name: str, *, refuses: bool) -> bool:
        """Fill in what was tried; whether any thing refuses."""
        has_guilty = False
        for thing, value in self._sent:
            if thing["path"].startswith(name) and thing["kind"] != "mp-lock":  # which is sent in its own way
                error = pickling.refusal(value) if refuses else ""
                thing["pickles"], thing["error"] = None if error is None else not error, error or ""
                has_guilty |= bool(error)
        return has_guilty

    def _hidden(self, name: str, root: Any, error: str) -> None:
        from penstock._engine.unpicklable import find_unpicklable

        path, what = find_unpicklable(root, name, pickling.dumps)
        self.things.append(
            {"path": path, "kind": "other", "type": what, "pickles": False, "error": error, "detail": what}
        )


def _is_reader(value: Any) -> bool:
    """Whether an object of some library reads from a file that it keeps open, as soundfile's do."""
    kind = type(value)
    if kind.__module__ == "builtins" or isinstance(value, type) or is_users(kind):
        return False
    reads = any(callable(getattr(kind, name, None)) for name in ("read", "seek"))
    return reads and descriptor(value) is not None


def descriptor(value: Any) -> int | None:
    """The descriptor of the regular file under an open file, an archive or some library's reader."""
    fd = _told_descriptor(value)
    try:
        return fd if fd is not None and stat.S_ISREG(os.fstat(fd).st_mode) else _opened(value)
    except OSError:  # it is closed
        return None


def _opened(value: Any) -> int | None:
    """The descriptor of the file that an object names, where a library has opened it out of sight."""
    named = next(
        (told for name in _NAMES if isinstance(told := _attribute(value, name), (str, os.PathLike))), None
    )
    if named is None:
        return None
    path = os.path.realpath(named)
    for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == path:  # noqa: PTH115 - a string
                return int(fd)
        except OSError:  # the one by which they are listed
            continue
    return None


def _told_descriptor(value: Any) -> int | None:
    for _ in range(4):
        for name in ("fp", "zip", "fileobj", "myfileobj", "_fp", "raw", "buffer", "file"):
            inner = _attribute(value, name)
            if inner is not None and not isinstance(inner, (str, bytes, int)):
                break
        else:
            break
        value = inner
    try:
        return int(value.fileno())
    except Exception:  # noqa: BLE001 - closed, in memory, not a file after all
        return None


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - detached buffers, closed archives
        return None


def _offset(fd: int) -> int | None:
    try:
        return os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return None


def _detail(value: Any, kind: str) -> str:
    if kind in {"open-file", "archive"}:
        name = _attribute(value, "name") or _attribute(value, "filename") or ""
        fd = descriptor(value)
        offset = None if fd is None else _offset(fd)
        return f"{name}" + ("" if offset is None else f" at {offset}")
    if kind in {"lambda", "local-function"}:
        return str(value.__qualname__)
    if kind == "module":
        return str(value.__name__)
    if kind == "lock" and type(value) is _LOCK and value.locked():
        return HELD
    return ""


def _site(value: Any) -> dict[str, Any] | None:
    found = frames.site_of_code(value if hasattr(value, "__code__") else type(value))
    return found if found is not None and frames.is_user_code(found["file"]) else None


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
