"""One trial: a fresh process that loads one work with one contender and measures itself.

    build loader | first batch | warm up, checked |==== timed window ====| check, close
                 ^ first_s                        t0,cpu0            t1,cpu1

The window lies inside one epoch and opens and closes with the prefetch queues in the same
state, so that what was prefetched before it is balanced by what is prefetched after it. It
ends by the clock, on a multiple of the number of workers.

CPU is user plus system time of **every** process of the trial, alive, dead or orphaned. Parents
only know of children that they have reaped, and workers may be grandchildren, so the trial lives
in a control group of its own and reads the group's counter (version 1 `cpuacct`, version 2
`cpu.stat`). Where no group can be made, the process tree is read from /proc: exact for living
processes and for reaped children, in steps of 10 ms, blind to children of a parent that ignores
SIGCHLD. `python -m bench.measure --check-cpu` holds both against processes that burn a known
amount.

Only the standard library, numpy and torch are imported here.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36

# One thread per process for everybody: otherwise contenders are charged for OpenMP's spinning,
# and those that leave the thread count alone for a choice that is not the subject here.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class CpuGroup:
    """A control group for one trial: its CPU counter and its members."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls) -> CpuGroup | None:
        """Make a group below our own, or return None where that is not allowed."""
        for parent in _own_groups():
            folder = parent / f"penstock-bench-{os.getpid()}-{time.monotonic_ns()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            group = cls(folder)
            if group._can_join():
                return group
            with contextlib.suppress(OSError):
                folder.rmdir()
        return None

    def _can_join(self) -> bool:
        script = f"echo $$ > {self.folder}/cgroup.procs"
        done = subprocess.run(["sh", "-c", script], stderr=subprocess.DEVNULL, check=False)
        return done.returncode == 0 and self._read() is not None

    def join(self) -> None:
        """Move the calling process, and with it all later descendants, into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self) -> None:
        """Move the calling process back to where it came from, and delete the group."""
        (self.folder.parent / "cgroup.procs").write_text(str(os.getpid()))
        self.remove()

    def cpu_s(self) -> float:
        value = self._read()
        assert value is not None
        return value

    def _read(self) -> float | None:
        with contextlib.suppress(OSError):
            return int((self.folder / "cpuacct.usage").read_text()) / 1e9
        with contextlib.suppress(OSError):
            for line in (self.folder / "cpu.stat").read_text().splitlines():
                if line.startswith("usage_usec"):
                    return int(line.split()[1]) / 1e6
        return None

    def members(self) -> list[int]:
        with contextlib.suppress(OSError):
            return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]
        return []

    def remove(self) -> None:
        """End what is left in the group and delete it."""
        for _ in range(100):
            for pid in self.members():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.02)


def _own_groups() -> Iterator[Path]:
    """Yield where groups of ours could be made: version 1 cpuacct first, then version 2."""
    mounts: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup" and "cpuacct" in options.split(","):
            mounts["cpuacct"] = Path(place)
        elif kind == "cgroup2":
            mounts[""] = Path(place)
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in mounts:
                yield mounts[name] / path.lstrip("/")


def tree(root: int | None = None) -> dict[int, list[str]]:
    """Return the fields of /proc/PID/stat after the name, for a process and its descendants."""
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text()
                stats[int(entry.name)] = text[text.rindex(")") + 2 :].split()
    found = {root or os.getpid()}
    grew = True
    while grew:
        more = {pid for pid, stat in stats.items() if int(stat[1]) in found} - found
        found |= more
        grew = bool(more)
    return {pid: stats[pid] for pid in found if pid in stats}


def tree_cpu_s() -> float:
    """Return CPU of the process tree below the caller, reaped children included."""
    # utime, stime, cutime, cstime are fields 14 to 17 of proc(5): 11 to 14 after the name.
    return sum(sum(map(int, stat[11:15])) for stat in tree().values()) * TICK_S


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that the tree keeps them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trial is asked to do."""

    work: str
    peer: str
    workers: int = 2
    warm_s: float = 1.0
    window_s: float = 3.0
    reference: str | None = None  # file written by `write_reference`
    group: str | None = None  # folder of the control group to join
    verify: bool = False  # a full period, every sample checked, nothing timed


@dataclass(slots=True)
class Outcome:
    """What a trial reports; rates are samples per second, CPU microseconds per sample."""

    ok: bool = True
    problem: str = ""
    rate: float = 0.0
    cpu_us: float = 0.0
    first_s: float = 0.0
    rate_with_start: float = 0.0
    cpu_us_with_start: float = 0.0
    close_s: float = 0.0
    samples: int = 0
    checked: str = ""  # exact, other order, close
    cpu_from: str = ""
    others: float = 0.0  # share of the machine that strangers used during the window


# Rounds of all workers in a window, whatever the clock says: batches come in bursts, and a window
# with few of them measures where in a burst it began.
MIN_TURNS = 10


# NOTE [ Checking ]: the two ways in which content is compared.
#
# The reference is one period of stock torch with num_workers=0: a checksum per sample and the
# structure of each batch. Contenders that promise torch's order must give the same checksums in
# the same order with the same structure ("exact"). Those that read shards give the same samples
# in an order of their own ("other order"): over a period each exactly once. DALI has a JPEG
# decoder of its own: its pixels may differ from Pillow's by a little ("close").
#
# The verifying pass holds each batch while the next ones are loaded and looks at it only then:
# a loader that reuses memory under the consumer's hands is found out.
HELD_BATCHES = 6


def write_reference(work_name: str, file: str) -> None:
    """Write the checksums of one period, made by stock torch in the same process."""
    from bench.peers import PEERS
    from bench.work import PERIOD, WORKS, shape_of

    work = WORKS[work_name]
    digests: list[list[int]] = []
    shapes: list[str] = []
    means: list[float] = []
    with PEERS["torch-0"].open(work, 0) as batches:
        for _ in range(PERIOD // work.batch_size):
            batch = next(batches)
            digests.append(work.digests(batch))
            shapes.append(shape_of(batch))
            means.append(_mean(batch))
    Path(file).write_text(json.dumps({"digests": digests, "shapes": shapes, "means": means}))


def _mean(batch: Any) -> float:
    return float(batch.double().mean()) if hasattr(batch, "double") else 0.0


class Checker:
    """Compare delivered batches with the reference. See NOTE [ Checking ]."""

    def __init__(self, work: Any, peer: Any, file: str) -> None:
        self.work = work
        self.peer = peer
        self.reference = json.loads(Path(file).read_text())
        self.known = Counter(crc for batch in self.reference["digests"] for crc in batch)
        self.seen: Counter[int] = Counter()
        self.in_order = True

    def check(self, number: int, batch: Any) -> None:
        """Raise unless `batch` is batch `number` of the epoch, or could be one."""
        from bench.work import shape_of

        if batch is None:  # raw delivers nothing
            return
        at = number % len(self.reference["digests"])
        if self.peer.is_close_for(self.work):
            gap = abs(_mean(batch) - self.reference["means"][at])
            if gap > 0.005 or shape_of(batch) != self.reference["shapes"][at]:
                raise AssertionError(f"batch {number}: mean differs by {gap:.4f}")
            return
        got = self.work.digests(batch)
        self.seen.update(got)
        wanted = self.reference["digests"][at]
        if got != wanted:
            self.in_order = False
        elif self.peer.is_drop_in and shape_of(batch) != self.reference["shapes"][at]:
            wanted_shape = self.reference["shapes"][at]
            raise AssertionError(f"batch {number} is {shape_of(batch)}, not {wanted_shape}")
        if self.peer.keeps_order and got != wanted:
            wrong = [n for n, pair in enumerate(zip(got, wanted, strict=False)) if len({*pair}) > 1]
            strange = sum(crc not in self.known for crc in got)
            raise AssertionError(
                f"batch {number}: {len(wrong)} of {len(wanted)} samples are not the right ones "
                f"(first at {wrong[:1]}, {strange} with content that no sample has)"
            )
        if any(crc not in self.known for crc in got):
            raise AssertionError(f"batch {number}: content that no sample has")

    def finish_period(self) -> None:
        """Raise unless one period was delivered, each sample exactly once."""
        if self.peer.delivers and not self.peer.is_close_for(self.work) and self.seen != self.known:
            lost = sum((self.known - self.seen).values())
            extra = sum((self.seen - self.known).values())
            raise AssertionError(f"{lost} samples lost, {extra} delivered twice")

    @property
    def verdict(self) -> str:
        if not self.peer.delivers:
            return "-"
        if self.peer.is_close_for(self.work):
            return "close"
        return "exact" if self.in_order else "other order"


def run_trial(plan: Plan) -> Outcome:
    """Run one trial in this process."""
    cpu_s, cpu_from = cpu_counter(plan.group)
    import torch

    from bench.peers import PEERS
    from bench.work import WORKS

    torch.set_num_threads(1)
    work, peer = WORKS[plan.work], PEERS[plan.peer]
    checker = Checker(work, peer, plan.reference) if plan.reference else None
    peer.prepare(work)
    out = Outcome(cpu_from=cpu_from)
    begin, begin_cpu = time.perf_counter(), cpu_s()
    with peer.open(work, plan.workers) as batches:
        if plan.verify:
            assert checker is not None
            _verify(batches, work, checker)
        else:
            time_window(batches, plan, work, checker, cpu_s, out)
            end, end_cpu = time.perf_counter(), cpu_s()
            out.rate_with_start = out.samples / (end - begin)
            out.cpu_us_with_start = (end_cpu - begin_cpu) / out.samples * 1e6
            out.first_s -= begin
        closing = time.perf_counter()
    out.close_s = time.perf_counter() - closing
    if checker is not None:
        out.checked = checker.verdict
    return out


def cpu_counter(folder: str | None) -> tuple[Callable[[], float], str]:
    """Join the control group and return its counter; without one, that of the process tree."""
    if folder is not None:
        group = CpuGroup(Path(folder))
        group.join()
        return group.cpu_s, "cgroup"
    become_subreaper()
    return tree_cpu_s, "proc"


def _verify(batches: Iterator[Any], work: Any, checker: Checker) -> None:
    from bench.work import PERIOD

    held: list[tuple[int, Any]] = []
    for number in range(PERIOD // work.batch_size):
        held.append((number, next(batches)))
        if len(held) > HELD_BATCHES:
            checker.check(*held.pop(0))
    for number, batch in held:
        checker.check(number, batch)
    checker.finish_period()


def time_window(
    batches: Iterator[Any],
    plan: Plan,
    work: Any,
    checker: Checker | None,
    cpu_s: Callable[[], float],
    out: Outcome,
) -> None:
    """Warm up, then fill in what one timed window shows."""
    consume = (lambda _: None) if plan.peer == "raw" else work.consume  # raw consumes in its workers
    group = max(1, plan.workers)  # workers answer in turns: count whole turns only
    batch = next(batches)
    out.first_s = time.perf_counter()
    number = 0
    end_of_warm = out.first_s + plan.warm_s
    while True:
        if checker is not None and number < 2:
            checker.check(number, batch)
        consume(batch)
        number += 1
        if number >= 4 * group and number % group == 0 and time.perf_counter() > end_of_warm:
            break
        batch = next(batches)
    opened = number
    busy = _machine_busy_s()
    t0, c0 = time.perf_counter(), cpu_s()
    end = t0 + plan.window_s
    while True:
        batch = next(batches)
        consume(batch)
        number += 1
        turns, rest = divmod(number - opened, group)
        if rest == 0 and turns >= MIN_TURNS and time.perf_counter() > end:
            break
    t1, c1 = time.perf_counter(), cpu_s()
    strangers_s = _machine_busy_s() - busy - (c1 - c0)
    out.others = max(0.0, strangers_s / (t1 - t0) / (os.cpu_count() or 1))
    samples = (number - opened) * work.batch_size
    out.rate = samples / (t1 - t0)
    out.cpu_us = (c1 - c0) / samples * 1e6
    out.samples = number * work.batch_size
    if checker is not None:
        checker.check(number - 1, batch)


def _machine_busy_s() -> float:
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _, _, irq, softirq, *_ = map(int, line.split()[1:])
    return (user + nice + system + irq + softirq) * TICK_S


def start_trial(plan: Plan, timeout_s: float = 120.0) -> Outcome:
    """Run one trial in a fresh process, and leave nothing of it behind."""
    group = CpuGroup.create()
    if group is not None:
        plan = Plan(**{**asdict(plan), "group": str(group.folder)})
    try:
        answer, problem = call("trial", asdict(plan), timeout_s, group)
    finally:
        if group is not None:
            group.remove()
    if problem:
        return Outcome(ok=False, problem=problem)
    return Outcome(**answer)


def call(
    task: str,
    values: dict[str, Any],
    timeout_s: float,
    group: CpuGroup | None = None,
    module: str = "bench.measure",
    wrap: tuple[str, ...] = (),
) -> tuple[Any, str]:
    """Run a task of a module in a fresh interpreter; return its answer and what went wrong."""
    path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as folder:
        answer, log = Path(folder) / "answer", Path(folder) / "log"
        with log.open("wb") as log_file:
            process = subprocess.Popen(
                [
                    *(*wrap, sys.executable, "-m", module, "--task", task),
                    *("--answer", str(answer), "--values", json.dumps(values)),
                ],
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, path))},
                stdout=log_file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            problem = ""
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                problem = f"not done after {timeout_s:.0f} s"
            finally:
                _end(process, group)
        if not problem and answer.exists():
            return json.loads(answer.read_text()), ""
        tail = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return None, problem or (tail[-1] if tail else f"exit status {process.returncode}")


def _end(process: subprocess.Popen[bytes], group: CpuGroup | None) -> None:
    for pid in group.members() if group is not None else []:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _burn(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def check_cpu(seconds: float = 0.5) -> dict[str, float]:
    """Burn CPU in a child, an orphan and a living grandchild; return what was counted of it.

    The true amount is four times `seconds`: ourselves, a reaped child, a grandchild whose
    parent has died, and a grandchild that still lives below a living child.
    """
    group = CpuGroup.create()
    become_subreaper()
    if group is not None:
        group.join()
    before_tree, before_group = tree_cpu_s(), group.cpu_s() if group else 0.0
    ready, living = os.pipe()

    def fork(body: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            body()
        finally:
            os._exit(0)

    def fresh_burn() -> None:
        _burn(time.process_time() + seconds)

    def burn_and_stay() -> None:
        fresh_burn()
        os.write(living, b"x")
        time.sleep(60)

    def burn_and_tell() -> None:
        fresh_burn()
        os.write(living, b"x")

    fresh_burn()
    os.waitpid(fork(fresh_burn), 0)
    os.waitpid(fork(lambda: [fork(burn_and_tell), None][1]), 0)
    os.read(ready, 1)
    child = fork(lambda: os.waitpid(fork(burn_and_stay), 0))
    os.read(ready, 1)
    result = {"true_s": 4 * seconds, "tree_s": tree_cpu_s() - before_tree}
    if group is not None:
        result["cgroup_s"] = group.cpu_s() - before_group
    for pid in tree():
        if pid != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    os.waitpid(child, 0)
    if group is not None:
        group.leave()
    return result


TASKS: dict[str, Callable[..., Any]] = {
    "trial": lambda **values: asdict(run_trial(Plan(**values))),
    "reference": write_reference,
    "check-cpu": check_cpu,
}


def add_task_options(parser: argparse.ArgumentParser) -> None:
    """Add the options with which `call` starts a task."""
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--values", help=argparse.SUPPRESS)
    parser.add_argument("--answer", help=argparse.SUPPRESS)


def perform(tasks: dict[str, Callable[..., Any]], options: argparse.Namespace) -> None:
    """Carry out the task that `call` asked for, and write its answer."""
    answer = tasks[options.task](**json.loads(options.values))
    Path(options.answer).write_text(json.dumps(answer))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measure", description=__doc__)
    parser.add_argument("--check-cpu", action="store_true", help="hold the counters to the truth")
    add_task_options(parser)
    options = parser.parse_args()
    if options.task:
        perform(TASKS, options)
        return
    if not options.check_cpu:
        parser.error("nothing to do without --check-cpu; `python -m bench.run` runs the trials")
    answer, problem = call("check-cpu", {}, 60)
    print(problem or json.dumps(answer))


if __name__ == "__main__":
    main()
