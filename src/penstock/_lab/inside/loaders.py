"""DataLoader.__init__: where a loader was made, with which options, and those that the plan sets instead."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import sys
import time
import weakref
from collections import Counter
from types import FrameType
from typing import Any

from penstock._lab.inside import frames, stored
from penstock._lab.inside.frames import functions_of, unwind
from penstock._lab.inside.observer import Observer, is_reimport
from penstock._lab.inside.quiet import quiet

KEY = "_penstock_key"  # in the loader's own dictionary: a plain string, which may travel with it
_EXPLICIT = "_penstock_explicit"

_OPTIONS = (
    "num_workers",
    "batch_size",
    "drop_last",
    "pin_memory",
    "timeout",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)
_NEED_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
_MOST_ALIKE = 40  # loaders of one line that are told
_ASSIGNED = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")


def install(observer: Observer, module: Any) -> None:
    """Put our function around torch's."""
    stock = module.DataLoader
    original = stock.__init__
    makings = Makings(observer, original)
    observer.makings = makings

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - torch's own name
        changed = makings.begin(self, args, kwargs, sys._getframe(1))  # noqa: SLF001
        try:
            if changed is None:
                original(self, *args, **kwargs)
            else:
                original(self, **changed)
        except BaseException as error:
            makings.failed(error)
            unwind(error)
            raise
        makings.made(self)

    stock.__init__ = __init__


class Makings:
    """Every loader that this process makes."""

    def __init__(self, observer: Observer, original: Any) -> None:
        self._observer = observer
        self._signature = inspect.signature(original)
        self._ordinals: Counter[str] = Counter()
        self._sites: dict[str, dict[str, Any] | None] = {}
        self._names: dict[str, str] = {}
        self.made_at: dict[str, float] = {}
        self.unused: set[str] = set()  # keys of loaders that nobody has iterated yet
        # Those of them that were there before any was iterated, by key.
        self.beforehand: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._has_begun = False

    @quiet
    def begin(self, loader: Any, args: Any, kwargs: Any, frame: FrameType) -> dict[str, Any] | None:
        """Give the loader its key. Returns all its arguments when the plan changes any."""
        bound = self._bind(loader, args, kwargs)
        if bound is None:
            return None  # torch will say what is wrong
        explicit = [name for name in bound if name not in ("self", "dataset")]
        key = self._key(frames.user_frame(frame))
        loader.__dict__[KEY] = key
        loader.__dict__[_EXPLICIT] = explicit
        if not self._is_ours(key):
            return None
        return self._changed(bound, self._observer.mends.settings())

    def _is_ours(self, key: str) -> bool:
        return self._observer.plan.loader in (None, key, key.rpartition("#")[0])

    def _bind(self, loader: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
        try:
            return dict(self._signature.bind(loader, *args, **kwargs).arguments)
        except TypeError:
            return None

    def _key(self, frame: FrameType | None) -> str:
        file = frame.f_code.co_filename if frame else "?"
        place = f"{os.path.basename(file)}:{frame.f_lineno if frame else 0}"  # noqa: PTH119
        key = f"{place}#{self._ordinals[place]}"
        self._ordinals[place] += 1
        self._sites[key] = frames.site_of_frame(frame)
        self._names[key] = _name(frame) if frame else ""
        return key

    def _changed(self, bound: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments with those of the plan in place, and nothing that contradicts them."""
        known = self._signature.parameters
        settings = {name: value for name, value in settings.items() if name in known}
        if not settings:
            return None
        if bound.get("batch_sampler") is not None or bound.get("batch_size", 1) is None:
            settings.pop("batch_size", None)
        arguments = {name: value for name, value in bound.items() if name != "self"}
        arguments.update(settings)
        if not arguments.get("num_workers", 0):
            for name in _NEED_WORKERS:
                arguments.pop(name, None)
        return arguments

    @quiet
    def failed(self, error: BaseException) -> None:
        """The loader could not be made."""
        is_length = "__len__" in functions_of(error)
        self._observer.report(error, "length" if is_length else "start")

    @quiet
    def made(self, loader: Any) -> None:
        """The loader is there."""
        key = loader.__dict__.get(KEY)
        if key is None or is_reimport():
            return
        self.made_at[key] = time.monotonic()
        if self._ordinals[key.rpartition("#")[0]] > _MOST_ALIKE:
            return  # made again and again: the first ones say it
        self.unused.add(key)
        if not self._has_begun:
            self.beforehand[key] = loader
        self._observer.log.write("loader", **self.describe(loader, is_used=False))

    @quiet
    def used(self, loader: Any, *, frame: FrameType | None) -> str:
        """A loader is iterated: its key, given now if it was made in another process or another way."""
        key: str | None = loader.__dict__.get(KEY)
        if key is None:
            key = loader.__dict__[KEY] = self._key(frames.user_frame(frame))
            if self._is_ours(key):
                self._change_made(loader)
        self.unused.discard(key)
        self._has_begun = True
        return key

    def _change_made(self, loader: Any) -> None:
        settings = self._observer.mends.settings()
        if "num_workers" in settings and not settings["num_workers"]:
            settings = {**_NEED_WORKERS, **settings, "multiprocessing_context": None}
        for name, value in settings.items():
            if name in ("multiprocessing_context", "num_workers"):
                setattr(loader, name, value)
            else:
                object.__setattr__(loader, name, value)  # torch's own refuses some after __init__
        if loader.num_workers and loader.prefetch_factor is None:
            loader.prefetch_factor = 2

    def describe(self, loader: Any, *, is_used: bool) -> dict[str, Any]:
        """LoaderSeen's fields, without what hangs on its dataset.

        Lengths are asked for when the loader is used: `__len__` is the user's code.
        """
        key = loader.__dict__[KEY]
        return {
            "key": key,
            "site": self._sites.get(key),
            "name": self._names.get(key, ""),
            "settings": settings_of(loader),
            "explicit": loader.__dict__.get(_EXPLICIT, []),
            "start_method": start_method(loader),
            "dataset": dataset_of(loader, is_used=is_used),
            "length": length_of(loader) if is_used else None,
            "rank": rank(),
            "sharing_strategy": _sharing_strategy(),
            "is_beforehand": key in self.beforehand,
        }


def settings_of(loader: Any) -> dict[str, Any]:
    """Every option, as in force."""
    found = {name: getattr(loader, name, None) for name in _OPTIONS}
    context = getattr(loader, "multiprocessing_context", None)
    found["multiprocessing_context"] = None if context is None else context.get_start_method()
    for name in ("collate_fn", "worker_init_fn"):
        found[name] = _name_of(getattr(loader, name, None))
    for name in ("sampler", "batch_sampler"):
        value = getattr(loader, name, None)
        found[name] = None if value is None else type(value).__qualname__
    found["shuffle"] = found["sampler"] == "RandomSampler"
    found["generator"] = None if getattr(loader, "generator", None) is None else "torch.Generator"
    found["class"] = f"{type(loader).__module__}.{type(loader).__qualname__}"
    return found


def start_method(loader: Any) -> str:
    """How its workers would be started; asking fixes nothing."""
    import multiprocessing

    context = getattr(loader, "multiprocessing_context", None)
    method = None if context is None else context.get_start_method()
    method = method or multiprocessing.get_start_method(allow_none=True)
    return str(method or multiprocessing.get_all_start_methods()[0])


def dataset_of(loader: Any, *, is_used: bool) -> dict[str, Any]:
    """DatasetSeen's cheap fields."""
    dataset = loader.dataset
    kind = type(dataset)
    return {
        "type": kind.__qualname__,
        "module": kind.__module__,
        "site": _site(dataset),
        "length": _length(dataset) if is_used else None,
        "is_iterable": getattr(loader, "_dataset_kind", 0) == 1,
        "sizes": stored.sizes(dataset) if is_used else {},
    }


def _site(dataset: Any) -> dict[str, Any] | None:
    """The class that the user wrote, below those of torch that are put around it."""
    own = stored.own(dataset)
    return None if own is None else frames.site_of_code(type(own))


def length_of(loader: Any) -> int | None:
    """len(loader), without the trace that asking leaves for iterable datasets."""
    if getattr(loader, "_dataset_kind", 0) == 1:
        length, size = _length(loader.dataset), getattr(loader, "batch_size", None)
        if length is None or not size:
            return length
        return int(length // size if loader.drop_last else -(-length // size))
    return _length(loader)


def rank() -> int | None:
    """The rank of this process, where there is one."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:  # noqa: BLE001 - builds without it
        return None
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def _length(value: Any) -> int | None:
    if not hasattr(type(value), "__len__"):
        return None
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - a `__len__` of the user's
        return None


def _sharing_strategy() -> str:
    torch: Any = sys.modules.get("torch.multiprocessing")
    return "" if torch is None else str(torch.get_sharing_strategy())


def _name_of(value: Any) -> str | None:
    if value is None:
        return None
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    module = getattr(value, "__module__", None) or type(value).__module__
    return f"{module}.{name}"


def _name(frame: FrameType) -> str:
    """The variable that is assigned in this line, where the source says so."""
    found = _ASSIGNED.match(linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0))
    return found.group(1) if found else ""
