"""What an experiment has shown: trials without and with one change, judged. Pure.

| measure | verified when |
|---|---|
| gone | the ill is there without the change; with it the program goes on past that point |
| same | samples differ from the reference at num_workers=0 without the change, and none does with it |
| smaller | what grew, or its peak, is at most a `ratio`-th |
| faster | samples per second rise in every round, by `ratio` in the median round |

"Refuted" is said only when both sides were seen and the change made no difference. When the ill did not show
again without the change, or the change brought a failure of its own, nothing is proved: "not-tested".
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock._clinic import growth
from penstock._clinic.again import by_line
from penstock._clinic.failures import unwrap
from penstock._clinic.finding import Experiment, Proof
from penstock._clinic.pace import pace, rate
from penstock._lab.record import Trial

# Rounds of A B: with fewer than two, one hiccup of the machine would decide.
ROUNDS = 2
# But for a difference like this: then one round is enough where there is no time for another.
DECISIVE = 3.0
# So many passes with no more than so many batches each are steps, not epochs.
MANY_PASSES, FEW_BATCHES = 4, 4


@dataclass(frozen=True, slots=True)
class Ill:
    """How a trial went wrong: what two trials are compared by."""

    kind: str  # "error", "hang", "crash", "oom"
    name: str = ""  # type of the exception, or the signal
    text: str = ""
    index: Any = None
    status: int | None = None  # of the first process that died of it
    loader: str | None = None  # at which it happened, where that is known

    def __str__(self) -> str:
        if self.kind == "hang":
            return "hang"
        said = f"{self.name}: {self.text}" if self.text else self.name
        return said or self.kind


def ill(trial: Trial, key: str | None) -> Ill | None:
    """What went wrong in a trial; None when nothing did.

    A failure that the program itself caught counts only when it is of the loader in question.
    """
    failures = [failure for failure in trial.failures if failure.is_fatal]
    caught = [failure for failure in trial.failures if key is not None and failure.loader == key]
    first = next(iter(sorted(caught or failures, key=lambda failure: failure.at_s)), None)
    if trial.outcome == "ok" and not caught:
        return None
    died = next((death.status for death in trial.deaths if death.status), None)
    if trial.outcome in {"hang", "oom"} or first is None:
        status = died if died is not None else trial.status
        return Ill(trial.outcome, "" if status in {0, None} else f"status {status}", status=died)
    kind = "error" if trial.outcome == "ok" else trial.outcome
    first = unwrap(first)
    where = first.loader or next((each.loader for each in trial.failures if each.loader), None)
    return Ill(kind, first.type, _first_line(first.text), first.index, died, where)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:120] if lines else ""


def progress(trial: Trial, key: str | None) -> int:
    """Batches that were handed over, of one loader or of all."""
    return sum(seen.batches for seen in trial.iterators if key is None or seen.loader == key)


def gone(
    title: str,
    before: Trial,
    after: Trial,
    key: str | None,
    fires: Callable[[Trial], bool] | None = None,
    *,
    brings: str = "",
) -> Proof:
    """Whether the ill that is there before is gone after. `fires` asks the rule, where nothing failed.

    `brings` is the type of an exception that the change is meant to bring: it is no failure of its own. Where
    samples were left out and another one dies of the same, it was they who had died of it before.
    """
    was = ill(before, key)
    # A failure that stopped the program is gone when it stops nothing any more: a mend may leave its traces.
    now = ill(after, key if before.outcome == "ok" else None)
    if was is None:
        return _silent(title, before, after, key, fires, brings=brings)
    told = {
        "before": {"outcome": str(was), "batches": progress(before, key)},
        "after": {"outcome": str(now) if now else "ok", "batches": progress(after, key)},
    }
    further = progress(after, key) > progress(before, key)
    if now is None:
        return Proof("verified", f"{title}: {was} is gone", **told)
    is_elsewhere = further and was.loader == key and now.loader not in {None, key}
    another = _dies_of(after, key)
    if another is not None and _left_out(after) and another not in _left_out(after):
        return Proof("verified", f"{title}: it loads, and sample {another} dies of the same", **told)
    if _is_same(was, now) and not is_elsewhere:
        return Proof("refuted", f"{title}: {was} stays", **told)
    if further or (brings and now.name.endswith(brings)):
        return Proof("verified", f"{title}: {was} is gone, and {now} comes after it", **told)
    return Proof("not-tested", f"{title}: brings a failure of its own, {now}", **told)


def stays(before: Trial, after: Trial, key: str | None) -> bool:
    """Whether both went wrong in one way. For wrong data, which stop nothing, that is another's ill."""
    was, now = ill(before, key), ill(after, key)
    return was is not None and now is not None and _is_same(was, now)


def _left_out(trial: Trial) -> set[str]:
    """Samples without which a trial was made: see `trying.without`."""
    skipped = (mend.partition(":") for mend in trial.plan.change.mends)
    return {index for name, _, indices in skipped if name == "skip-index" for index in indices.split(",")}


def _dies_of(trial: Trial, key: str | None) -> str | None:
    """The sample at which the first process died, where that is known."""
    deaths = (each for each in trial.deaths if each.status and (key is None or each.loader in {None, key}))
    first = next((each.index for each in deaths if each.index is not None), None)
    return None if first is None else str(first)


def _is_same(was: Ill, now: Ill) -> bool:
    """Whether it is one illness: the consumer may tell the same death of a worker in several ways."""
    if was.kind != now.kind:
        return False
    if was.status is not None and was.status == now.status:
        return True
    # torch says nearly everything by a RuntimeError: how the sentence begins tells which.
    is_vague = was.name == "RuntimeError" and was.text and now.text
    return was.name == now.name and (not is_vague or _opening(was.text) == _opening(now.text))


def _opening(text: str) -> list[str]:
    return text.split()[:2]


def _silent(
    title: str,
    before: Trial,
    after: Trial,
    key: str | None,
    fires: Callable[[Trial], bool] | None,
    *,
    brings: str = "",
) -> Proof:
    """The same for what fails without a sign: the rule itself is asked about both."""
    told = {
        "before": {"outcome": "ok", "batches": progress(before, key)},
        "after": {"outcome": str(ill(after, key) or "ok"), "batches": progress(after, key)},
    }
    if fires is None or not fires(before):
        return Proof("not-tested", f"{title}: it did not show again without the change", **told)
    if _stopped_short(before, after, key):
        return Proof("not-tested", f"{title}: it did not come to a second epoch", **told)
    now = ill(after, key)
    if now is not None and brings and now.name.endswith(brings):
        return Proof("verified", f"{title}: instead of silence, {now}", **told)
    if now is not None:
        return Proof("not-tested", f"{title}: brings a failure of its own, {now}", **told)
    told["before"]["ill"], told["after"]["ill"] = True, fires(after)
    if told["after"]["ill"]:
        return Proof("refuted", f"{title}: it stays", **told)
    return Proof("verified", f"{title}: it is gone", **told)


def _stopped_short(before: Trial, after: Trial, key: str | None) -> bool:
    """Whether one side has begun a second pass and the other has not: much shows only then."""
    if key is None or "loader" in {before.plan.drive, after.plan.drive}:
        return False
    return len(after.of(key)) <= 1 < len(before.of(key))


def silent(title: str, before: Trial, after: Trial, fires: Callable[[Trial], bool]) -> Proof:
    """Whether the rule that fires on one no longer fires on the other, however both ended."""
    told: dict[str, dict[str, Any]] = {
        "before": {"outcome": before.outcome},
        "after": {"outcome": after.outcome},
    }
    if not fires(before) or not progress(after, None):
        return Proof("not-tested", f"{title}: it did not come so far, or did not show again", **told)
    told["before"]["ill"], told["after"]["ill"] = True, fires(after)
    if told["after"]["ill"]:
        return Proof("refuted", f"{title}: it stays", **told)
    return Proof("verified", f"{title}: it is gone", **told)


def same(title: str, before: Trial, after: Trial, reference: Trial, key: str) -> Proof:
    """Whether samples that were wrong before are right after, by the content of the reference pass."""
    wrong, right = wrong_samples(before, reference, key), wrong_samples(after, reference, key)
    told = {
        "before": {"wrong": wrong.wrong, "samples": wrong.compared},
        "after": {"wrong": right.wrong, "samples": right.compared},
    }
    if not wrong.wrong or not right.compared:
        return Proof("not-tested", f"{title}: no wrong sample was caught without the change", **told)
    if not right.wrong:
        return Proof(
            "verified", f"{title}: {wrong.wrong} of {wrong.compared} samples were wrong, none is", **told
        )
    is_random = right.wrong * 2 > right.compared  # nearly nothing is as it was: more than any race does
    if right.wrong * 2 > wrong.wrong and not is_random:
        return Proof("refuted", f"{title}: {right.wrong} of {right.compared} samples are still wrong", **told)
    return Proof("not-tested", f"{title}: {right.wrong} of {right.compared} samples are still wrong", **told)


@dataclass(frozen=True, slots=True)
class Compared:
    """Samples held against the reference."""

    compared: int = 0
    wrong: int = 0


def wrong_samples(trial: Trial, reference: Trial, key: str) -> Compared:
    """How many samples of a trial have another content than in the reference pass, by index.

    An index that the reference itself loads in more than one way (random augmentation) tells nothing.
    """
    known: dict[Any, set[str]] = defaultdict(set)
    for sample in reference.samples:
        if sample.loader == key and sample.digest:
            known[repr(sample.index)].add(sample.digest)
    compared = wrong = 0
    for sample in trial.samples:
        digests = known.get(repr(sample.index), set()) if sample.loader == key and sample.digest else set()
        if len(digests) == 1:
            compared += 1
            wrong += sample.digest not in digests
    return Compared(compared, wrong)


def smaller(experiment: Experiment, before: Trial, after: Trial, key: str | None, cause: str) -> Proof:
    """Whether what grows, or its peak, is at most a `ratio`-th with the change."""
    failed = ill(after, key)
    if failed is not None and ill(before, key) is None:
        return Proof("not-tested", f"{experiment.title}: brings a failure of its own, {failed}")
    for name, ask in _quantities(cause):
        was, now = ask(before, key), ask(after, key)
        if was <= 0:
            continue
        told = {"before": {name: _round(was)}, "after": {name: _round(now)}}
        if now * experiment.ratio <= was:
            return Proof(
                "verified", f"{experiment.title}: {name} {_round(was)} becomes {_round(now)}", **told
            )
        return Proof("refuted", f"{experiment.title}: {name} {_round(was)} becomes {_round(now)}", **told)
    return Proof("not-tested", f"{experiment.title}: nothing grew without the change")


Quantity = Callable[[Trial, str | None], float]


def _worker_growth(trial: Trial, key: str | None) -> float:
    """Bytes that a worker gains with each sample, in the middle of all; 0 where that has levelled off."""
    keys = [key] if key is not None else [seen.key for seen in trial.loaders]
    lines = [line for each in keys for line in growth.lines(trial, each).values()]
    rises = [growth.growth(line).per_step for line in lines if len(line) >= growth.FEWEST]
    return statistics.median(rises) if rises else 0.0


def _gained(trial: Trial, key: str | None) -> float:
    """Bytes that all workers gained between their first batch and their last."""
    keys = [key] if key is not None else [seen.key for seen in trial.loaders]
    lines = [line for each in keys for line in growth.lines(trial, each).values()]
    return max(0.0, sum(line[-1][1] - line[0][1] for line in lines))


def _vital_growth(name: str) -> Quantity:
    def ask(trial: Trial, key: str | None) -> float:
        del key
        points = [(float(seen.batches), float(getattr(seen, name))) for seen in trial.vitals if seen.batches]
        return max(0.0, growth.slope(points).per_step)

    return ask


def _peak(name: str) -> Quantity:
    def ask(trial: Trial, key: str | None) -> float:
        del key
        return float(max((getattr(seen, name) for seen in trial.vitals), default=0))

    return ask


def _rise(name: str) -> Quantity:
    """The peak above the first look."""

    def ask(trial: Trial, key: str | None) -> float:
        del key
        values = [getattr(seen, name) for seen in trial.vitals]
        return float(max(values) - values[0]) if values else 0.0

    return ask


def _shipped(trial: Trial, key: str | None) -> float:
    """Bytes of whole storages that the heaviest batch ships."""
    sizes = [each.storage_nbytes for each in trial.fetches if key is None or each.loader == key]
    return float(max(sizes, default=0))


def _left(trial: Trial, key: str | None) -> float:
    del key
    return float(len(trial.left_shm))


_GAINED = ("bytes that workers gained", _gained)
_IN_WORKERS = (("bytes per sample in a worker", _worker_growth), ("bytes of the tree", _rise("tree_pss")))
_QUANTITIES: dict[str, tuple[tuple[str, Quantity], ...]] = {
    "copy-on-write-growth": (_IN_WORKERS[0], _GAINED, _IN_WORKERS[1]),
    "per-worker-cache": (_GAINED, *_IN_WORKERS),
    "worker-out-of-memory": (("bytes of the tree", _rise("tree_pss")),),
    "prefetch-memory": (
        ("bytes in shared memory", _peak("shm_used")),
        ("bytes of the tree", _rise("tree_pss")),
    ),
    "view-of-large-storage": (
        ("bytes shipped with a batch", _shipped),
        ("bytes in shared memory", _peak("shm_used")),
    ),
    "shm-exhausted": (("bytes in shared memory", _peak("shm_used")),),
    "shm-leaked": (("names left in shared memory", _left),),
    "fd-exhausted": (
        ("descriptors per batch", _vital_growth("main_fds")),
        ("descriptors", _rise("main_fds")),
    ),
    "map-count-exhausted": (
        ("mappings per batch", _vital_growth("main_maps")),
        ("mappings", _rise("main_maps")),
    ),
}


def _quantities(cause: str) -> tuple[tuple[str, Quantity], ...]:
    return _QUANTITIES.get(cause, (*_IN_WORKERS, ("bytes in shared memory", _peak("shm_used"))))


def _round(value: float) -> float:
    return round(value, 1) if value < 100 else float(round(value))  # noqa: PLR2004 - three digits are enough


def _was_heard(trial: Trial) -> bool:
    """Whether a failure reached the program: a worker may make batches that nobody will ask for."""
    return trial.outcome != "ok" or any(failure.phase == "next" for failure in trial.failures)


def faster(experiment: Experiment, rounds: Sequence[tuple[Trial, Trial]], key: str) -> Proof:
    """Whether samples per second rise in every round, and by `ratio` in the median one."""
    title = experiment.title
    for _, after in rounds:
        failed = ill(after, key)
        if failed is not None and _was_heard(after):
            return Proof("not-tested", f"{title}: brings a failure of its own, {failed}")
    pairs = [speeds(before, after, key) for before, after in rounds]
    known = [(was, now) for was, now in pairs if was and now]
    ratios = [now / was for was, now in known]
    gain = statistics.median(ratios) if ratios else 0.0
    if not ratios or (len(ratios) < ROUNDS and experiment.ratio <= gain < DECISIVE):
        return Proof("not-tested", f"{title}: too few rounds could be timed")
    told = {
        "before": {"samples_per_s": round(statistics.median(was for was, _ in known), 1)},
        "after": {
            "samples_per_s": round(statistics.median(now for _, now in known), 1),
            "gain": round(gain, 2),
        },
    }
    spread = (
        f", {len(ratios)} rounds from {min(ratios):.2f}x to {max(ratios):.2f}x" if len(ratios) > 1 else ""
    )
    sentence = f"{title}: {gain:.2f}x{spread}"
    is_faster = gain >= experiment.ratio and min(ratios) > 1
    return Proof("verified" if is_faster else "refuted", sentence, **told)


def speed(trial: Trial, key: str) -> float | None:
    """Samples per second: of whole epochs where the loader alone was driven, else as the program went."""
    if trial.plan.drive == "loader":
        return rate(trial, key)
    seen = pace(by_line(trial), key)
    return seen.samples / seen.seconds if seen.samples and seen.seconds else None


def speeds(before: Trial, after: Trial, key: str) -> tuple[float | None, float | None]:
    """Both speeds, by one clock.

    Where the program makes an iterator for each step, what it does in between is in no pass: then the whole
    time counts, from the first iter() on.
    """
    if before.plan.drive == "loader" or not _is_rebuilt(before, key):
        return speed(before, key), speed(after, key)
    return _overall(before, key), _overall(after, key)


def _is_rebuilt(trial: Trial, key: str) -> bool:
    seen = pace(by_line(trial), key)
    return seen.passes >= MANY_PASSES and seen.batches <= FEW_BATCHES * seen.passes


def _overall(trial: Trial, key: str) -> float | None:
    passes = by_line(trial).of(key)
    samples = sum(seen.samples for seen in passes)
    seconds = trial.seconds - min((seen.began_s for seen in passes), default=trial.seconds)
    return samples / seconds if samples and seconds > 0 else None
