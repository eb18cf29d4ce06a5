"""What one trial shall do, and what it does differently from the program as it is.

A plan travels as JSON in the environment variable PENSTOCK_PLAN to every Python process of the patient.
Pure; needs no torch.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

VARIABLE = "PENSTOCK_PLAN"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a trial does differently. Changes add up: see `Plan.plus`.

    `settings` are options of the loader (num_workers, multiprocessing_context, prefetch_factor,
    persistent_workers, pin_memory, in_order, timeout, batch_size); `mends` are named repairs that the
    observer makes inside the patient (`_lab/inside/mends.py` lists them); `patched` maps the absolute path
    of a source file to the text to run in its place.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    mends: tuple[str, ...] = ()
    patched: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    shm_bytes: int | None = None  # a /dev/shm of this size, in a mount namespace of the trial's own
    nofile: int | None = None  # soft limit of descriptors, up to the hard one
    use_penstock: bool = False  # our loader in torch's place

    def __bool__(self) -> bool:
        return self != Change()


@dataclass(frozen=True, slots=True)
class Plan:
    """A trial: how far to go and what to change."""

    drive: str = "script"  # "script": as it is; "loader": the script up to iter(loader), then our own loop
    # Key of the loader to change and to drive; without its number, every one made on that line; None: all.
    loader: str | None = None
    is_early: bool = False  # "loader": at the first iter() of any loader, if this one is made by then
    change: Change = field(default_factory=Change)
    max_batches: int | None = None  # of the driven loader, in each epoch
    epochs: int = 1  # that the observer drives; for "script": epochs of one loader after which it is enough
    # The program's own passes end after so many batches, so that it comes to what lies behind them.
    short: int | None = None
    extra_batches: int = 3  # "script": enough when so many batches past the last of these epochs were seen
    min_s: float = 0.0  # "script": not enough before so long in batches, so that short epochs show their cost
    max_s: float = 30.0  # from start to end, imports included
    extra_s: float = 20.0  # at most so much longer where others have the CPUs
    loader_s: float | None = None  # enough after so long in batches, since the first iter()
    # "script": at most so much longer while something is to come, or where others have the CPUs, see
    # `inside.drive` and `watch`.
    late_s: float = 0.0
    # Our loader takes a worker for stuck after so long: sooner than it usually does, for an exam ends soon.
    stall_s: float = 5.0
    digests: bool = True  # hash the content of samples
    log: str = ""  # absolute path of the event log; set by the trial

    def plus(self, change: Change) -> Plan:
        """The same trial with one more change."""
        old = self.change
        return dataclasses.replace(
            self,
            change=Change(
                settings={**old.settings, **change.settings},
                mends=tuple(dict.fromkeys((*old.mends, *change.mends))),
                patched={**old.patched, **change.patched},
                env={**old.env, **change.env},
                shm_bytes=old.shm_bytes if change.shm_bytes is None else change.shm_bytes,
                nofile=old.nofile if change.nofile is None else change.nofile,
                use_penstock=old.use_penstock or change.use_penstock,
            ),
        )

    def dumps(self) -> str:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def loads(cls, text: str) -> Plan:
        """From JSON."""
        fields = json.loads(text)
        change = fields.pop("change")
        change["mends"] = tuple(change["mends"])
        return cls(change=Change(**change), **fields)
