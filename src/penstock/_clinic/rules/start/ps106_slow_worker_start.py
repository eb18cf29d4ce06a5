"""PS106 slow-worker-start

## What it finds
Workers that take long to start, because each is a fresh interpreter (spawn, forkserver) that imports torch
and unpickles a dataset of its own: again in every epoch, or with a dataset so large that its copy takes long.

## Why it matters
The accelerator idles from `iter(loader)` to the first batch. With short epochs that is most of the time.

## How we know
The time from `iter()` to the first batch of each pass, beside the whole pass; the size of the pickled
dataset, and how many Python objects are in it. The proof is the same loader with workers that are kept, or
forked.

## What to do
`persistent_workers=True` starts them once. With a large dataset: fork, or keep the data in a file that
workers map. With forkserver `multiprocessing.set_forkserver_preload(["torch"])` imports torch once.

## When we stay silent
Under fork, and when the start is a small part of a pass. When it happens once with a small dataset it is an
info: that is what spawn costs. So it is where less than six seconds are lost in all, or three in three passes
or more; and among ranks on one machine, whose workers start at the same time and wait for one another's
imports, unless the dataset is large.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.again import by_line
from penstock._clinic.amounts import size
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named, option
from penstock._clinic.trying import under
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen, LoaderSeen

# Once, under this nobody complains: importing torch alone may take as long on a busy machine. Again and
# again, less than that is most of a short pass: so long takes the import where torch's files are in memory.
ONCE_S, AGAIN_S = 2.0, 0.5
# Of a pass: from here on starting is what the pass does.
MOST_OF_A_PASS = 0.5
# In the passes of one process together: a program of two short epochs pays less, and nobody minds. It is
# told, since many a program that is tried out for two epochs is made for a hundred.
LOST_S, SHORT_S = 6.0, 1.0
# Of several passes half of that is noticed, as with workers that are forked again and again (PS407).
SEVERAL, OFTEN_S = 3, 3.0
# A pickle of this size takes longer to ship and load than torch to import, on any disk.
LARGE_PICKLE = 64 << 20
# So many Python objects take each worker a quarter of a second to unpickle (0.6 s for 1.2 million were
# measured), whatever their bytes: several workers on few CPUs add that up.
MANY_OBJECTS = 500_000


class SlowWorkerStart:
    """Fresh interpreters, again and again, or with large baggage."""

    code: ClassVar[str] = "PS106"
    cause: ClassVar[str] = "slow-worker-start"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader that spends its passes starting."""
        if facts.observed is None:
            return
        # A loader that is made again for each fold or task starts its workers as often.
        facts = dataclasses.replace(facts, observed=by_line(facts.observed))
        started = {
            loader.key: [
                each for each in facts.passes(loader.key) if each.first_s is not None and each.workers
            ]
            for loader in facts.loaders
            if loader.start_method != "fork"
        }
        # Each loader of a program, for training and for validation, starts workers of its own.
        together = [each for passes in started.values() for each in passes]
        worst = max(started, key=lambda key: sum(map(_start, started[key])), default=None)
        has_ranks = len({each.pid for each in together}) > 1
        for loader in facts.loaders:
            passes = started.get(loader.key, [])
            slow = _slow(passes)
            if not slow:
                continue
            is_long = max(map(_start, slow)) >= ONCE_S
            is_large = is_long and _is_large(loader, _share(passes))
            is_worst = loader.key == worst and len(slow) > 1
            finding = self._finding(loader, slow, _share(passes), is_large=is_large)
            is_most = _costs_much(passes) or (is_worst and _costs_much(together))
            if is_large or (is_most and not has_ranks):
                yield finding
            elif is_most:
                yield dataclasses.replace(finding, severity="info")
            elif _costs_much(together):
                continue  # told of the worst
            elif _costs_much(passes, SHORT_S) or (is_long and _share(passes) >= MOST_OF_A_PASS):
                yield dataclasses.replace(finding, severity="info")

    def _finding(
        self, loader: LoaderSeen, slow: list[IteratorSeen], share: float, *, is_large: bool
    ) -> Finding:
        worst = max(_start(each) for each in slow)
        is_kept = bool(loader.settings.get("persistent_workers"))
        nbytes, objects = loader.dataset.nbytes or 0, _objects(loader)
        load = f"{objects:,} Python objects" if objects >= MANY_OBJECTS else size(nbytes)
        baggage = f" and unpickles {load}" if is_large else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            message=(
                f"{loader_named(loader)} waits {worst:.1f} s for its workers in {_epochs(slow)}: each is"
                f" started by {loader.start_method}, imports torch{baggage}"
            ),
            prescription=_prescription(loader, by_fork=is_kept or (is_large and len(slow) == 1)),
            evidence=(
                Evidence("from iter() to the first batch", f"{worst:.1f} s", "observed run"),
                Evidence("share of the passes spent starting", f"{share:.0%}", "observed run"),
                Evidence("start method", loader.start_method, "settings"),
                Evidence("pickled dataset", size(nbytes) if nbytes else "not measured", "observed run"),
            ),
            where=loader.site,
            loader=loader.key,
            experiments=_experiments(is_kept=is_kept, is_large=is_large, passes=len(slow)),
        )


def _is_large(loader: LoaderSeen, share: float) -> bool:
    """Whether it is the dataset that takes so long: by its bytes, or by what pickle makes one by one."""
    is_heavy = _objects(loader) >= MANY_OBJECTS and share >= MOST_OF_A_PASS
    return is_heavy or (loader.dataset.nbytes or 0) >= LARGE_PICKLE


def _objects(loader: LoaderSeen) -> int:
    shipped = [
        each for each in loader.things if each.kind == "large-list" and each.path.startswith("dataset")
    ]
    return sum(each.count for each in shipped)


def _slow(passes: list[IteratorSeen]) -> list[IteratorSeen]:
    return [each for each in passes if _start(each) >= AGAIN_S]


def _costs_much(passes: list[IteratorSeen], least_s: float | None = None) -> bool:
    """Whether starting is most of these passes, and seconds that one notices."""
    slow = _slow(passes)
    if least_s is None:
        least_s = OFTEN_S if len(slow) >= SEVERAL else LOST_S
    return _lost(slow) >= least_s and _share(passes) >= MOST_OF_A_PASS


def _lost(slow: list[IteratorSeen]) -> float:
    """Seconds of starting in the process that lost most, over several passes: each rank has its own."""
    pids = {each.pid for each in slow}
    own = [[_start(each) for each in slow if each.pid == pid] for pid in pids]
    return max((sum(starts) for starts in own if len(starts) > 1), default=0.0)


def _start(seen: IteratorSeen) -> float:
    """From iter() to the first batch, less what a batch usually takes."""
    later = sorted(seen.waits[1:])
    return max(seen.start_s, (seen.first_s or 0.0)) - (later[len(later) // 2] if later else 0.0)


def _share(passes: list[IteratorSeen]) -> float:
    ended = [each for each in passes if each.ended_s is not None]
    whole = sum((each.ended_s or 0.0) - each.began_s for each in ended)
    return sum(_start(each) for each in ended) / whole if whole else 0.0


def _epochs(slow: list[IteratorSeen]) -> str:
    return f"each of {len(slow)} epochs" if len(slow) > 1 else "its epoch"


def _prescription(loader: LoaderSeen, *, by_fork: bool) -> Prescription:
    if by_fork:
        return Prescription(
            'multiprocessing_context="fork", or a loader that is made once, over data mapped from a file',
            "workers start in a fraction of a second",
            fix=Fix("set-option", loader.site, {"multiprocessing_context": "fork"}),
        )
    return Prescription(
        option(loader, "persistent_workers", value=True),
        "workers start once, not in every epoch",
        fix=Fix("set-option", loader.site, {"persistent_workers": True}),
    )


def _experiments(*, is_kept: bool, is_large: bool, passes: int) -> tuple[Experiment, ...]:
    kept = Experiment(
        "the same loader with workers that are kept",
        Change(settings={"persistent_workers": True}),
        measure="faster",
        epochs=3,
    )
    forked = under("fork")
    # Workers that are kept start once, however many epochs are driven.
    epochs = 1 if is_kept else min(passes, 2)
    faster = Experiment(forked.title, forked.change, measure="faster", epochs=epochs)
    return (faster,) if is_kept or (is_large and passes == 1) else (kept, faster)
