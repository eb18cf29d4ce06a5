"""Named segments of shared memory that the program makes: each name is told, so that it can be found later.

Such a segment lives until it is unlinked, whoever has it open: one that was closed at once is seen by nobody.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from penstock._lab.inside.log import Log
from penstock._lab.inside.quiet import quiet


def install(log: Log) -> None:
    """Put our function around the one with which `multiprocessing.shared_memory` makes segments."""
    try:
        module: Any = importlib.import_module("_posixshmem")
    except ImportError:  # not on this system
        return
    opening = module.shm_open

    def shm_open(path: str, flags: int, mode: int = 0o777) -> Any:
        fd = opening(path, flags, mode=mode)
        if flags & os.O_CREAT:
            quiet(log.write)("segment", name=path.lstrip("/"))
        return fd

    module.shm_open = shm_open
