"""Native frames of a worker, from py-spy where it is installed. It stops the process for a moment."""

from __future__ import annotations

import shutil
import subprocess

LIMIT_S = 5.0

_OURS = "penstock/_engine/"


def native_calls(pid: int, most: int = 12) -> list[str]:
    """The last calls of the main thread, native ones too, the latest first; none if they cannot be had."""
    tool = shutil.which("py-spy")
    if tool is None:
        return []
    try:
        done = subprocess.run(  # noqa: S603 - the user's own tool, no shell
            [tool, "dump", "--native", "--pid", str(pid)], capture_output=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    _, _, rest = done.stdout.decode(errors="replace").partition(f"\nThread {pid} ")
    calls: list[str] = []
    for line in rest.splitlines()[1:]:
        if not line.startswith(" ") or _OURS in line or len(calls) == most:
            break
        calls.append(line.strip())
    return calls
