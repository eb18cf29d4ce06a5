"""PS206 view-of-large-storage

## What it finds
Batches of small views, each of which ships the large tensor that it is a view of.

## Why it matters
A tensor travels with its whole storage. A row of a 400 MB tensor is 4 KB to read and 400 MB to send: it
fills `/dev/shm` and memory, once for each worker or even once for each sample.

## How we know
The observer adds up what the tensors of a batch hold and what their storages hold. The experiment clones the
samples, so that each has a storage of its own, and changes nothing else.

## What to do
Return `x.clone()` from `__getitem__`, where `x` is the view.

## When we stay silent
With collate functions that copy, as the default one does: then only the batch is shipped. When the storage
was in shared memory from the start, so that nothing is copied. When the storages are not much larger than
what is used of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named
from penstock._clinic.shortage import is_out_of_memory, is_out_of_shm
from penstock._lab.plan import Change
from penstock._lab.record import FetchSeen, LoaderSeen

# A crop that ships its picture is wasteful; from here on the waste is what is shipped.
TIMES = 4
# What a batch must ship in vain to be worth a word: less than this is lost in the noise of any loader.
WORTH = 8 << 20


class ViewOfLargeStorage:
    """Small tensors that ship large storages."""

    code: ClassVar[str] = "PS206"
    cause: ClassVar[str] = "view-of-large-storage"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose batches ship far more than they hold."""
        for loader in facts.loaders:
            worst = _worst(facts, loader)
            if worst is not None and loader.settings.get("num_workers"):
                yield self._finding(facts, loader, worst)

    def _finding(self, facts: Facts, loader: LoaderSeen, worst: FetchSeen) -> Finding:
        seen = facts.observed
        stops = seen is not None and (is_out_of_shm(seen) or is_out_of_memory(seen))
        used, shipped = amounts.size(worst.nbytes), amounts.size(worst.storage_nbytes)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error" if stops else "warning",
            message=(
                f"a batch of {loader_named(loader)} holds {used} and ships {shipped}: its tensors are views, "
                "and each takes its whole storage along"
            ),
            prescription=Prescription(
                change="return `.clone()` of the view from the dataset",
                expect=f"{used} are shipped with a batch instead of {shipped}",
                fix=Fix("clone-sample", loader.dataset.site),
            ),
            evidence=(
                Evidence("tensors of a batch", used, "samples"),
                Evidence("storages that it ships", shipped, "samples"),
            ),
            where=loader.dataset.site or loader.site,
            loader=loader.key,
            experiments=(
                Experiment(
                    title="the same loader with cloned samples",
                    change=Change(mends=("clone-samples",)),
                    measure="gone" if stops else "smaller",
                    ratio=float(TIMES) / 2,
                ),
            ),
        )


def _worst(facts: Facts, loader: LoaderSeen) -> FetchSeen | None:
    """The batch that ships most in vain, where that is worth a word."""
    batches = [seen for trial in facts.trials for seen in trial.fetches if seen.loader == loader.key]
    if not batches:
        return None
    worst = max(batches, key=lambda seen: seen.storage_nbytes - seen.nbytes)
    is_worth = worst.storage_nbytes - worst.nbytes >= WORTH
    return worst if is_worth and worst.storage_nbytes >= TIMES * max(1, worst.nbytes) else None
