"""PS302 rng-repeated

## What it finds
A random generator that draws the same numbers in several workers, or again in every epoch.

## Why it matters
A generator that is kept in the dataset (`numpy.random.Generator`, `RandomState`, `random.Random`,
`torch.Generator`) is copied into each worker with one state. Workers then augment alike, and fresh workers
begin again from that state in every epoch. torch seeds the global generators of each worker, but not these;
and a `worker_init_fn` that seeds the global ones with a constant undoes even that.

## How we know
The state of each generator is read before every batch, in each worker. It is the same in two workers, or in
two epochs, when they begin, and it moves on with the samples; and samples really are random: the same index
gives different contents. The experiment seeds these generators in each worker and epoch.

## What to do
Seed it in `worker_init_fn` from `torch.utils.data.get_worker_info().seed`, or use the global generators.

## When we stay silent
When generators differ between workers and epochs; when samples do not depend on them, or are seeded for each
index; when a generator was drawn from only once, as for a permutation that all workers share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.contents import random_share, recurring_share
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

# Batches whose samples must have moved a generator: the first may set up what all workers share.
MOVES = 2
# Of what was read twice, what must differ: below it samples do not depend on chance.
RANDOM = 0.1
COLLATE = "collate_fn"  # generators on it
# Of a stream's contents that come again in another pass, what shows that only the order is left to chance.
SETTLED = 0.3
# torch's own names for the generators that it seeds.
GLOBAL = frozenset({"random", "numpy.random", "torch"})


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A generator that repeats."""

    path: str
    workers: tuple[int, ...]  # that began in one state, in one pass
    epochs: bool  # whether it began in the same state in two passes
    state: str

    @property
    def is_global(self) -> bool:
        return self.path in GLOBAL

    @property
    def is_collate(self) -> bool:
        return self.path.startswith(COLLATE)


class RngRepeated:
    """Workers, or epochs, draw the same random numbers."""

    code: ClassVar[str] = "PS302"
    cause: ClassVar[str] = "rng-repeated"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader with a generator that repeats."""
        facts = facts.one_rank
        for loader in facts.loaders:
            chance = _chance(facts, loader)
            is_steady = chance is not None and chance < RANDOM
            repeats = [
                each
                for trial in facts.trials
                for each in _repeats(trial, loader)
                if not is_steady or each.is_collate  # which changes batches, not samples
            ]
            if repeats:
                worst = max(repeats, key=lambda each: (len(each.workers), each.epochs))
                yield self._finding(loader, worst, chance)

    def _finding(self, loader: LoaderSeen, repeat: _Repeat, chance: float | None) -> Finding:
        several = len(repeat.workers) > 1
        who = f"workers {', '.join(map(str, repeat.workers))}" if several else "every epoch"
        both = " and in every epoch" if several and repeat.epochs else ""
        seeded = "every worker seeds it alike" if repeat.is_global else "every worker has a copy of it"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if several else "warning",
            message=(
                f"`{repeat.path}` draws the same random numbers in {who}{both} of {loader_named(loader)}: "
                f"{seeded}, and samples depend on it"
            ),
            prescription=_prescription(loader, repeat),
            evidence=tuple(_evidence(repeat, chance)),
            where=loader.site if repeat.is_collate else loader.dataset.site or loader.site,
            loader=loader.key,
            experiments=(_experiment(repeat),),
        )


def _experiment(repeat: _Repeat) -> Experiment:
    epochs = 1 if len(repeat.workers) > 1 else 2
    if repeat.is_global:
        change = Change(settings={"worker_init_fn": None})
        return Experiment("the same loader without worker_init_fn", change, "silent", epochs=epochs)
    change = Change(mends=("reseed-rng-objects",))
    return Experiment(
        "the same loader, its generators seeded in each worker and epoch", change, "silent", epochs=epochs
    )


def _chance(facts: Facts, loader: LoaderSeen) -> float | None:
    """How much of the contents of samples is left to chance; of a stream, whatever its order."""
    if not loader.dataset.is_iterable:
        return random_share(facts, loader.key)
    again = recurring_share(facts, loader.key)
    if again is None:
        return None
    return 0.0 if again >= SETTLED else 1.0 - again


def _repeats(trial: Trial, loader: LoaderSeen) -> Iterator[_Repeat]:
    """Generators of one loader that repeat in one trial."""
    first, moves = _first_states(trial, loader)
    paths = dict.fromkeys(path for path, _, _ in first)
    for path in paths:
        used = {
            (number, worker): state
            for (name, number, worker), state in first.items()
            if name == path and moves[path, number, worker] >= MOVES
        }
        workers, state = _alike(used)
        epochs = _is_again(used)
        if len(workers) > 1 or epochs:
            yield _Repeat(path, workers, epochs, state or next(iter(used.values())))


Place = tuple[str, int, int]  # path, number of the pass, worker


def _first_states(trial: Trial, loader: LoaderSeen) -> tuple[dict[Place, str], dict[Place, int]]:
    """The state of each generator when a worker began a pass, and how often it moved after that.

    Samples of short passes add up where workers are kept. A stream may draw once in each pass, for an order
    that all workers share.
    """
    adds_up = bool(loader.settings.get("persistent_workers")) and not loader.dataset.is_iterable

    def life(place: Place) -> Place:
        path, number, worker = place
        return (path, 0 if adds_up else number, worker)

    first: dict[Place, str] = {}
    last: dict[Place, str] = {}
    moves: dict[Place, int] = defaultdict(int)
    for fetch in sorted(trial.fetches, key=lambda seen: seen.began_s):
        if fetch.loader != loader.key or fetch.worker < 0:
            continue
        for path, state in fetch.rngs.items():
            place = (path, fetch.iterator, fetch.worker)
            first.setdefault(place, state)
            moves[life(place)] += last.get(life(place), state) != state
            last[life(place)] = state
    return first, {place: moves[life(place)] for place in first}


def _alike(used: dict[tuple[int, int], str]) -> tuple[tuple[int, ...], str]:
    """Workers that began one pass in the same state."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for (number, worker), state in used.items():
        found[number, state].append(worker)
    best = max(found.items(), key=lambda each: len(each[1]), default=((0, ""), []))
    return tuple(sorted(best[1])), best[0][1]


def _is_again(used: dict[tuple[int, int], str]) -> bool:
    """Whether a worker began two passes in the same state."""
    seen: dict[int, set[str]] = defaultdict(set)
    for (_, worker), state in sorted(used.items()):
        if state in seen[worker]:
            return True
        seen[worker].add(state)
    return False


def _evidence(repeat: _Repeat, chance: float | None) -> Iterator[Evidence]:
    if len(repeat.workers) > 1:
        value = f"{repeat.state[:12]} in workers {', '.join(map(str, repeat.workers))}"
        yield Evidence(f"state of `{repeat.path}` at the first batch", value, "observed run")
    if repeat.epochs:
        value = f"{repeat.state[:12]} in one worker in two epochs"
        yield Evidence(f"state of `{repeat.path}` at the first batch", value, "observed run")
    if chance is not None and not repeat.is_collate:
        value = f"{chance:.0%} of those that were read twice"
        yield Evidence("samples that differ when they are read again", value, "samples")


def _prescription(loader: LoaderSeen, repeat: _Repeat) -> Prescription:
    if repeat.is_global:
        return Prescription(
            change=f"leave `{repeat.path}` alone in `worker_init_fn`, or seed it from `torch.initial_seed()`",
            expect="each worker and each epoch draws numbers of its own",
            fix=Fix("reseed-in-worker", loader.site, {"path": repeat.path}),
        )
    return Prescription(
        change=(
            f"seed `{repeat.path}` in `worker_init_fn` from `torch.utils.data.get_worker_info().seed`, "
            "or draw from the global generators, which torch seeds"
        ),
        expect=f"each of {amounts.count(max(2, len(repeat.workers)), 'worker')} and each epoch draws its own",
        fix=Fix("reseed-in-worker", loader.site, {"path": repeat.path}),
    )
