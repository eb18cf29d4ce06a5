"""PS802 bad-sample

## What it finds
A sample that cannot be batched with its neighbours: None, another shape or type, a missing field.

## Why it matters
Collate fails, and torch's message tells what kind of thing it met, not which sample it was. With workers it
may even speak of "storage that is not resizable".

## How we know
The exception came out of collate. The samples of that batch are compared: the one that is None, or whose form
differs from the others', is named by its index.

## What to do
Repair that sample in the dataset (pad, resize, filter before), or give the loader a `collate_fn` that can
batch what the dataset returns.

## When we stay silent
When a limit of the machine made collate fail, and when collate succeeds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, bare, cases, claimed_by
from penstock._clinic.finding import Evidence, Finding, Prescription
from penstock._clinic.naming import at_place, loader_named, sample_named, short
from penstock._clinic.trying import mended
from penstock._lab.record import SampleSeen

# The comparison that was made on the spot, in the words of the loader's own errors.
_NOTE = re.compile(r"sample index: (?P<index>.+?) \(position \d+ in its batch\) does not fit: ?(?P<how>.+)")


class BadSample:
    """Samples that do not fit together in one batch."""

    code: ClassVar[str] = "PS802"
    cause: ClassVar[str] = "bad-sample"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each failure of collate."""
        for case in cases(facts):
            is_collates = case.failure.phase == "collate" and claimed_by(case.failure) is None
            if is_collates or _is_empty_handed(case):
                yield self._finding(case)

    def _finding(self, case: Case) -> Finding:
        failure = case.failure
        odd = odd_sample(case)
        index = odd.index if odd else failure.index
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="info" if case.is_caught else "error",
            message=_message(case, odd),
            prescription=Prescription(
                f"make the dataset return {sample_named(index)} in the form of the others, leave it out, or"
                " pass a `collate_fn` that can batch them",
                "every batch can be made, with any number of workers",
            ),
            evidence=_evidence(case, odd),
            where=failure.site or (case.loader.dataset.site if case.loader else None),
            loader=case.loader.key if case.loader else None,
            confidence="proved" if case.at_zero is not None and odd is not None else "observed",
            experiments=(mended("skip-odd", "samples that differ in form replaced by others"),),
            stopped_at_s=None if case.is_caught else failure.at_s,
        )


def _is_empty_handed(case: Case) -> bool:
    """Whether the program itself stumbles over None, in a run where samples were None."""
    failure = case.failure
    is_about_none = failure.phase == "program" and "NoneType" in failure.text and not case.is_caught
    return is_about_none and any(each.is_none for each in case.trial.samples)


def odd_sample(case: Case) -> SampleSeen | None:
    """The sample of the failed batch that is None, or whose form is not that of most others."""
    batch = list(case.trial.samples) if case.failure.phase == "program" else _batch(case)
    nothing = next((each for each in batch if each.is_none), None)
    if nothing is not None:
        return nothing
    forms = Counter(each.shape for each in batch if each.shape)
    named = next((each for each in batch if each.index == case.failure.index), None)
    if len(forms) < 2:  # noqa: PLR2004 - one form: nobody is odd by it
        return named
    usual = _usual(case, forms)
    return next((each for each in batch if each.shape and each.shape != usual), named)


def _usual(case: Case, forms: Counter[str]) -> str:
    """The commonest form in the whole run: a batch of two has no majority."""
    overall = Counter(each.shape for each in case.trial.samples if each.shape in forms)
    return (overall or forms).most_common(1)[0][0]


def _batch(case: Case) -> list[SampleSeen]:
    """The samples of the failed batch: by their indices, else those around the one that was named."""
    failure = case.failure
    mine = [
        each
        for each in case.trial.samples
        if each.loader == failure.loader and each.worker == (-1 if failure.worker is None else failure.worker)
    ]
    if isinstance(failure.index, (list, tuple)):
        latest: dict[Any, SampleSeen] = {repr(each.index): each for each in mine}
        return [latest[repr(index)] for index in failure.index if repr(index) in latest]
    place = next((n for n, each in enumerate(mine) if each.index == failure.index), None)
    if place is None:
        return []
    begin = place - place % _size(case)
    return mine[begin : begin + _size(case)]


def _size(case: Case) -> int:
    """Of a batch; one where the loader does not tell."""
    return int((case.loader.settings.get("batch_size") if case.loader else None) or 1)


def _message(case: Case, odd: SampleSeen | None) -> str:
    failure = case.failure
    field = f" in field `{failure.field}`" if failure.field else ""
    said = short(f"{bare(failure.type)}: {failure.text}", 90)
    note = _NOTE.search(failure.note)
    if note is not None and (odd is None or not (odd.is_none or odd.shape)):
        return f"sample {note['index']} does not fit its batch in {loader_named(case.loader)}: {note['how']}"
    if odd is None or not (odd.is_none or odd.shape):
        which = "a batch" if failure.index is None else f"the batch of {sample_named(failure.index)}"
        return f"{which} of {loader_named(case.loader)} cannot be made{field}: {said}"
    if odd.is_none and failure.phase == "program":
        told = f"{sample_named(odd.index)} of {loader_named(case.loader)} is None"
        return f"{told}, and the program cannot use its batch{at_place(failure.site)}: {said}"
    if odd.is_none:
        return f"{sample_named(odd.index)} is None, so {loader_named(case.loader)} cannot make its batch"
    usual = _usual(case, Counter(each.shape for each in _batch(case)))
    return (
        f"{sample_named(odd.index)} is {odd.shape} where others are {usual}{field}, so"
        f" {loader_named(case.loader)} cannot make its batch"
    )


def _evidence(case: Case, odd: SampleSeen | None) -> tuple[Evidence, ...]:
    failure = case.failure
    found = [Evidence("what collate said", short(f"{failure.type}: {failure.text}"), "observed run")]
    if odd is not None:
        found.insert(0, Evidence("odd sample", f"{odd.index}: {odd.shape or 'None'}", "samples"))
        forms = Counter(each.shape or "None" for each in _batch(case))
        told = ", ".join(f"{form} ({times})" for form, times in forms.most_common(4))
        found.append(Evidence("forms in its batch", told, "samples"))
    if case.at_zero is not None and case.workers:
        found.append(Evidence("at num_workers=0", "the same", "ladder"))
    return tuple(found)
