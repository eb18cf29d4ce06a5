"""The first steps in a process: read the plan, open the log, wait for torch.

Runs before the program's first line, and takes a few milliseconds: only small modules are imported here.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from penstock._lab.inside import overlay, segments, temporaries, traced
from penstock._lab.inside.endings import Endings
from penstock._lab.inside.hook import ImportHook
from penstock._lab.inside.log import Log
from penstock._lab.inside.quiet import forked, quiet

_begun: list[Log] = []


def begin() -> None:
    """Observe this process, as the plan in the environment says."""
    if _begun:
        return
    plan = json.loads(os.environ["PENSTOCK_PLAN"])
    overlay.install()
    if not plan.get("log"):
        return
    quiet(traced.allow)()
    log = Log(plan["log"])
    _begun.append(log)
    process = _process()
    log.write("process", **process)
    endings = Endings(log, is_child=process["is_spawned"])
    endings.install()
    quiet(segments.install)(log)
    hook = ImportHook()
    hook.install()

    def patch() -> None:
        _patch(log, hook, endings)

    hook.when_imported("torch", patch)
    hook.when_imported("tempfile", lambda: quiet(temporaries.install)(log))
    os.register_at_fork(after_in_child=lambda: _forked(log))


@quiet
def _patch(log: Log, hook: ImportHook, endings: Endings) -> None:
    from penstock._lab.inside.observer import Observer
    from penstock._lab.plan import Plan

    observer = Observer(Plan.loads(os.environ["PENSTOCK_PLAN"]), log, endings)
    hook.when_imported("torch.utils.data.dataloader", observer.install)


@quiet
def _forked(log: Log) -> None:
    forked()
    log.forget()
    traced.allow()
    log.write("process", **{**_process(), "is_spawned": False, "start_method": "fork"})


def _process() -> dict[str, Any]:
    argv = list(getattr(sys, "orig_argv", ()))
    is_spawned = any("multiprocessing" in word and "spawn_main" in word for word in argv)
    is_forkserver = any("multiprocessing.forkserver" in word for word in argv)
    is_tracker = any("multiprocessing.resource_tracker" in word for word in argv)
    return {
        "parent": os.getppid(),
        "argv": [word[:300] for word in argv[:20]],
        "rank": _rank(),
        "python": sys.version.split()[0],
        "start_method": "spawn" if is_spawned else "forkserver" if is_forkserver else None,
        "is_spawned": is_spawned or is_forkserver or is_tracker,
    }


def _rank() -> int | None:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None
