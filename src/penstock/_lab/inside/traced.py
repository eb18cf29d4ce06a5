"""Let stacks of this process be read where Yama would not allow it: for anybody but its ancestors.

Ubuntu and others forbid to look into a process that is not one's own descendant. A process may lift that for
itself. Only done where it matters, and takes a millisecond there; a fork does not inherit it.
"""

from __future__ import annotations

import contextlib
import os
import sys

_PR_SET_PTRACER = 0x59616D61  # "Yama"
_ANY = -1


def allow() -> None:
    """Say that any process of this user may read our stacks."""
    if sys.platform != "linux" or os.geteuid() == 0:
        return
    with contextlib.suppress(OSError, AttributeError, ValueError):
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:  # noqa: PTH123 - pathlib is not loaded
            scope = int(file.read())
        if scope == 1:
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(_ANY), 0, 0, 0)
