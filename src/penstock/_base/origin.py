"""Whose child a process is, and that it dies with it.

Imports nothing that takes time: a fresh interpreter does this first, before its consumer can have died
unnoticed during the seconds that torch takes.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock._base import libc


class Origin(NamedTuple):
    """Who made a zygote or a nursery."""

    consumer: int  # its pid
    thread: int  # the id of the thread that forked; the main thread's is the pid


def die_with(origin: Origin) -> None:
    """Have the kernel kill this process, even a stopped one, with the consumer: NOTE [ No orphans ]."""
    if origin.thread != origin.consumer:
        return
    libc.die_with_parent()
    if os.getppid() != origin.consumer:  # it died before the line above
        os._exit(1)
