"""Rules that read the source alone: what `penstock lint` asks."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.source.ps101_unpicklable_dataset import UnpicklableDataset
from penstock._clinic.rules.source.ps115_handle_shared_across_fork import HandleSharedAcrossFork
from penstock._clinic.rules.source.ps301_iterable_not_sharded import IterableNotSharded
from penstock._clinic.rules.source.ps302_rng_repeated import RngRepeated
from penstock._clinic.rules.source.ps408_iterator_rebuilt_each_step import IteratorRebuiltEachStep

RULES: tuple[Rule, ...] = (
    UnpicklableDataset(),
    HandleSharedAcrossFork(),
    IterableNotSharded(),
    RngRepeated(),
    IteratorRebuiltEachStep(),
)
