"""Speed: why a program waits for its loader (PS401 to PS414), the most specific cause first."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.speed.ps401_too_few_workers import TooFewWorkers
from penstock._clinic.rules.speed.ps402_transform_bound import TransformBound
from penstock._clinic.rules.speed.ps403_storage_bound import StorageBound
from penstock._clinic.rules.speed.ps404_not_pinned import NotPinned
from penstock._clinic.rules.speed.ps405_not_fed_fast_enough import NotFedFastEnough
from penstock._clinic.rules.speed.ps406_too_many_workers import TooManyWorkers
from penstock._clinic.rules.speed.ps407_workers_restarted import WorkersRestarted
from penstock._clinic.rules.speed.ps408_iterator_rebuilt_each_step import IteratorRebuiltEachStep
from penstock._clinic.rules.speed.ps409_lock_serialises_workers import LockSerialisesWorkers
from penstock._clinic.rules.speed.ps410_many_small_tensors import ManySmallTensors
from penstock._clinic.rules.speed.ps411_workers_not_worth_it import WorkersNotWorthIt
from penstock._clinic.rules.speed.ps412_large_python_objects import LargePythonObjects
from penstock._clinic.rules.speed.ps413_straggler_samples import StragglerSamples
from penstock._clinic.rules.speed.ps414_thread_oversubscription import ThreadOversubscription

RULES: tuple[Rule, ...] = (
    IteratorRebuiltEachStep(),
    LockSerialisesWorkers(),
    ThreadOversubscription(),
    StragglerSamples(),
    ManySmallTensors(),
    LargePythonObjects(),
    WorkersRestarted(),
    TooManyWorkers(),
    WorkersNotWorthIt(),
    TooFewWorkers(),
    StorageBound(),
    NotPinned(),
    TransformBound(),
    NotFedFastEnough(),
)
