"""PS3xx: data that is wrong without a word."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.data.ps301_iterable_not_sharded import IterableNotSharded
from penstock._clinic.rules.data.ps302_rng_repeated import RngRepeated
from penstock._clinic.rules.data.ps303_stale_dataset_in_workers import StaleDatasetInWorkers
from penstock._clinic.rules.data.ps304_stop_iteration_truncates import StopIterationTruncates
from penstock._clinic.rules.data.ps305_wrong_length import WrongLength
from penstock._clinic.rules.data.ps306_sample_mutated_in_place import SampleMutatedInPlace

RULES: tuple[Rule, ...] = (
    IterableNotSharded(),
    RngRepeated(),
    StaleDatasetInWorkers(),
    StopIterationTruncates(),
    WrongLength(),
    SampleMutatedInPlace(),
)
