"""What a worker must know to work: the one value that it is born with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock._base.words import Birth
from penstock._engine.policy import ErrorPolicy


@dataclass(frozen=True, slots=True)
class Job:
    """Dataset, collate function and seeds, as the loader was given them."""

    kind: int  # torch's _DatasetKind
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], None] | None
    workers: int
    shared_seed: int | None
    birth: Birth
    packed: dict[int, Any] = field(default_factory=dict)  # large lists, packed, by identity
    seed: int | None = None  # of the option `seed`; see `seeding`
    epoch: int = 0  # counts for `seed` alone; later ones come with Rewind
    is_watched: bool = False  # tell the consumer of the first samples (see `watch`)
    cure: bool = False
    policy: ErrorPolicy | None = None  # None: a bad sample raises, as in torch
    quarantined: frozenset[int | str] = frozenset()  # indices that must not be touched
    condemned: frozenset[int | str] = frozenset()  # the same, because they kill
    pool: int = 0  # indices below this may replace a bad one; 0: only those of the same batch
    max_worker_memory: int | None = None  # bytes; see `retire`
