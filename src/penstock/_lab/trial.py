"""One bounded run of somebody else's program, watched from outside.

    run ──▶ Patient (warden, processes, output) ─┐
            Journal (events from inside)         ├─ every tenth of a second ─▶ go on, or end it, and why
            Scale (memory, descriptors)          │
            Watch (stillness, looks)            ─┘                           ─▶ assemble ─▶ Trial

Guarantees, whatever the program does:

* `run` returns within `plan.max_s` and the few seconds that looking and killing take.
* Afterwards no process of it is left, nor the trial's folder, nor what it made in /dev/shm or left of its
  sockets and temporary files; the same when `run` is interrupted. When this process is killed, processes
  and folder are gone too, not the rest.
* The program runs in its own session, with the user's directory, arguments and environment, and /dev/null to
  read from. Its temporary files go to the trial's folder, unless TMPDIR names a directory that holds data
  already, or one with a long name: the length of that name is an illness of its own.

Any thread may run a trial; several may at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import resource
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock._base import host
from penstock._lab import residue, tree
from penstock._lab.assemble import assemble
from penstock._lab.ballast import ballast
from penstock._lab.inside import overlay
from penstock._lab.journal import create
from penstock._lab.limits import Limits
from penstock._lab.patient import Order, Patient
from penstock._lab.plan import VARIABLE, Plan
from penstock._lab.record import HostSeen, Trial
from penstock._lab.target import Target
from penstock._lab.watch import Watch

LONG_TMPDIR = 40  # characters; a socket's path may have 107, of which torch needs about 35

_SITE = str(Path(__file__).parent / "inside" / "site")
_OVERLAY = str(overlay.__file__)
_RUNNER = "examined.py"


def run(
    target: Target,
    plan: Plan,
    *,
    on_progress: Callable[[str], None] | None = None,
    limits: Limits | None = None,
    stop: threading.Event | None = None,
) -> Trial:
    """Run the target once as the plan says. `on_progress` gets a few words now and then; `stop` ends it."""
    with _folder() as folder:
        told = dataclasses.replace(plan, log=create(folder))
        shm, kills, seen_host = residue.shm_names(), host.oom_kills(), host_seen()
        bounds = limits or Limits.of_this_machine()
        order = dataclasses.replace(_order(target, told, folder), processes=bounds.processes)
        with ballast(), Patient(order) as patient:
            watch = Watch(told, patient, bounds, on_progress, stop)
            try:
                watch.until_the_end()
            finally:
                watch.note_holdings()
                patient.close()
                left = residue.left_in_shm(shm, watch.pids, watch.shm_names)
                residue.remove_shm(left)
                residue.remove_sockets(watch.sockets)
                watch.journal.read()
                residue.remove_temporaries(watch.journal.temporaries)
        seen_host = dataclasses.replace(seen_host, oom_kills=host.oom_kills() - kills)
        return assemble(plan, watch.journal.events(), watch.seen(seen_host, left))


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="penstock-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _order(target: Target, plan: Plan, folder: str) -> Order:
    env = {**os.environ, **_temporary(folder), **plan.change.env}
    env["PYTHONPATH"] = os.pathsep.join([_SITE, *filter(None, [env.get("PYTHONPATH")])])
    argv = target.command(f"{folder}/{_RUNNER}")
    if target.program is not None:
        Path(folder, _RUNNER).write_text(target.program)
    patched = {os.path.realpath(path): text for path, text in plan.change.patched.items()}
    if patched:
        Path(folder, "overlay.json").write_text(json.dumps(patched))
        env[overlay.VARIABLE] = f"{folder}/overlay.json"
        if target.module is None and os.path.realpath(target.file) in patched:
            argv = (*argv[:2], _OVERLAY, *argv[2:])
    # The texts travel in a file: a variable of the environment may hold 128 kB.
    told = dataclasses.replace(plan, change=dataclasses.replace(plan.change, patched={}))
    env[VARIABLE] = told.dumps()
    return Order(
        argv=argv, env=env, cwd=target.cwd, folder=folder,
        nofile=plan.change.nofile, shm_bytes=plan.change.shm_bytes,
    )  # fmt: skip


def _temporary(folder: str) -> dict[str, str]:
    """A temporary directory for the program, unless its own one matters to it."""
    users = Path(tempfile.gettempdir())
    if len(str(users)) > LONG_TMPDIR:
        return {}
    if any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP")) and _is_in_use(users):
        return {}  # a batch system's directory, into which data was copied before the job began
    own = Path(folder, "tmp")
    own.mkdir(mode=0o700)
    return {"TMPDIR": str(own)}


def _is_in_use(folder: Path) -> bool:
    return any(not path.name.startswith(("penstock-", "pymp-")) for path in folder.iterdir())


def host_seen() -> HostSeen:
    """The machine and the limits under which a trial begins."""
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108 - the mount itself
        size, free = shm.f_blocks * shm.f_frsize, shm.f_bavail * shm.f_frsize
    except OSError:
        size = free = 0
    stale, stale_nbytes = residue.stale()
    cpus = host.cpu_count()
    return HostSeen(
        cpus=float(min(cpus, host.cpu_quota() or cpus)),
        cores_seen=os.cpu_count() or 1,
        memory_limit=_memory_limit(),
        shm_size=size,
        shm_free=free,
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        tmpdir_length=len(tempfile.gettempdir()),
        max_map_count=int(tree.slurp("/proc/sys/vm/max_map_count") or 0),
        shm_stale=stale,
        shm_stale_nbytes=stale_nbytes,
        python=platform.python_version(),
    )


def _memory_limit() -> int:
    """Of the machine, the cgroup or `ulimit -v`, whichever is least."""
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return host.memory_total() if space == resource.RLIM_INFINITY else min(space, host.memory_total())
