"""PS306 sample-mutated-in-place

## What it finds
A dataset that changes its stored samples each time it returns them.

## Why it matters
`x = self.data[i]; x *= 2; return x` changes `self.data`. With `num_workers=0` and with persistent workers the
values drift from epoch to epoch; with fresh workers each epoch starts again from the consumer's copy, so the
same program trains on other data when `num_workers` changes.

## How we know
Without workers and without the program's own loop, the same index gives another content in the second pass,
and no random generator was drawn from; and a fresh process gives the first content again, or an array on the
dataset was seen to change. Where samples are random, or an epoch is too long for a second one, the same
sample is made twice from the same seeds, or a field of it that every process has alike at first is another
one in the second pass. The experiment hands out copies of what the dataset stores.

## What to do
Change a copy: `x = self.data[i].clone()`.

## When we stay silent
When samples are random: their contents differ in a fresh process too, or a generator moved. When contents
differ because the program sets an epoch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.contents import Compared, Reading, compare, readings, samples
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named, sample_named
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

# Samples that must have been read twice, and by a fresh process: fewer prove nothing.
FEW = 2
# Of those, what must have changed to be worth an alarm.
DRIFTS = 0.05
# Arrays of one container that have changed, to be told from statistics that a dataset keeps.
SEVERAL = 3

_SUBSCRIPT = re.compile(r"\[[^][]*\]")


@dataclass(frozen=True, slots=True)
class _Drift:
    """Contents that change from pass to pass."""

    passes: Compared  # the first pass against the second, in one process
    fresh: Compared  # the first pass against that of another process
    paths: tuple[str, ...] = ()  # arrays on the dataset that were seen to change
    part: int | None = None  # of samples that chance changes too: the field that it does not

    @property
    def told(self) -> str:
        """How much has changed, in words."""
        if not self.passes.both:
            return "a sample that is made twice from the same seeds has another content the second time"
        changed = f"{self.passes.differ:,} of {self.passes.both:,} samples"
        return f"{changed} have another content in the second epoch"


class SampleMutatedInPlace:
    """The dataset changes what it stores."""

    code: ClassVar[str] = "PS306"
    cause: ClassVar[str] = "sample-mutated-in-place"
    needs: ClassVar[frozenset[str]] = frozenset({"observed", "ladder"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose samples drift."""
        facts = facts.one_rank
        for loader in facts.loaders:
            zero = _without_workers(facts, loader)
            if zero is None or loader.dataset.is_iterable:
                continue
            drift = _drift(facts, zero, loader)
            if drift is not None:
                yield self._finding(facts, loader, drift)

    def _finding(self, facts: Facts, loader: LoaderSeen, drift: _Drift) -> Finding:
        own = _own(facts, loader, drift.part)
        where = "in the program itself" if own else "at num_workers=0, and with persistent workers"
        stored = f"`{drift.paths[0]}`" if drift.paths else "its stored samples"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if own else "warning",
            message=(
                f"`{loader.dataset.type or 'the dataset'}` of {loader_named(loader)} changes {stored} "
                f"as it returns samples: {drift.told}, {where}"
            ),
            prescription=Prescription(
                change="change a copy of the stored sample: `.clone()` (tensor), `.copy()` (array) before it",
                expect="each epoch begins with the same data, whatever the number of workers",
                fix=Fix("clone-sample", loader.dataset.site, _changed(drift)),
            ),
            evidence=tuple(_evidence(drift)),
            where=loader.dataset.site or loader.site,
            loader=loader.key,
            experiments=(
                Experiment(
                    title="the same loader without workers, with copies of what the dataset stores",
                    change=Change(mends=("copy-samples",)),
                    base=Change(settings={"num_workers": 0}),
                    epochs=2,
                ),
            ),
        )


def _without_workers(facts: Facts, loader: LoaderSeen) -> Trial | None:
    """The passes of our own loop without workers: of the observed run itself, where it is such a trial."""
    observed = facts.observed
    if observed is not None and observed.plan.drive == "loader":
        return observed if not any(seen.workers for seen in observed.of(loader.key)) else None
    return facts.at(loader.key, 0)


def _changed(drift: _Drift) -> dict[str, str]:
    """The attribute that changes, where it is one: "numeric" of "dataset.dataset.numeric[3]"."""
    names = {_SUBSCRIPT.sub("", path).rpartition(".")[2] for path in drift.paths}
    return {"attribute": names.pop()} if len(names) == 1 else {}


def _evidence(drift: _Drift) -> Iterator[Evidence]:
    if drift.passes.both:
        changed = f"{drift.passes.differ:,} of {drift.passes.both:,} samples"
        yield Evidence("contents that changed from pass to pass in one process", changed, "samples")
        yield Evidence("for example", sample_named(drift.passes.example), "samples")
    if drift.paths:
        yield Evidence("arrays that changed while samples were made", amounts.listed(drift.paths), "samples")
    else:
        same = f"{drift.fresh.both - drift.fresh.differ:,} of {drift.fresh.both:,} the same"
        yield Evidence("contents of the first pass in another process", same, "samples")


def _drift(facts: Facts, zero: Trial, loader: LoaderSeen) -> _Drift | None:
    return _drift_of_samples(facts, zero, loader) or _drift_of_a_field(facts, zero, loader)


def _drift_of_a_field(facts: Facts, zero: Trial, loader: LoaderSeen) -> _Drift | None:
    """A field of the samples that every process has alike at first, and that the second pass has not.

    Where a program seeds its generators, whole samples are alike at first: that says nothing of any field.
    """
    seen = zero.loader(loader.key) or loader
    whole, others = readings(zero, loader.key), _fresh(facts, zero, loader)
    is_seeded = bool(whole and others) and compare(whole[0], others).share < DRIFTS
    if not seen.dataset.mutated or is_seeded:
        return None
    for part in range(max((len(each.parts) for each in samples(zero, loader.key)), default=0)):
        told = readings(zero, loader.key, part)
        if len(told) < 2:  # noqa: PLR2004 - a second pass
            continue
        passes, elsewhere = compare(told[0], told[1]), _fresh(facts, zero, loader, part)
        fresh = compare(told[0], elsewhere)
        # Of an experiment on that very pass no other is at hand, and none was needed for it to be made.
        is_alike = fresh.both >= FEW or (facts.observed is zero and not elsewhere)
        if is_alike and passes.both >= FEW and fresh.share < DRIFTS <= passes.share:
            return _Drift(passes, fresh, seen.dataset.mutated, part)
    return None


def _drift_of_samples(facts: Facts, zero: Trial, loader: LoaderSeen) -> _Drift | None:
    told = readings(zero, loader.key)
    fresh = _fresh(facts, zero, loader)
    seen = zero.loader(loader.key) or loader
    is_made_twice = bool(seen.dataset.mutated) and seen.dataset.drifts and not _has_own_rng(zero, loader)
    passes = compare(told[0], told[1]) if len(told) > 1 else Compared()
    if passes.both < FEW:  # the epoch is too long for a second one, or its order is left to chance
        return _Drift(Compared(), Compared(), seen.dataset.mutated) if is_made_twice else None
    drift = _Drift(passes, compare(told[0], fresh), seen.dataset.mutated)
    if passes.share < DRIFTS:
        return None
    is_reproducible = drift.fresh.both >= FEW and drift.fresh.share < DRIFTS
    if not is_reproducible and not drift.paths:
        return None  # another process gives other contents: chance, not drift
    if _are_samples(drift.paths) or is_made_twice:
        return drift  # whatever else is drawn by chance
    return drift if not _draws(zero, loader) or _is_steady_in_workers(facts, loader) else None


def _are_samples(paths: Sequence[str]) -> bool:
    """Whether several arrays of one container have changed: samples that are stored, not statistics kept.

    A sample may itself hold them deeper down: `items[3]["boxes"]` and `items[7]["boxes"]` are of one kind.
    """
    places = Counter(_SUBSCRIPT.sub("[]", path) for path in paths if "[" in path)
    return any(count >= SEVERAL for count in places.values())


def _fresh(facts: Facts, zero: Trial, loader: LoaderSeen, part: int | None = None) -> Reading:
    """The first pass of another process."""
    for trial in facts.trials:
        told = readings(trial, loader.key, part)
        if trial is not zero and told:
            return told[0]
    return {}


def _draws(zero: Trial, loader: LoaderSeen) -> bool:
    """Whether a generator moved while samples were made, or may have: then they may differ by chance."""
    fetches = [fetch for fetch in zero.fetches if fetch.loader == loader.key]
    passes = Counter(fetch.iterator for fetch in fetches)
    # Between two passes samplers draw: that tells something only where passes are of one batch, for within
    # such a one nobody sees a generator move.
    is_one_batch = max(passes.values(), default=0) == 1
    states: dict[tuple[int, str], set[str]] = {}
    for fetch in fetches:
        for path, state in fetch.rngs.items():
            states.setdefault((0 if is_one_batch else fetch.iterator, path), set()).add(state)
    return any(len(each) > 1 for each in states.values())


def _is_steady_in_workers(facts: Facts, loader: LoaderSeen) -> bool:
    """Whether fresh workers, which torch seeds anew, give the same contents in two epochs."""
    for trial in facts.trials:
        told = [reading for reading in readings(trial, loader.key) if reading]
        has_workers = any(seen.workers for seen in trial.of(loader.key))
        if not has_workers or len(told) < 2 or loader.settings.get("persistent_workers"):  # noqa: PLR2004
            continue
        compared = compare(told[0], told[1])
        if compared.both >= FEW and not compared.differ:
            return not _has_own_rng(trial, loader)
    return False


def _has_own_rng(trial: Trial, loader: LoaderSeen) -> bool:
    """Whether the dataset keeps a generator: fresh workers then repeat it (PS302)."""
    seen = trial.loader(loader.key) or loader
    return any(each.kind in {"rng", "torch-generator"} for each in seen.things)


def _own(facts: Facts, loader: LoaderSeen, part: int | None) -> bool:
    """Whether the program's own epochs drift."""
    told = readings(facts.observed, loader.key, part) if facts.observed is not None else []
    return len(told) > 1 and compare(told[0], told[1]).share >= DRIFTS
