"""Hold the thread pools and the allocator of a worker to one worker's share.

Every library believes that it has the machine to itself: with N workers that is N thread pools of all
CPUs. A worker gets one thread per library, set for those already loaded (the pools that threadpoolctl
knows, torch, OpenCV) and, through the environment, for those that the dataset imports later.

Runs in the zygote, before it forks workers, which inherit all of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from penstock._base import libc

_ONE_THREAD = (
    "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS "
    "NUMEXPR_NUM_THREADS NUMBA_NUM_THREADS POLARS_MAX_THREADS RAYON_NUM_THREADS OPENCV_FOR_THREADS_NUM "
    "ARROW_NUM_THREADS"
)
ENVIRONMENT = {**dict.fromkeys(_ONE_THREAD.split(), "1"), "TOKENIZERS_PARALLELISM": "false"}

# What malloc may keep for the next sample; more than any usual batch, less than would hurt.
KEPT_BYTES = 512 << 20

_controllers: dict[int, Any] = {}


def scan_pools() -> None:
    """Find the thread pools of the libraries loaded so far. Slow (milliseconds): done before a fork."""
    # Loading a library adds modules; without new ones the last scan still holds.
    loaded = len(sys.modules)
    if loaded in _controllers:
        return
    with contextlib.suppress(ImportError):
        from threadpoolctl import ThreadpoolController

        _controllers.clear()
        _controllers[loaded] = ThreadpoolController()


def tame() -> None:
    """Limit this process and all it forks to one thread per library."""
    os.environ.update(ENVIRONMENT)
    scan_pools()
    for controller in _controllers.values():
        controller.limit(limits=1)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        with contextlib.suppress(Exception):
            cv2.setNumThreads(0)  # 0 means: run in the calling thread
    libc.keep_freed_memory(KEPT_BYTES)
