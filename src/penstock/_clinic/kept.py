"""Programs that keep what the loader hands over, and where that leads. Pure."""

from __future__ import annotations

from penstock._clinic import growth
from penstock._clinic.finding import Experiment, Fix, Measure, Prescription
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

# A program keeps its batches when it holds this share of all that it has had: others hold one or two.
KEEPS = 0.7
FEW = 8  # batches; fewer say nothing about what a program keeps


def keeper(trial: Trial, loader: LoaderSeen | None) -> IteratorSeen | None:
    """The pass over this loader (over any, when None) whose batches the program keeps."""
    for seen in trial.iterators:
        is_its = loader is None or seen.loader == loader.key
        if is_its and seen.batches >= FEW and seen.kept >= KEEPS * (seen.batches - 1):
            return seen
    return None


def at_the_end(slope: growth.Slope, loader: LoaderSeen, kept: IteratorSeen) -> float:
    """The least that a count of the consumer will have reached by the end of the epoch."""
    if slope.low <= 0 or loader.length is None:
        return 0.0
    return slope.last + slope.low * max(0, loader.length - kept.batches)


def let_go(measure: Measure = "gone") -> Experiment:
    """The experiment that takes away what is kept."""
    return Experiment(
        title="the same program, without what it keeps of its batches",
        change=Change(mends=("drop-kept",)),
        measure=measure,
        drive="script",
    )


def keep_copies(loader: LoaderSeen | None, expect: str) -> Prescription:
    """The prescription: copies, whose memory is the consumer's own."""
    return Prescription(
        change="keep `.clone()` of what is needed of a batch, not the tensors that the loader handed over",
        expect=expect,
        fix=Fix("detach-kept", loader.site if loader is not None else None),
    )
