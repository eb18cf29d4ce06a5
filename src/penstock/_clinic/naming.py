"""How messages name loaders, places, samples and changes of options. Pure."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from penstock._lab.record import LoaderSeen, Site

_SHOWN = 6  # indices of a batch: enough to find it, short enough for a sentence


def loader_named(loader: LoaderSeen | None) -> str:
    """A loader in a sentence: "`train_loader`", "the loader of train.py:31", "the loader"."""
    if loader is None:
        return "the loader"
    if loader.name:
        return f"`{loader.name}`"
    return f"the loader of {place(loader.site)}" if loader.site else "the loader"


def place(site: Site | None) -> str:
    """A place in a sentence: "train.py:31"; nothing where it is not known."""
    return f"{PurePath(site.file).name}:{site.line}" if site else ""


def at_place(site: Site | None) -> str:
    """The same with its preposition: " at train.py:31"."""
    return f" at {place(site)}" if site else ""


def sample_named(index: Any) -> str:
    """A sample in a sentence: "sample 7", "a sample of the batch [4, 5]"; "a sample" where nobody knows."""
    if index is None:
        return "a sample"
    if isinstance(index, (list, tuple)) and len(index) != 1:
        shown = ", ".join(str(each) for each in index[:_SHOWN])
        return f"a sample of the batch [{shown}{', …' if len(index) > _SHOWN else ''}]"
    only = index[0] if isinstance(index, (list, tuple)) else index
    return f"sample {only!r}" if isinstance(only, str) else f"sample {only}"


def option(loader: LoaderSeen | None, name: str, value: Any) -> str:
    """A change of an option, with its value now: "num_workers=4 → num_workers=0"."""
    new = f"{name}={value!r}"
    if loader is None or name not in loader.settings:
        return new
    return f"{name}={loader.settings[name]!r} → {new}"


def method(loader: LoaderSeen | None, value: str) -> str:
    """A change of the start method: the option may be a context object, so its name is said instead."""
    old = loader.start_method if loader is not None else "fork"
    return f"multiprocessing_context={old!r} → multiprocessing_context={value!r}"


def short(text: str, most: int = 160) -> str:
    """The first line of a text, cut to a sentence's length."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= most else first[: most - 1] + "…"
