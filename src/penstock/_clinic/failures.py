"""Which failure is the program's real one.

    sample ─▶ worker raises ValueError ─▶ torch wraps it ─▶ consumer raises "Caught ValueError …" ─▶ the end
      └──── the root: its own type, its own text, index and line ────┘      └── what the user sees

A program shows its last failure; the cause is the first of that chain. `root` finds it, `unwrap` undoes
torch's wrapping, `printed` reads what processes left on stderr, where nobody could catch it. `cases` says
which failures count: those that ended the program as it is, not those of a setting that it never uses. Pure.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock._clinic.facts import Facts
from penstock._lab.record import Death, Failure, Frame, LoaderSeen, Site, Trial

# Phases in which the consumer only hears of what happened elsewhere.
ECHOES = frozenset({"next", "program"})

# A file below one of these is not the user's own code.
_FOREIGN = ("/site-packages/", "/dist-packages/", "/lib/python3", "/penstock/_lab/", "/penstock/_engine/")
_FOREIGN_STARTS = ("<", "torch/", "multiprocessing/")

# A failure of a sample is in the log before its echo; clocks of two processes are read in two places.
_LATE_S = 1.0

_CAUGHT = re.compile(
    r"Caught (\S+) in ((?:\w+ )*?(?:DataLoader worker process (\d+)|pin memory thread)[^.\n]*)"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?\s*$')
_LAST = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::\s?(?P<text>.*))?$")

# Texts that only one cause prints; a failure that says one of them is nobody else's.
_SPECIFIC: tuple[tuple[str, str], ...] = (
    (r"finished its\s+bootstrapping phase|freeze_support\(\)", "missing-main-guard"),
    (r"unable to resize file <filename not specified>", "tensor-freed-while-pickling"),
    # The number of a descriptor that was closed is given again, and two tensors come with the same one.
    (r"bad value\(s\) in fds_to_keep", "tensor-freed-while-pickling"),
    (r"Cannot re-initialize CUDA in forked subprocess", "cuda-before-fork"),
    (r"not fork-?safe|opened before fork", "client-not-fork-safe"),
    (r"daemonic processes are not allowed to have children", "nested-workers"),
    (r"AF_UNIX path too long", "socket-path-too-long"),
    (r"Too many open files|received 0 items of ancdata", "fd-exhausted"),
    (r"unable to open shared memory object", "fd-exhausted"),
    (
        r"insufficient shared memory|unable to allocate shared memory|unable to write to file </torch",
        "shm-exhausted",
    ),
    (r"No space left on device", "shm-exhausted"),
    (r"unable to mmap \d+ bytes from file </torch", "map-count-exhausted"),
    (
        r"Cannot allocate memory|paging file is too small|\bMemoryError\b|can't allocate memory",
        "fork-out-of-memory",
    ),
    (r"Pin memory thread exited unexpectedly", "pin-thread-died"),
    (r"can only test a child process", "stale-iterator-noise"),
    # In the words of our own repairs, which bring an error where there was silence.
    (r"(?:SystemExit|KeyboardInterrupt) was raised", "worker-exited"),
    (r"\b(?:_exit|abort|kill|raise_signal) was called", "worker-exited"),
    (r"no sample came within|nothing came within", "blocking-io"),
    (r"Length of IterableDataset .* was reported to be", "wrong-length"),
)


@dataclass(frozen=True, slots=True)
class Raised:
    """One traceback as it was printed: frames outermost first."""

    type: str
    text: str = ""
    frames: tuple[Frame, ...] = ()

    @property
    def site(self) -> Site | None:
        """The innermost line of the user's own code."""
        return innermost(self.frames[::-1])

    def passes(self, function: str) -> bool:
        """Whether a function of that name is on the way."""
        return any(frame.function == function for frame in self.frames)


@dataclass(frozen=True, slots=True)
class Case:
    """One failure that counts, and what the same loader did at num_workers=0."""

    trial: Trial
    failure: Failure  # the root of it
    loader: LoaderSeen | None = None
    zero: Trial | None = None  # the rung without workers, where there is one
    is_caught: bool = False  # the program went on from it

    @property
    def workers(self) -> int:
        """With how many workers it failed."""
        return workers_of(self.trial, self.loader)

    @property
    def at_zero(self) -> Failure | None:
        """The same failure without workers."""
        if self.workers == 0:
            return self.failure
        found = root(self.zero) if self.zero is not None else None
        return found if found is not None and same(found, self.failure) else None

    @property
    def passes_at_zero(self) -> bool:
        """Whether that very sample was loaded without workers, and nothing went wrong."""
        if self.zero is None or self.workers == 0 or self.zero.outcome != "ok":
            return False
        if self.failure.index is None:
            return True
        wanted = set(_flat(self.failure.index))
        seen = {each for sample in self.zero.samples for each in _flat(sample.index)}
        return bool(wanted & seen) or not seen


def cases(facts: Facts) -> Iterator[Case]:
    """Failures that count: of the program as it is, else of a rung with the program's own settings.

    A rung with other settings may fail where the program does not (a handle that only `worker_init_fn`
    opens is missing at num_workers=0): that is no illness of the program.
    """
    observed = facts.observed
    if observed is None:
        return
    failure = root(observed) or _unheard(observed)
    if failure is not None:
        yield _case(facts, observed, failure)
    elif observed.outcome == "ok":
        for trial in facts.ladder:
            yield from _own_rung(facts, trial)
    for each in caught(observed):
        if failure is None or not same(each, failure):
            yield dataclasses.replace(_case(facts, observed, each), is_caught=True)


def _unheard(trial: Trial) -> Failure | None:
    """What the program would have heard of next, had the trial not ended before."""
    if trial.outcome == "ok":
        return next((each for each in trial.failures if _is_on_its_way(each, trial)), None)
    return next((each for each in trial.failures if each.phase in {"start", "pickle"}), None)


def _is_on_its_way(failure: Failure, trial: Trial) -> bool:
    """Whether it lies among the results of a worker, behind batches that the program has still to take."""
    if failure.phase not in {"sample", "collate"} or trial.ended_by not in {"enough", "time"}:
        return False
    if any(each.phase in ECHOES and same(unwrap(each), failure) for each in trial.failures):
        return False  # it has heard of such a one, and gone on
    return any(seen.end == "open" and failure.pid in seen.workers for seen in trial.iterators)


def _own_rung(facts: Facts, trial: Trial) -> Iterator[Case]:
    loader = facts.observed.loader(trial.plan.loader or "") if facts.observed else None
    failure = root(trial) if loader is not None and is_own(trial, loader) else None
    if failure is not None and facts.observed is not None:
        is_known = any(same(each, failure) for each in caught(facts.observed))
        if not is_known:
            yield _case(facts, trial, failure)


def _case(facts: Facts, trial: Trial, failure: Failure) -> Case:
    key = failure.loader or trial.plan.loader or _only(trial)
    loader = trial.loader(key) if key else None
    if loader is None and key and facts.observed is not None:
        loader = facts.observed.loader(key)
    return Case(trial, failure, loader, facts.at(key, 0) if key else None)


def _only(trial: Trial) -> str | None:
    workers = {pid for seen in trial.iterators for pid in seen.workers}
    used = list(dict.fromkeys(seen.loader for seen in trial.iterators if seen.pid not in workers))
    return used[-1] if used else None


def is_own(trial: Trial, loader: LoaderSeen) -> bool:
    """Whether a trial ran a loader with what the program itself asks for."""
    return all(
        loader.settings.get(name) == value for name, value in trial.plan.change.settings.items()
    ) and not (trial.plan.change.mends or trial.plan.change.patched or trial.plan.change.use_penstock)


def workers_of(trial: Trial, loader: LoaderSeen | None) -> int:
    """The number of workers in a trial."""
    changed = trial.plan.change.settings.get("num_workers")
    if changed is not None and _is_meant(trial, loader):
        return int(changed)
    return int(loader.settings.get("num_workers") or 0) if loader is not None else 0


def _is_meant(trial: Trial, loader: LoaderSeen | None) -> bool:
    """Whether a trial's changes are of this loader: of all, of its own key, or of the line that makes it."""
    key = trial.plan.loader
    return key is None or loader is None or key in {loader.key, loader.key.rpartition("#")[0]}


def method_of(trial: Trial, loader: LoaderSeen | None) -> str:
    """The start method of the workers in a trial."""
    changed = trial.plan.change.settings.get("multiprocessing_context")
    return str(changed) if changed else (loader.start_method if loader is not None else "fork")


def root(trial: Trial) -> Failure | None:
    """The failure behind what ended a program, or None where it ended well or without an exception."""
    fatal = _fatal(trial)
    if fatal is None:
        return None
    if fatal.phase not in ECHOES:
        return unwrap(fatal)
    last = unwrap(fatal)
    origins = [_outer(each, trial) for each in trial.failures if _may_be_behind(each, fatal)]
    for origin in origins:
        if bare(origin.type) == bare(last.type) and last.worker in {None, origin.worker}:
            return dataclasses.replace(unwrap(origin), site=origin.site or last.site, is_fatal=True)
    if is_reraised(fatal) and origins:  # another type than the worker's: building it again failed
        return dataclasses.replace(origins[0], is_fatal=True)
    return last


def is_reraised(failure: Failure) -> bool:
    """Whether it comes out of torch's attempt to raise a worker's exception again."""
    return "torch/_utils.py" in failure.traceback and "in reraise" in failure.traceback


def _outer(failure: Failure, trial: Trial) -> Failure:
    """The same failure as one of the worker in which it was raised, where a worker iterates a loader."""
    for seen in trial.iterators:
        if failure.worker is None and failure.pid in seen.workers:
            number = seen.workers.index(failure.pid)
            return dataclasses.replace(failure, loader=seen.loader, worker=number, phase="sample")
    return failure


def _may_be_behind(origin: Failure, fatal: Failure) -> bool:
    is_earlier = origin.at_s <= fatal.at_s + _LATE_S
    return origin.phase not in ECHOES and origin is not fatal and is_earlier


def _fatal(trial: Trial) -> Failure | None:
    if trial.outcome == "ok":
        return None
    fatal = [each for each in trial.failures if each.is_fatal]
    if fatal:
        # The first: what a dying program says afterwards (atexit, __del__) is no cause.
        return min(fatal, key=lambda each: each.at_s)
    if trial.outcome != "error":
        return None
    heard = [each for each in trial.failures if each.phase in ECHOES] or list(trial.failures)
    return heard[-1] if heard else None


def caught(trial: Trial) -> tuple[Failure, ...]:
    """Failures that the program heard of and went on from, each once."""
    heard: dict[tuple[str, Any], Failure] = {}
    for each in trial.failures:
        if each.phase in ECHOES and not each.is_fatal and trial.outcome == "ok":
            plain = unwrap(each)
            heard.setdefault((bare(plain.type), plain.text), plain)
    return tuple(_with_origin(each, trial) for each in heard.values())


def _with_origin(heard: Failure, trial: Trial) -> Failure:
    for each in trial.failures:
        if each.phase not in ECHOES and same(each, heard):
            return each
    return heard


def same(one: Failure, other: Failure) -> bool:
    """Whether two failures are one illness: by type, and by text without its numbers."""
    return bare(one.type) == bare(other.type) and _shape(one.text) == _shape(other.text)


def _shape(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", first)


def unwrap(failure: Failure) -> Failure:
    """What the user's code raised, where torch has wrapped it: original type, text, worker and line."""
    whole = failure.text if _CAUGHT.search(failure.text) else failure.traceback
    match = _CAUGHT.search(whole)
    if match is None:
        return failure
    inner = [each for each in printed(whole[match.start() :]) if bare(each.type) == bare(match[1])]
    original = inner[0] if inner else Raised(match[1])
    return dataclasses.replace(
        failure,
        type=original.type,
        text=original.text or failure.text,
        worker=failure.worker if match[3] is None else int(match[3]),
        site=original.site or failure.site,
        traceback=whole[match.start() :],
    )


def wrapped_as(failure: Failure) -> str | None:
    """The type that torch says a worker raised, where the failure is its wrapping."""
    match = _CAUGHT.search(failure.text) or _CAUGHT.search(failure.traceback)
    return match[1] if match else None


def claimed_by(failure: Failure) -> str | None:
    """The one cause that prints such a text, where there is one."""
    whole = f"{failure.type}: {failure.text}\n{failure.traceback}"
    return says(whole)


def says(text: str) -> str | None:
    """The cause whose own words a text holds."""
    return next((cause for pattern, cause in _SPECIFIC if re.search(pattern, text)), None)


def bare(name: str) -> str:
    """The name of a type without its module."""
    return name.rpartition(".")[2]


def printed(text: str) -> tuple[Raised, ...]:
    """Every traceback in a text, in order. Wrapped ones (inside the text of another) count too."""
    found: list[Raised] = []
    frames: list[Frame] | None = None
    for line in text.splitlines():
        if "Traceback (most recent call last):" in line:
            frames = []
            continue
        if frames is None:
            continue
        match = _FRAME.match(line)
        if match:
            frames.append(Frame((match["function"] or "").strip(), match["file"], int(match["line"])))
            continue
        end = _LAST.match(line)
        if end and not line.startswith(" "):
            found.append(Raised(end["type"], (end["text"] or "").strip(), tuple(frames)))
            frames = None
    return tuple(found)


def fed(trial: Trial) -> tuple[Raised, ...]:
    """What queue feeder threads printed: batches that they could not serialise, and that are lost."""
    recorded = tuple(
        Raised(each.type, each.text, (Frame("_feed", "multiprocessing/queues.py", 0),))
        for each in trial.failures
        if each.phase == "feeder"
    )
    return recorded + tuple(each for each in printed(trial.stderr) if each.passes("_feed"))


def is_users(file: str) -> bool:
    """Whether a file is the user's own code: no library's, not the interpreter's, not ours."""
    return not file.startswith(_FOREIGN_STARTS) and not any(part in file for part in _FOREIGN)


def innermost(frames: tuple[Frame, ...]) -> Site | None:
    """The first line of the user's own code; frames innermost first."""
    for frame in frames:
        if is_users(frame.file):
            return Site(frame.file, frame.line, frame.function)
    return None


def _flat(index: Any) -> tuple[Any, ...]:
    values = index if isinstance(index, (list, tuple)) else (index,)
    return tuple(tuple(each) if isinstance(each, list) else each for each in values)


def worker_deaths(trial: Trial) -> tuple[Death, ...]:
    """Workers that ended badly, first death first."""
    return tuple(
        sorted((each for each in trial.deaths if each.worker is not None), key=lambda each: each.at_s)
    )


# How pickle refuses, in the words of CPython 3.10 to 3.14 and of libraries that refuse by themselves.
_REFUSALS = re.compile(
    r"can(?:'|no)t pickle|cannot be pickled|can't be pickled|Can't get local (?:object|attribute)|"
    r"not (?:picklable|pickleable)|PicklingError|attribute lookup .* failed",
    re.IGNORECASE,
)
_UNKNOWN_CLASS = re.compile(r"Can't get attribute '(?P<name>[\w.]+)' on <module '(?P<module>[\w.]+)'")
_NO_LOOKUP = re.compile(
    r"Can't pickle <class '[^']*'>: .*(?:attribute lookup|not the same object|import of module)"
)
_NO_REFUSALS = frozenset(
    {"OSError", "BrokenPipeError", "ConnectionResetError", "EOFError", "MemoryError", "KeyboardInterrupt"}
)
_SHARING = "torch/multiprocessing/"  # where torch moves the memory of tensors
_SHIPPING = (
    "popen_spawn",
    "popen_forkserver",
    "multiprocessing/spawn.py",
    "multiprocessing/forkserver.py",
    "reduction.py",
)


@dataclass(frozen=True, slots=True)
class StartTrouble:
    """Why workers that are not forked could not begin: one of four causes, in the words of who said it."""

    cause: str
    text: str
    type: str = ""
    name: str = ""  # of the class that was not found
    site: Site | None = None  # where the program started the workers, where the text tells


def start_trouble(trial: Trial) -> StartTrouble | None:
    """What kept spawned workers from starting; None where they started, or were forked.

    The parent's own words come first where it could not ship; a worker that could not begin prints its
    traceback to stderr, and the parent only hears that it is gone.
    """
    fatal = _fatal(trial)
    raised = [*([_as_raised(fatal)] if fatal else []), *printed(trial.stderr)]
    raised += [_as_raised(each) for each in trial.failures if each.phase in {"start", "pickle"}]
    for each in raised:
        trouble = _trouble(each)
        if trouble is not None:
            return trouble
    if (
        says(trial.stderr) == "missing-main-guard"
    ):  # its text has many lines, the end may be all that was kept
        return StartTrouble("missing-main-guard", "the child has not finished its bootstrapping phase")
    return None


def _as_raised(failure: Failure) -> Raised:
    inner = printed(failure.traceback)
    frames = inner[-1].frames if inner else ()
    if failure.phase in {"start", "pickle"}:
        frames = (*frames, Frame("dump", "multiprocessing/reduction.py", 0))
    return Raised(failure.type, failure.text, frames)


def _trouble(raised: Raised) -> StartTrouble | None:
    whole = f"{raised.type}: {raised.text}"
    own = says(whole)
    if own in {"missing-main-guard", "tensor-freed-while-pickling"}:
        return StartTrouble(own, raised.text, raised.type, site=raised.site)
    if _runs_again(raised):
        return StartTrouble("missing-main-guard", raised.text, raised.type, site=raised.site)
    is_shipping = any(part in frame.file for frame in raised.frames for part in _SHIPPING)
    if not is_shipping or raised.passes("_feed"):  # a feeder ships batches, not workers
        return None
    return _not_found(raised, whole) or _refused(raised, whole)


def _runs_again(raised: Raised) -> bool:
    """Whether a worker failed while it ran the script once more: at module level, out of a guard."""
    is_main = any(frame.function.startswith("_fixup_main_from") for frame in raised.frames)
    return is_main and any(frame.function == "<module>" and is_users(frame.file) for frame in raised.frames)


def _not_found(raised: Raised, whole: str) -> StartTrouble | None:
    match = _UNKNOWN_CLASS.search(whole)
    is_child = any(frame.function in {"_main", "spawn_main", "prepare"} for frame in raised.frames)
    is_lost = is_child and raised.type in {"ModuleNotFoundError", "FileNotFoundError"}
    if match or is_lost or _NO_LOOKUP.search(whole):
        name = match["name"] if match else ""
        return StartTrouble("class-not-importable", raised.text, raised.type, name, raised.site)
    return None


def _refused(raised: Raised, whole: str) -> StartTrouble | None:
    if _REFUSALS.search(whole) or _is_from_pickling(raised):
        return StartTrouble("unpicklable-dataset", raised.text, raised.type, site=raised.site)
    return None


def _is_from_pickling(raised: Raised) -> bool:
    """Whether an object of a library or of the user's refused in words of its own, while it was pickled.

    It was not the object where the worker that should read it is gone, memory is short, or a tensor is moved.
    """
    if bare(raised.type) in _NO_REFUSALS or any(_SHARING in frame.file for frame in raised.frames):
        return False
    # Line 0 is the frame that stands for a traceback of which nothing was kept.
    return any(
        frame.function == "dump" and frame.file.endswith("reduction.py") and frame.line
        for frame in raised.frames
    )


def refuses(text: str) -> bool:
    """Whether pickle refuses something in these words."""
    return bool(_REFUSALS.search(text))


def unsent(trial: Trial, refused: Raised) -> Failure | None:
    """The exception of a worker whose type a feeder refused to send, where it was one."""
    heard = {bare(wrapped_as(each) or "") for each in trial.failures if each.phase in ECHOES}
    for each in trial.failures:
        name = bare(each.type)
        is_workers = each.phase not in ECHOES | {"feeder"} and each.worker is not None
        if is_workers and name not in heard and re.search(rf"\b{re.escape(name)}\b", refused.text):
            return each
    return None


# How a program hears that a worker is gone: torch's words, and those of the pipes between them.
_LOSS = re.compile(
    r"exited unexpectedly|killed by signal|Connection ?Re(?:set|fused)|Broken ?pipe|EOFError", re.IGNORECASE
)
_TERMINATED = -15  # how torch itself ends workers that are too slow to leave


def crash(trial: Trial) -> Death | None:
    """The first process that ended badly in the middle of the run: a worker, else the program itself.

    A worker that torch ends when the program is over, or that we end with the trial, is none; nor is one
    that died while an ordinary exception was already on its way out of the program.
    """
    fatal = _fatal(trial)
    is_heard = fatal is not None and bool(_LOSS.search(f"{fatal.type}: {fatal.text}"))
    workers = [
        each for each in worker_deaths(trial) if each.status != _TERMINATED or "Terminated" in _text(fatal)
    ]
    if workers and (is_heard or fatal is None):
        return workers[0]
    return _vanished(trial) if fatal is None else None


def _vanished(trial: Trial) -> Death | None:
    """The program itself, where it ended in the middle of a pass and said nothing."""
    is_silent = trial.status not in {None, 0} and not printed(trial.stderr)
    was_loading = any(each.end == "open" for each in trial.iterators)
    if trial.ended_by != "itself" or trial.outcome == "ok" or not is_silent or not was_loading:
        return None
    mains = [each for each in trial.deaths if each.worker is None]
    return mains[0] if mains else Death(0, status=trial.status, at_s=trial.seconds)


def _text(failure: Failure | None) -> str:
    return failure.text if failure is not None else ""
