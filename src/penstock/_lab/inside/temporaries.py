"""Temporary files and directories that the program makes elsewhere than in the trial's folder: each is told.

A program that is ended in the middle has no chance to remove its own.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from penstock._lab.inside.log import Log
from penstock._lab.inside.quiet import quiet

_MOST = 1_000  # that one process tells of


def install(log: Log) -> None:
    """Put our functions around those with which `tempfile`, which has been imported, makes both."""
    module: Any = sys.modules["tempfile"]
    own = os.path.join(os.path.dirname(log.path), "")  # noqa: PTH118, PTH120 - pathlib would cost its import
    told: list[str] = []

    @quiet
    def tell(path: Any) -> None:
        path = os.fsdecode(path)
        if not path.startswith(own) and len(told) < _MOST:
            told.append(path)
            log.write("temporary", path=path)

    making_directory = module.mkdtemp
    making_file = module._mkstemp_inner  # noqa: SLF001 - all kinds of files are made by it

    def mkdtemp(*args: Any, **kwargs: Any) -> Any:
        path = making_directory(*args, **kwargs)
        tell(path)
        return path

    def mkstemp_inner(*args: Any, **kwargs: Any) -> Any:
        fd, path = making_file(*args, **kwargs)
        tell(path)
        return fd, path

    mkdtemp.__doc__ = making_directory.__doc__
    module.mkdtemp = mkdtemp
    module._mkstemp_inner = mkstemp_inner  # noqa: SLF001
