"""Everything that crosses a process boundary. Values only; `channel` gives them their wire form."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock._base.words import Ticket

# ---- consumer to worker -------------------------------------------------------------------------


class Assign(NamedTuple):
    """Fill this slab with the batch of this ticket. A descriptor comes along if the slab is new."""

    number: int
    attempt: int
    indices: Any
    slab: int
    nbytes: int  # reserved for the slab so far
    expected: int  # what earlier batches took
    given_up: tuple[int, ...]  # slabs to forget
    condemned: tuple[int, ...] = ()  # positions in the batch that must not be touched: they kill

    @property
    def ticket(self) -> Ticket:
        """The work itself."""
        return Ticket(self.number, self.indices)


class Rewind(NamedTuple):
    """Begin the next epoch (persistent workers)."""

    shared_seed: int | None
    epoch: int = 0  # for the option `seed`
    attributes: tuple[Any, ...] = ()  # stale.Parcel: new values of the dataset's attributes


class Verdict(NamedTuple):
    """Go on with the stream whose first samples you have told of: divided among the workers, or as it is."""

    is_sharded: bool


# ---- worker to consumer -------------------------------------------------------------------------


class Filled(NamedTuple):
    """The slab holds the batch."""

    worker: int
    number: int
    attempt: int
    slab: int
    nbytes: int  # reserved now
    is_kept: bool  # user code in the worker still holds a piece: never write this slab again
    place: Any  # codec.Place, as its fields; None when no sample of the batch is left
    bad: tuple[Any, ...] = ()  # bad_samples.BadSample, as their fields
    state: bytes | None = None  # where this left an iterable dataset, if it can tell


class Failed(NamedTuple):
    """The ticket ended in an exception of user code, or of ours."""

    worker: int
    number: int
    attempt: int
    slab: int
    nbytes: int
    is_kept: bool
    failure: Any  # failure.Failure, as its fields
    bad: tuple[Any, ...] = ()  # as in Filled


class Exhausted(NamedTuple):
    """The worker's iterable dataset has no more samples in this epoch."""

    worker: int
    number: int
    attempt: int
    slab: int
    nbytes: int


class Retired(NamedTuple):
    """The worker has grown too large, and ends now; its other tickets are for its successor."""

    worker: int


class Rewound(NamedTuple):
    """The worker is ready for the next epoch."""

    worker: int


class Signs(NamedTuple):
    """What the worker saw in its first samples of the epoch. Comes before the answer with the last one."""

    worker: int
    prefix: tuple[bytes, ...]  # digests of the samples of an iterable dataset
    rngs: tuple[Any, ...]  # rng_objects.RngSign, as their fields


# ---- consumer to zygote -------------------------------------------------------------------------


class Spawn(NamedTuple):
    """Fork a worker; its end of the channel comes along, then its black box."""

    worker: int
    life: int = 0  # how many of its predecessors are gone
    shared_seed: int | None = None  # of the epoch that a successor begins with
    epoch: int = 0
    resume: Any = None  # resume.Resume, as its fields: it takes up the stream of a lost one
    attributes: tuple[Any, ...] = ()  # all that `Rewind` has brought to the others


class Kill(NamedTuple):
    """End a worker with this signal."""

    worker: int
    signal: int


class Quit(NamedTuple):
    """Wait this long for the workers to exit by themselves, end the rest, and exit."""

    grace_s: float


class Adopt(NamedTuple):
    """To the nursery: fork a zygote for one loader; its control channel comes along."""


class Load(NamedTuple):
    """To a clean zygote: the cargo lies in the segment that comes along, then other descriptors."""

    manifest: Any  # ship.Manifest, as its fields


# ---- zygote to consumer -------------------------------------------------------------------------


class Born(NamedTuple):
    """A worker was forked."""

    worker: int
    pid: int


class Lost(NamedTuple):
    """A worker is gone; `status` is its exit status, negative for a signal."""

    worker: int
    pid: int
    status: int


class Loaded(NamedTuple):
    """The zygote has the dataset, or failed to get it: then with the traceback."""

    pid: int
    error: str


KINDS: tuple[type[Any], ...] = (
    Assign, Rewind, Filled, Failed, Exhausted, Retired, Rewound, Spawn, Kill, Quit, Adopt, Load, Born,
    Lost, Loaded, Signs, Verdict,
)  # fmt: skip
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
