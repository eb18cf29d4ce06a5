"""A rule's answer: what is wrong, how we know, what to change, and whether a trial has proved it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from penstock._lab.plan import Change
from penstock._lab.site import Site

Severity = Literal["error", "warning", "info"]
Confidence = Literal["proved", "observed", "suspected"]
Status = Literal["verified", "refuted", "not-tested"]
Measure = Literal["gone", "faster", "smaller", "same", "silent"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact that speaks for the finding."""

    fact: str  # "free room in /dev/shm"
    value: str  # "61 MB of 64 MB used"
    source: str  # "observed run", "ladder", "source", "settings", "host", "samples", "stacks"


@dataclass(frozen=True, slots=True)
class Prescription:
    """One change to make, exactly, and what to expect of it."""

    change: str  # "num_workers=4 → num_workers=2", or a sentence that says what to write
    expect: str
    patch: str | None = None  # unified diff against the user's file
    fix: Fix | None = None  # which patch to make, where one can be made: see `_clinic/patches`


@dataclass(frozen=True, slots=True)
class Fix:
    """A patch that can be made by name, for a place in the source; `_clinic/patches/` makes it."""

    name: str  # "set-option", "clone-sample", "lambda-to-function", "lazy-open", "main-guard", "shard" …
    site: Site | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A trial that changes one thing, and how its result speaks.

    `measure`: "gone": the failure is there without the change and not with it. "faster": samples per second
    rise by at least `ratio`. "smaller": what grew grows by less than a `ratio`-th. "same": samples now agree
    with those at num_workers=0. "silent": the rule fires without the change and not with it, whatever else
    goes wrong in both.
    """

    title: str  # "the same loader under spawn"
    change: Change
    measure: Measure = "gone"
    ratio: float = 1.5
    drive: Literal["script", "loader"] = "loader"
    base: Change = field(default_factory=Change)  # holds on both sides, such as num_workers=2
    epochs: int = 1
    max_batches: int | None = None
    brings: str = ""  # a type of exception that the change is meant to bring where there was silence


@dataclass(frozen=True, slots=True)
class Proof:
    """What the experiment has shown."""

    status: Status = "not-tested"
    experiment: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with its evidence and its remedy.

    `experiments` are alternatives in the order to try them; the first that verifies is the proof. `remedy`
    tries the prescription itself, where that is another change than the one that proves the cause.
    """

    code: str
    cause: str
    severity: Severity
    message: str  # one sentence that stands alone
    prescription: Prescription
    evidence: tuple[Evidence, ...] = ()
    where: Site | None = None
    loader: str | None = None  # key
    confidence: Confidence = "observed"
    experiments: tuple[Experiment, ...] = ()
    remedy: Experiment | None = None
    stopped_at_s: float | None = None  # when it stopped the program, if it did
    proof: Proof = field(default_factory=Proof)
    cured_by_penstock: bool | None = None  # whether our loader in place was tried and cured it
