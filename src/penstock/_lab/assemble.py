"""What the patient's processes reported, and what was seen from outside, as one `Trial`. Pure.

Guarantees:

* An event that lacks a field, or has one too many, spoils nothing but itself.
* Iterators are told apart by process, loader and number: several ranks may use the same names.
* All times are seconds since the trial began.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock._lab import stall
from penstock._lab.plan import Plan
from penstock._lab.record import (
    DatasetSeen,
    Death,
    Failure,
    FetchSeen,
    HostSeen,
    IteratorSeen,
    LoaderSeen,
    ProcessLook,
    SampleSeen,
    Thing,
    Trial,
    Vitals,
    from_json,
)

FIRST_WAIT_S = 30.0
LONG_WAIT_S = 10.0  # for one batch, at the time limit: with no batch after that long, nobody calls it slow
ENDING_S = 10.0  # what a program takes to end at most: torch joins workers for 5 s, each
LATE_S = 0.5  # a pass is closed a little after what it raised was heard
_EXPECTED_ENDS = (0, -signal.SIGTERM)  # of a worker that its loader has ended
_GONE = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:exited unexpectedly|is killed)")

Event = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen from outside; times on the clock of the events."""

    began_at: float
    ended_at: float
    main: int = 0
    ended_by: str = "itself"
    status: int | None = None
    host: HostSeen = field(default_factory=HostSeen)
    looks: tuple[ProcessLook, ...] = ()
    vitals: tuple[Vitals, ...] = ()
    stdout: str = ""
    stderr: str = ""
    left_processes: int = 0
    left_workers: int = 0
    outlived_workers: int = 0
    left_shm: tuple[str, ...] = ()
    orphaned_shm: tuple[str, ...] = ()
    orphaned_by: int = 0
    orphaned_nbytes: int = 0
    impossible: str = ""
    judgement: str = ""
    still_s: float = 0.0
    is_hung: bool = False  # at the time limit: nothing moved, and it would soon have been called a stall
    statuses: Mapping[int, tuple[int, float]] = field(default_factory=dict)  # of processes that ended
    in_hand: Mapping[int, tuple[str, int, int, Any]] = field(default_factory=dict)  # samples, by pid


def assemble(plan: Plan, events: Iterable[Event], seen: Seen) -> Trial:
    """Put a trial together."""
    listed = sorted(events, key=lambda event: event["at"])
    of: dict[str, list[Event]] = {}
    for event in listed:
        of.setdefault(event["kind"], []).append(event)
    passes = _Passes(seen)
    for event in listed:
        passes.take(event)
    deaths = _deaths(of, seen)
    failures = tuple(_each(of.get("failed", ()), lambda event: _failure(event, seen)))
    iterators = passes.iterators()
    trial = Trial(
        plan=plan,
        ended_by=seen.ended_by,
        status=seen.status,
        is_abrupt=_is_abrupt(of, seen),
        seconds=max(0.0, seen.ended_at - seen.began_at),
        host=_host(seen.host, of.get("torch", ())),
        loaders=_loaders(of),
        iterators=iterators,
        samples=tuple(_each(of.get("sample", ()), _sample)),
        fetches=tuple(_each(of.get("fetch", ()), lambda event: _fetch(event, seen))),
        failures=failures,
        deaths=deaths,
        looks=seen.looks,
        vitals=seen.vitals,
        warnings=tuple(dict.fromkeys(str(event.get("text", "")) for event in of.get("warned", ()))),
        stdout=seen.stdout,
        stderr=seen.stderr,
        left_processes=seen.left_processes,
        left_workers=seen.left_workers,
        outlived_workers=seen.outlived_workers,
        left_shm=seen.left_shm,
        orphaned_shm=seen.orphaned_shm,
        orphaned_by=seen.orphaned_by,
        orphaned_nbytes=seen.orphaned_nbytes,
        impossible=seen.impossible or _not_made(plan, of.get("mend", ())),
        judgement=seen.judgement,
        still_s=seen.still_s,
    )
    return replace(trial, outcome=outcome(trial, is_hung=seen.is_hung))


def _is_abrupt(of: dict[str, list[Event]], seen: Seen) -> bool:
    """Whether Python was running in the program, and was never told that it ends."""
    pids = {kind: {event["pid"] for event in of.get(kind, ())} for kind in ("process", "program")}
    return seen.ended_by == "itself" and seen.main in pids["process"] - pids["program"]


def _not_made(plan: Plan, events: Iterable[Event]) -> str:
    """The first repair of the plan that no process could make, and why."""
    told = list(events)
    for name in plan.change.mends:
        own = [event for event in told if event.get("name") == name.partition(":")[0]]
        if own and not any(event.get("done") for event in own):
            return f"{name}: {own[0].get('why')}"
    return ""


def outcome(trial: Trial, *, is_hung: bool = False) -> str:
    """How the trial went: "ok", "error", "hang", "crash" or "oom"."""
    was_killed = trial.status == -signal.SIGKILL or any(
        death.status == -signal.SIGKILL for death in trial.deaths
    )
    if trial.ended_by == "memory" or (trial.host.oom_kills and was_killed):
        return "oom"
    if trial.ended_by == "stall" or (trial.ended_by == "time" and (is_hung or _waited_too_long(trial))):
        return "hang"
    if trial.deaths or (trial.status or 0) < 0:
        return "crash"
    has_failed = trial.plan.drive == "loader" and any(failure.is_fatal for failure in trial.failures)
    if trial.status or has_failed or trial.ended_by in {"output", "processes"} or _was_ending(trial):
        return "error"
    return "ok"


def _was_ending(trial: Trial) -> bool:
    """Whether the trial was cut while a program ended of what it had just heard from a loader."""
    heard = [failure for failure in trial.failures if failure.phase == "next"]
    last_s = max((failure.at_s for failure in heard), default=0.0)
    if not heard or trial.ended_by not in {"enough", "time"} or trial.seconds - last_s > ENDING_S:
        return False
    if any(each.pid == one.pid and each.at_s > one.at_s + LATE_S for one in heard for each in heard):
        return False  # it has gone on from one of them already
    return not _took_batches_after(trial, last_s) and not any(
        seen.end == "open" or max(seen.began_s, seen.ended_s or 0.0) > last_s + LATE_S
        for seen in trial.iterators
    )


def _took_batches_after(trial: Trial, heard_s: float) -> bool:
    """Whether batches came after a failure, from the same iterator perhaps."""
    until = [seen.batches for seen in trial.vitals if seen.at_s <= heard_s + LATE_S]
    return max((seen.batches for seen in trial.vitals), default=0) > max(until, default=0)


def _waited_too_long(trial: Trial) -> bool:
    workers = [look for look in trial.looks if look.role == "worker"]
    if any(look.cpu_moved or look.read_moved for look in workers or trial.looks):
        return False  # slow: still at it
    for seen in trial.iterators:
        if seen.waiting_since_s is not None:
            waited = trial.seconds - seen.waiting_since_s
            # The first batch also waits for workers to start, which on a busy machine takes its time.
            usual = 5 * max(seen.waits) if seen.waits else FIRST_WAIT_S
            if waited >= max(LONG_WAIT_S, usual):
                return True
    return False


class _Passes:
    """Iterators in the making."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._made: dict[tuple[int, str, int], dict[str, Any]] = {}
        self._iter_at: dict[tuple[int, str, int], float] = {}
        self._news: dict[tuple[int, str, int], dict[str, str]] = {}  # by a worker's pid
        self._takers: dict[str, Callable[[tuple[int, str, int], dict[str, Any], Event], None]] = {
            "iter": self._iter,
            "started": self._started,
            "next": self._next,
            "batch": self._batch,
            "ended": self._ended,
        }

    def take(self, event: Event) -> None:
        """One more event; others than those of iterators are passed over."""
        if event["kind"] == "news":
            self._news[event["pid"], str(event.get("loader")), int(event.get("number") or 0)] = dict(
                event.get("changed") or {}
            )
        taker = self._takers.get(event["kind"])
        if taker is None or not isinstance(event.get("loader"), str):
            return
        key = (event["pid"], event["loader"], int(event.get("number") or 0))
        made = self._made.setdefault(
            key, {"loader": key[1], "number": key[2], "pid": key[0], "began_s": self._time(event)}
        )
        try:
            taker(key, made, event)
        except (TypeError, ValueError, KeyError):
            return

    def iterators(self) -> tuple[IteratorSeen, ...]:
        """All of them, in the order in which they began."""
        found = []
        waiting = {look.pid for look in self._seen.looks if stall.wait_of(look) in {"batch", "start"}}
        for key, made in self._made.items():
            quiet_since = made.pop("quiet_since", None)
            is_last = key == self._last_open(key[0])
            if made.get("waiting_since_s") is None and key[0] in waiting and is_last:
                made["waiting_since_s"] = quiet_since
            waits, steps = tuple(made.pop("waits", ())), tuple(made.pop("steps", ()))
            made["workers_changed"] = self._workers_changed(key, made.get("workers", ()))
            found.append(IteratorSeen(**made, waits=waits, steps=steps))
        return tuple(sorted(found, key=lambda seen: seen.began_s))

    def _workers_changed(self, key: tuple[int, str, int], pids: tuple[int, ...]) -> dict[str, str] | None:
        told = [
            news for (pid, *of), news in self._news.items() if of == [*key[1:]] and (pid in pids or not pids)
        ]
        if not told:
            return None
        return dict(set.intersection(*(set(each.items()) for each in told)))

    def _last_open(self, pid: int) -> tuple[int, str, int] | None:
        still = [
            key for key, made in self._made.items() if key[0] == pid and made.get("end", "open") == "open"
        ]
        return still[-1] if still else None

    def _time(self, event: Event) -> float:
        return float(event["at"]) - self._seen.began_at

    def _iter(self, key: tuple[int, str, int], made: dict[str, Any], event: Event) -> None:
        self._iter_at[key] = event["at"]
        made["began_s"] = self._time(event)
        made["threads"] = tuple(map(str, event.get("threads") or ()))
        made["native_threads"] = int(event.get("native_threads") or 0)
        made["live_iterators"] = int(event.get("live") or 0)
        made["changed"] = dict(event.get("changed") or {})
        made["used"] = tuple(event.get("used") or ())
        made["waiting_since_s"] = made["quiet_since"] = self._time(event)

    def _started(self, key: tuple[int, str, int], made: dict[str, Any], event: Event) -> None:
        made["start_s"] = event["at"] - self._iter_at.get(key, event["at"])
        made["workers"] = tuple(event.get("workers") or ())
        made["waiting_since_s"], made["quiet_since"] = None, self._time(event)

    def _next(self, _: tuple[int, str, int], made: dict[str, Any], event: Event) -> None:
        made["waiting_since_s"] = made["quiet_since"] = self._time(event)

    def _batch(self, key: tuple[int, str, int], made: dict[str, Any], event: Event) -> None:
        made["waiting_since_s"], made["quiet_since"] = None, self._time(event)
        made["batches"] = max(made.get("batches", 0), int(event.get("batch") or 0)) + 1
        if "first_s" not in made:
            made["first_s"] = event["at"] - self._iter_at.get(key, event["at"])
        for name, values in (("wait", "waits"), ("step", "steps")):
            if event.get(name) is not None:
                made.setdefault(values, []).append(float(event[name]))
        fields = {
            "tensors": "tensors_per_batch",
            "nbytes": "batch_nbytes",
            "pickled": "pickled_nbytes",
        }
        for name, target in fields.items():
            if event.get(name) is not None:
                made[target] = max(made.get(target, 0), int(event[name]))
        if event.get("kept") is not None:
            made["kept"] = int(event["kept"])
        made["samples"] = made.get("samples", 0) + int(event.get("samples") or 0)

    def _ended(self, _: tuple[int, str, int], made: dict[str, Any], event: Event) -> None:
        made["end"] = str(event.get("end") or "dropped")
        made["ended_s"] = self._time(event)
        made["waiting_since_s"] = None
        if event.get("shutdown") is not None:
            made["shutdown_s"] = float(event["shutdown"])
        if event.get("batches") is not None:
            made["batches"] = max(made.get("batches", 0), int(event["batches"]))
        if event.get("samples") is not None:
            made["samples"] = max(made.get("samples", 0), int(event["samples"]))


def _deaths(of: Mapping[str, list[Event]], seen: Seen) -> tuple[Death, ...]:
    """Processes that ended badly: as their parents told, as the warden read, as they were found."""
    workers = _workers(of)
    found: dict[int, Death] = {}
    for event in of.get("died", ()):
        pid, status = event.get("child"), event.get("status")
        if not isinstance(pid, int) or status == -signal.SIGTERM:
            continue  # status 0 is told only of workers that should have gone on
        found[pid] = Death(
            pid=pid, worker=event.get("worker"), loader=event.get("loader"), status=status,
            at_s=event["at"] - seen.began_at,
        )  # fmt: skip
    for pid, at in _told_gone(of):
        loader, worker = workers.get(pid, (None, None))
        status = seen.statuses.get(pid, (None, 0.0))[0]
        found.setdefault(pid, Death(pid, worker, loader, status, at_s=at - seen.began_at))
    program_ended_at = seen.statuses.get(seen.main, (0, math.inf))[1]
    for pid, (status, at) in seen.statuses.items():
        if pid in found or status in _EXPECTED_ENDS or (pid == seen.main and status >= 0):
            continue
        if pid != seen.main and at >= program_ended_at:
            continue  # it went with the program, as it should
        is_ours = pid == seen.main or pid in workers
        if is_ours and not (status == -signal.SIGKILL and _was_removed(pid, of, seen)):
            loader, worker = workers.get(pid, (None, None))
            found[pid] = Death(pid, worker, loader, status, at_s=at - seen.began_at)
    return tuple(_with_sample(death, seen) for death in found.values())


def _was_removed(pid: int, of: Mapping[str, list[Event]], seen: Seen) -> bool:
    """Whether the program killed a worker on purpose, together with the process of its own that had it.

    Nobody else kills so: the kernel would count it, and a consumer that lives tells of a worker's death.
    """
    consumers = {event["pid"] for event in of.get("started", ()) if pid in (event.get("workers") or ())}
    return bool(consumers) and seen.main not in consumers and not seen.host.oom_kills


def _told_gone(of: Mapping[str, list[Event]]) -> Iterator[tuple[int, float]]:
    """Workers that torch itself found missing, whatever their status."""
    for event in of.get("failed", ()):
        for match in _GONE.finditer(str(event.get("text"))):
            yield from ((int(word), event["at"]) for word in match[1].replace(",", " ").split())


def _workers(of: Mapping[str, list[Event]]) -> dict[int, tuple[str | None, int | None]]:
    found: dict[int, tuple[str | None, int | None]] = {}
    for event in of.get("worker", ()):
        found[event["pid"]] = (event.get("loader"), event.get("worker"))
    for event in of.get("started", ()):
        for number, pid in enumerate(event.get("workers") or ()):
            found[pid] = (event.get("loader"), number)
    return found


def _with_sample(death: Death, seen: Seen) -> Death:
    if death.pid not in seen.in_hand:
        return death
    loader, _, worker, index = seen.in_hand[death.pid]
    return replace(
        death,
        index=_freeze(index),
        worker=death.worker if death.worker is not None else (worker if worker >= 0 else None),
        loader=death.loader or loader,
    )


def _loaders(of: Mapping[str, list[Event]]) -> tuple[LoaderSeen, ...]:
    """Each loader of each process once, as it was told last, with all things that were ever seen on it."""
    found: dict[tuple[int, str], LoaderSeen] = {}
    for event in of.get("loader", ()):
        for seen in _each([event], lambda event: _record(LoaderSeen, event)):
            found[event["pid"], seen.key] = seen
    for event in of.get("things", ()):
        key = (event["pid"], str(event.get("loader")))
        things = tuple(_each(event.get("things") or (), lambda thing: _record(Thing, thing)))
        for each in [key] if key in found else [other for other in found if other[1] == key[1]]:
            found[each] = replace(found[each], things=_joined(found[each].things, things))
    for event in of.get("dataset", ()):
        key = (event["pid"], str(event.get("loader")))
        if key in found:
            found[key] = replace(found[key], dataset=_told_of(found[key].dataset, event))
    return tuple(found.values())


def _told_of(dataset: DatasetSeen, event: Event) -> DatasetSeen:
    """A dataset with what our own loop has found out about it."""
    return replace(
        dataset,
        reach=event.get("reach"),
        part=str(event.get("part") or ""),
        part_length=event.get("part_length"),
        past=tuple(map(str, event.get("past") or ())),
        mutated=tuple(map(str, event.get("mutated") or ())),
        drifts=bool(event.get("drifts")),
    )


def _joined(old: tuple[Thing, ...], new: tuple[Thing, ...]) -> tuple[Thing, ...]:
    return tuple({(thing.path, thing.kind): thing for thing in (*old, *new)}.values())


def _failure(event: Event, seen: Seen) -> Failure:
    made = _record(Failure, event)
    if made.phase == "program" and _is_of_length(made):
        made = replace(made, phase="length")
    return replace(made, at_s=event["at"] - seen.began_at, index=_freeze(made.index))


def _is_of_length(failure: Failure) -> bool:
    """Whether a loader or a sampler asked the dataset for its length, and got this for an answer."""
    asked = failure.site is not None and failure.site.symbol.rpartition(".")[2] == "__len__"
    return asked and "torch/utils/data/" in failure.traceback


def _sample(event: Event) -> SampleSeen:
    made = _record(SampleSeen, event)
    return replace(made, index=_freeze(made.index))


def _fetch(event: Event, seen: Seen) -> FetchSeen:
    made = _record(FetchSeen, event)
    made = replace(made, indices=tuple(map(_freeze, made.indices)))
    # The observer gives times on its clock, which counts from the machine's start.
    return replace(
        made, began_s=made.began_s - seen.began_at if made.began_s else event["at"] - seen.began_at
    )


def _host(host: HostSeen, told: Iterable[Event]) -> HostSeen:
    for event in told:
        return replace(
            host,
            torch=str(event.get("version") or ""),
            default_start_method=str(event.get("default_start_method") or ""),
            has_cuda=bool(event.get("has_cuda")),
            cores_seen=int(event.get("cpus") or host.cores_seen),
        )
    return host


def _record(kind: type[_T], event: Mapping[str, Any]) -> _T:
    is_event = "at" in event and "kind" in event
    fields = {name: value for name, value in event.items() if not is_event or name not in {"kind", "at"}}
    made = from_json(kind, fields)
    assert isinstance(made, kind)
    return made


def _each(values: Iterable[Any], make: Callable[[Any], _T]) -> list[_T]:
    """What can be made of these; whatever is malformed is left out."""
    found = []
    for value in values:
        try:
            found.append(make(value))
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    return found


def _freeze(value: Any) -> Any:
    """JSON's lists as tuples: an index can be compared and hashed."""
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
