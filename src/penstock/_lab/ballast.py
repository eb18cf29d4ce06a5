"""A small process that the kernel kills before the doctor, where a cgroup limits memory.

When memory is short the kernel chooses the patient (`warden.OOM_SCORE`). But while one of its processes dies,
somebody who reads its /proc files keeps its memory alive; if that reader then needs a page itself, nobody but
the doctor would be left to choose from. The ballast is: it goes, and its few megabytes are enough to go on.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock._base import host
from penstock._lab.limits import is_limited

SCORE = "500"  # below that of the patient, above that of everybody else
END_S = 5.0

# Until the doctor has closed the pipe, or is dead.
_WAIT = "import sys; open('/proc/self/oom_score_adj', 'w').write(sys.argv[1]); sys.stdin.buffer.read()"


@contextlib.contextmanager
def ballast(root: Path = host.ROOT) -> Iterator[subprocess.Popen[bytes] | None]:
    """Have one for as long as the context lasts; None where memory is not limited, or none can be started."""
    process = _start() if is_limited(root) else None
    try:
        yield process
    finally:
        if process is not None:
            process.kill()
            process.communicate(timeout=END_S)


def _start() -> subprocess.Popen[bytes] | None:
    with contextlib.suppress(OSError):
        return subprocess.Popen(  # noqa: S603 - our own Python
            [sys.executable, "-I", "-S", "-c", _WAIT, SCORE],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    return None
