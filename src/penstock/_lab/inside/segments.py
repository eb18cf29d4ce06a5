"""Named segments of shared memory that the program makes: each name is told, so that it can be found later.

Such a segment lives until it is unlinked, whoever has it open: one that was closed at once is seen by nobody.
"""

from __future__ import annotations

import os
from typing import Any

from penstock._lab.inside.log import Log
from penstock._lab.inside.quiet import quiet


def install(log: Log) -> None:
    """Put our function around the one with which `multiprocessing.shared_memory` makes segments."""
    try:
        import _posixshmem
    except ImportError:  # not on this system
        return
    module: Any = _posixshmem
    opening = module.shm_open

    def shm_open(path: str, flags: int, mode: int = 0o777) -> Any:
        fd = opening(path, flags, mode=mode)
        if flags & os.O_CREAT:
            quiet(log.write)("segment", name=path.lstrip("/"))
        return fd

    module.shm_open = shm_open
