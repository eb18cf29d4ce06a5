"""Put our loader in torch's place, for a program that does not know of it.

    penstock.install()                 from inside a program, best before its own imports
    penstock run train.py              the same from outside: see `environment`

Guarantees:

* `torch.utils.data.DataLoader` is ours from then on, also where a module has already imported the name, and
  for subclasses that are made later. Subclasses that were made before keep torch's.
* Nothing imports torch before the program does: `when_torch_comes` waits for it.
* May be called twice; `uninstall` puts everything back.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["install", "uninstall"]

VARIABLE = (
    "PENSTOCK_INSTALL"  # options as JSON: the Python processes of a program that `penstock run` started
)
SITE = Path(__file__).with_name("_site")  # its sitecustomize.py is what reads them

_defaults: dict[str, Any] = {}  # what install() has changed, as it was


def install(**options: Any) -> None:
    """Make `torch.utils.data.DataLoader` ours, with these options as its new defaults.

    `options` are our own, such as `cure=True` or `on_error="skip"`; a loader that passes one itself keeps it.
    """
    from torch.utils import data

    from penstock._loader import DataLoader

    defaults = DataLoader.__init__.__kwdefaults__ or {}
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        raise TypeError(f"install() got options that penstock.DataLoader does not have: {', '.join(unknown)}")
    for name, value in options.items():
        _defaults.setdefault(name, defaults[name])
        defaults[name] = value
    stock = DataLoader.__mro__[1]
    if data.DataLoader is not DataLoader:
        _rebind(stock, DataLoader)


def uninstall() -> None:
    """Undo `install`. Loaders that exist stay what they are."""
    loader = sys.modules.get("penstock._loader")
    if loader is None:
        return
    loader.DataLoader.__init__.__kwdefaults__.update(_defaults)
    _defaults.clear()
    _rebind(loader.DataLoader, loader.DataLoader.__mro__[1], only_torch=True)


def when_torch_comes(options: Mapping[str, Any]) -> None:
    """Install as soon as the program has imported torch, or now if it has."""
    if "torch" in sys.modules:
        install(**options)
    else:
        sys.meta_path.insert(0, _Waiter(dict(options)))


def environment(options: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """The environment in which every Python process has our loader in torch's place."""
    path = [str(SITE), *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {**base, VARIABLE: json.dumps(dict(options)), "PYTHONPATH": os.pathsep.join(path)}


def _rebind(old: type, new: type, *, only_torch: bool = False) -> None:
    """Let every module-level name for `old` stand for `new`; torch's own and, unless told, the program's."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "penstock" or (only_torch and not name.startswith("torch.utils.data")):
            continue
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict) and names.get("DataLoader") is old:
            names["DataLoader"] = new


class _Waiter(importlib.abc.MetaPathFinder):
    """Stands first among the finders until torch is imported, then installs and is gone.

    Many a library only asks whether torch could be imported: that is not yet the import.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Torch's own spec, with a loader that tells us when it is done; None for everything else."""
        del path, target
        if fullname != "torch":
            return None
        place = sys.meta_path.index(self)
        del sys.meta_path[place]
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(place, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self._come)
        return spec

    def _come(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            install(**self._options)


class _Then(importlib.abc.Loader):
    """Loads torch as ever, and tells us afterwards: half of torch is not enough for us."""

    def __init__(self, loader: Any, come: Callable[[], None]) -> None:
        self._loader = loader
        self._come = come

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # resources, source lines: tools ask a module's loader for them

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As torch's own loader does."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """As torch's own loader does; then we are told."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._come()
