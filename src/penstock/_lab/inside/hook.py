"""Be told when the program has imported a module, without importing it ourselves.

A finder in front of the others takes part in the import of the watched names only. It lets the others find
the module, and puts a loader around theirs that calls us when the module's code has run; the module keeps
its own loader and spec. Being found is no import: libraries ask whether torch is there, and load it later or
never.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from penstock._lab.inside.frames import unwind


class ImportHook:
    """Calls back once for each watched module, right after its import."""

    def __init__(self) -> None:
        self._watched: dict[str, Callable[[], Any]] = {}

    def install(self) -> None:
        """Take the first place among the finders."""
        sys.meta_path.insert(0, self)

    def when_imported(self, name: str, call: Callable[[], Any]) -> None:
        """Call when the module has been imported; at once if it has been already."""
        if name in sys.modules:
            call()
        else:
            self._watched[name] = call

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Part of the import protocol."""
        if name not in self._watched:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._imported)  # type: ignore[assignment]
                return spec
        return None

    def _imported(self, name: str) -> None:
        call = self._watched.pop(name, None)
        if call is not None:
            call()


class _Loader:
    """The module's own loader, and a call at the end."""

    def __init__(self, loader: Any, call: Callable[[str], None]) -> None:
        self._loader = loader
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Part of the import protocol."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, then call."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            unwind(error)
            raise
        self._call(module.__name__)
