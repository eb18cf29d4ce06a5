"""Watch a running patient: go on, or end it, and why. Notes what is seen on the way.

Runs in the thread of the trial. What a silence means is decided by `stall`; here it is carried out.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from penstock._base import host
from penstock._lab import look, residue, stall, tree, vitals
from penstock._lab.assemble import Seen
from penstock._lab.inside import page
from penstock._lab.journal import Journal
from penstock._lab.limits import Limits
from penstock._lab.look import Role
from penstock._lab.patient import Patient
from penstock._lab.plan import Plan
from penstock._lab.record import HostSeen, ProcessLook, Vitals
from penstock._lab.stall import Beat, Judgement, Stillness
from penstock._lab.tree import Process

TICK_S = 0.05
FRESH_S = 1.5  # stacks younger than that show what is
AGAIN_S = 5.0  # between two looks of one silence
MOST_EXTRA = 0.5  # of the time limit, on a machine that is busy with other things
NEWS_S = 1.0  # between two words of progress
ORPHANS_S = 1.0  # between two looks for names that nobody can remove
OUTLIVED_S = 6.0  # of a worker without its parent: torch's look for theirs every 5 s, between batches


def crowding(busy_s: float, idle_s: float, own_s: float) -> float:
    """The share of all CPU time that others had, where what was idle would not have been enough for them."""
    whole_s = busy_s + idle_s
    return max(0.0, busy_s - own_s - idle_s) / whole_s if whole_s > 0 else 0.0


class Watch:
    """What is seen of one patient."""

    def __init__(
        self,
        plan: Plan,
        patient: Patient,
        limits: Limits,
        on_progress: Callable[[str], None] | None,
        stop: threading.Event | None = None,
    ) -> None:
        self.journal = Journal(plan.log)
        self.pids: set[int] = {patient.pid}
        self.sockets: tuple[str, ...] = ()
        self._plan, self._patient, self._limits = plan, patient, limits
        self._tell = on_progress or (lambda _: None)
        self._began_at = self._told_at = time.monotonic()
        self._ended_at = self._began_at
        self._ended_by = "itself"
        self._scale = vitals.Scale(self._began_at)
        self._burden = vitals.Burden()
        self._vitals: list[Vitals] = []
        self._sample_at = self._began_at
        self._statuses: dict[int, tuple[int, float]] = {}
        self._looks: tuple[ProcessLook, ...] = ()
        self._looked_at = 0.0
        self._enough_at: float | None = None  # when the program had shown what the plan asks for
        self._crowded_s = 0.0  # so long had others had the CPUs by then
        self._cpus_at_start = host.cpu_seconds()
        self._still = Stillness()
        self._judgement: Judgement | None = None
        self._has_news = False
        self._stop = stop
        self._orphaned: dict[str, int] = {}
        self._orphaned_nbytes = 0
        self._orphans_at = 0.0
        self._without_parent: dict[int, float] = {}  # workers, and since when
        self._outlived: set[int] = set()
        self._hands: dict[int, tuple[str, int, int, object]] = {}

    @property
    def shm_names(self) -> set[str]:
        """Names in /dev/shm that one of the processes had in use."""
        return self._scale.shm_names

    @property
    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def until_the_end(self) -> None:
        """Watch until the program has ended, or shall be ended."""
        why = None
        while why is None:
            self._patient.pump(TICK_S)
            self._has_news |= self.journal.read()
            why = self._why_end(time.monotonic())
        self._ended_by, self._ended_at = why, self._patient.ended_at or time.monotonic()

    def _why_end(self, now: float) -> str | None:
        if self._patient.is_over or self._patient.is_crowd:
            return "processes" if self._patient.is_crowd else "itself"
        if self._patient.status is not None:
            return None  # the warden looks what it has left, and is over in a moment
        if self._is_enough(now) or self._is_stopped:
            return "stop" if self._is_stopped else "enough"
        if self._patient.printed > self._limits.output:
            return "output"
        if now - self._began_at - self._starved_s() >= self._plan.max_s:
            self._peek([each for each in tree.quick_below(self._patient.warden) if each.is_alive])
            return "time"
        return self._sample(now) if now >= self._sample_at else None

    def _is_enough(self, now: float) -> bool:
        """Whether the program has shown what the plan asks for.

        Of one that has made named segments the end is waited for, if it is not far: will they be left behind?
        And where others have the CPUs it shows less in the same time.
        """
        if self.journal.why_enough is None:
            return False
        if self._enough_at is None:
            self._enough_at = now
            self._crowded_s = self._crowding_s(now) if self.journal.is_by_time else 0.0
        longer_s = now - self._enough_at
        if longer_s >= self._plan.late_s:
            return True
        if longer_s < self._crowded_s and not self.journal.has_failed:
            return False
        return self.journal.segments.keys().isdisjoint(residue.shm_names())

    def _crowding_s(self, now: float) -> float:
        """How long others have kept the program from the CPUs: it has shown so much less in its time."""
        busy_s, idle_s = (new - old for new, old in zip(host.cpu_seconds(), self._cpus_at_start, strict=True))
        own_s = self._vitals[-1].cpu_s if self._vitals else 0.0
        return crowding(busy_s, idle_s, own_s) * (now - self._began_at)

    def _starved_s(self) -> float:
        """How long the program wanted to run and others had the CPUs: not its fault, up to a point."""
        elapsed_s = time.monotonic() - self._began_at
        if elapsed_s < self._plan.max_s or not self._vitals:
            return 0.0
        queued_s = look.beat(self._patient.pid, only_main=True).queued_s
        own = self._vitals[-1].cpu_s / (elapsed_s * host.cpu_count())  # its own workers had these
        return min(queued_s * max(0.0, 1.0 - own), self._plan.max_s * MOST_EXTRA, self._plan.extra_s)

    def _sample(self, now: float) -> str | None:
        processes = tree.quick_below(self._patient.warden)
        self.pids |= {process.pid for process in processes}
        self._note_zombies(now, processes)
        alive = [process for process in processes if process.is_alive]
        if len(alive) > self._limits.processes:
            return "processes"
        is_short = self._runs_out(alive)
        self._vitals.append(self._scale.weigh(now, self._patient.pid, processes, self.journal.batches))
        if is_short:
            return "memory"
        self._sample_at = time.monotonic() + vitals.SAMPLE_S
        self._tell_progress(now)
        self._note_orphans(now, [process.pid for process in alive])
        self._note_outlived(now, alive)
        return "stall" if self._is_stalled(now, alive) else None

    def _note_orphans(self, now: float, alive: list[int]) -> None:
        """Keep the most names in /dev/shm that were there without anybody who could remove them.

        What fails leaves names too: how much room they took is asked only before that.
        """
        if now < self._orphans_at:
            return
        self._orphans_at = now + ORPHANS_S
        names = residue.orphaned(self.pids, alive, self.journal.segments)
        if not names or (self.journal.has_failed and len(names) <= len(self._orphaned)):
            return
        held = residue.mapped_names(alive)
        names = {name: pid for name, pid in names.items() if name not in held}
        self._orphaned = max(names, self._orphaned, key=len)
        if not self.journal.has_failed:
            self._orphaned_nbytes = max(self._orphaned_nbytes, residue.taken(names))

    def _note_outlived(self, now: float, alive: list[Process]) -> None:
        """Note workers that are long without the process that they work for: the warden has adopted them."""
        for process in alive:
            if vitals.is_worker(process) and process.parent == self._patient.warden:
                since = self._without_parent.setdefault(process.pid, now)
                if now - since >= OUTLIVED_S:
                    self._outlived.add(process.pid)

    def _note_zombies(self, now: float, processes: list[Process]) -> None:
        for process in processes:
            status = vitals.exit_status(process)
            if status is not None and process.pid not in self._statuses:
                self._statuses[process.pid] = (status, now)

    def _runs_out(self, alive: list[Process]) -> bool:
        """Whether memory runs out; who holds what is noted then.

        The kernel may have been faster, and ended one of them meanwhile: then the program goes on, and tells.
        """
        if not self._is_memory_short(alive):
            return False
        self._weigh(alive)
        return self._is_memory_short(alive)

    def _is_memory_short(self, alive: list[Process]) -> bool:
        limits = self._limits
        used = self._burden.weigh(time.monotonic(), alive, doubt=limits.memory // 2)
        if used < limits.memory // 2:
            return False
        # The machine may be full before the limit is reached; but then most must be the patient's doing.
        is_full = limits.least_free > 0 and host.memory_available() < limits.least_free
        return used >= limits.memory or is_full

    def _tell_progress(self, now: float) -> None:
        if now - self._told_at < NEWS_S:
            return
        self._told_at = now
        if self._still.seconds >= stall.PEEK_S:
            self._tell(f"nothing has moved for {self._still.seconds:.0f} s")
        elif self.journal.batches:
            self._tell(f"{self.journal.batches} batches")
        else:
            self._tell("starting" if not self.journal.consumers else "waiting for the first batch")

    def _is_stalled(self, now: float, alive: list[Process]) -> bool:
        if self._has_news or not self._consumers(alive):
            self._has_news, self._judgement = False, None
            self._still.reset()
            return False
        hands = page.read(self._plan.log)
        if hands != self._hands:
            self._hands = dict(hands)
            self._still.reset()
        seconds = self._still.see(now, self._beats(alive))
        if seconds < stall.PEEK_S:
            self._judgement = None
            return False
        if self._judgement is None or now - self._looked_at >= AGAIN_S:
            self._peek(alive)
        if seconds < self._after_s:
            return False
        if time.monotonic() - self._looked_at > FRESH_S:
            self._peek(alive)
        return seconds >= self._after_s

    @property
    def _after_s(self) -> float:
        return self._judgement.after_s if self._judgement is not None else stall.NEVER

    def _peek(self, alive: list[Process]) -> None:
        self._look(alive)
        here = {process.pid for process in alive}
        expected = {pid for crew in self.journal.crews.values() for pid in crew}
        self._judgement = stall.judge(
            self._looks,
            missing=len(expected - here),
            has_lost_batch=self.journal.has_lost_batch,
            waiting=self.journal.waiting,
        )
        self._still.excuse(time.monotonic(), self._beats(alive))

    def _look(self, processes: list[Process]) -> None:
        self._tell("reading stacks")
        self._looks = look.take(processes, self._roles(processes))
        self._looked_at = time.monotonic()

    def _weigh(self, alive: list[Process]) -> None:
        """Who holds what, without stacks: memory may run out while they are read."""
        roles = self._roles(alive)
        self._looks = tuple(
            ProcessLook(each.pid, each.parent, role.name, role.worker, role.loader, role.index, uss=weighed)
            for each, role, weighed in (
                (each, roles[each.pid], vitals.weight(each.pid).uss) for each in alive
            )
        )

    def _consumers(self, alive: list[Process]) -> set[int]:
        """Those that have told it, and those that have workers of torch's."""
        return self.journal.consumers | {process.parent for process in alive if vitals.is_worker(process)}

    def _beats(self, alive: list[Process]) -> dict[int, Beat]:
        consumers = self._consumers(alive)
        with_workers = {process.parent for process in alive if vitals.is_worker(process)}
        beats = {}
        for process in alive:
            if process.pid in consumers:
                # Without worker processes any thread of it may be the one that loads.
                beats[process.pid] = look.beat(process.pid, only_main=process.pid in with_workers)
            elif process.pid != self._patient.pid:  # else it only waits for those that iterate
                beats[process.pid] = look.beat(process.pid, only_main=False)
        return beats

    def _roles(self, processes: list[Process]) -> dict[int, Role]:
        hands = page.read(self._plan.log)
        consumers = self._consumers(processes)
        roles = {}
        for process in processes:
            pid = process.pid
            loader, worker = self.journal.workers.get(pid, (None, None))
            in_hand, _, number, index = hands.get(pid, (None, 0, None, None))
            roles[pid] = Role(
                self._role(process, consumers),
                worker if worker is not None else number,
                loader or in_hand,
                index,
            )
        return roles

    def _role(self, process: Process, consumers: set[int]) -> str:
        if process.pid == self._patient.pid:
            return "main"
        if process.pid in self.journal.workers or vitals.is_worker(process):
            return "worker"
        return "rank" if process.pid in consumers else "other"

    def note_holdings(self) -> None:
        """Just before all is ended: what the processes hold outside of themselves."""
        processes = [process for process in tree.below(self._patient.warden) if process.is_alive]
        pids = [process.pid for process in processes]
        self.journal.read()
        self.pids |= set(pids) | self.journal.pids
        self._scale.shm_names |= residue.mapped_names(pids) | set(self.journal.segments)
        self.sockets = residue.socket_paths(pids)

    def seen(self, host_seen: HostSeen, left: tuple[str, ...]) -> Seen:
        """All of it, once the patient is closed."""
        self.journal.read()
        patient, is_own_end = self._patient, self._ended_by == "itself"
        refused = f"could not be started: {patient.refused}\n" if patient.refused else ""
        return Seen(
            began_at=self._began_at,
            ended_at=self._ended_at,
            main=patient.pid,
            ended_by=self._ended_by,
            status=self._status() if is_own_end else None,
            host=host_seen,
            looks=self._looks if self._ended_by in {"stall", "time", "memory"} else (),
            vitals=tuple(self._vitals),
            stdout=patient.stdout.text(),
            stderr=refused + patient.stderr.text(),
            left_processes=len(patient.left) if is_own_end else 0,
            left_workers=patient.left.count(vitals.WORKER_NAME) if is_own_end else 0,
            outlived_workers=len(self._outlived),
            left_shm=left if is_own_end else (),
            orphaned_shm=tuple(sorted(self._orphaned)),
            orphaned_by=len(set(self._orphaned.values())),
            orphaned_nbytes=self._orphaned_nbytes,
            impossible=patient.impossible,
            judgement=self._judgement.kind if self._judgement and self._ended_by == "stall" else "",
            still_s=self._still.seconds,
            is_hung=self._still.seconds >= max(self._after_s / 2, stall.KNOWN_S),
            statuses={**self._statuses, **(patient.reaped if is_own_end else {})},
            in_hand=page.read(self._plan.log),
        )

    def _status(self) -> int:
        if self._patient.status is not None:
            return self._patient.status
        return -signal.SIGKILL  # the program has killed its warden, and the kernel the program with it
