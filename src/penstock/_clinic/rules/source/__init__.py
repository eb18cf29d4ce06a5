"""Rules that read the source alone: what `penstock lint` asks."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.source.ps101_unpicklable_dataset import UnpicklableDataset
from penstock._clinic.rules.source.ps102_missing_main_guard import MissingMainGuard
from penstock._clinic.rules.source.ps103_class_not_importable import ClassNotImportable
from penstock._clinic.rules.source.ps104_tensor_freed_while_pickling import TensorFreedWhilePickling
from penstock._clinic.rules.source.ps111_lock_held_at_fork import LockHeldAtFork
from penstock._clinic.rules.source.ps112_thread_pool_after_fork import ThreadPoolAfterFork
from penstock._clinic.rules.source.ps113_cuda_before_fork import CudaBeforeFork
from penstock._clinic.rules.source.ps114_client_not_fork_safe import ClientNotForkSafe
from penstock._clinic.rules.source.ps115_handle_shared_across_fork import HandleSharedAcrossFork
from penstock._clinic.rules.source.ps213_copy_on_write_growth import CopyOnWriteGrowth
from penstock._clinic.rules.source.ps214_per_worker_cache import PerWorkerCache
from penstock._clinic.rules.source.ps215_prefetch_memory import PrefetchMemory
from penstock._clinic.rules.source.ps301_iterable_not_sharded import IterableNotSharded
from penstock._clinic.rules.source.ps302_rng_repeated import RngRepeated
from penstock._clinic.rules.source.ps303_stale_dataset_in_workers import StaleDatasetInWorkers
from penstock._clinic.rules.source.ps304_stop_iteration_truncates import StopIterationTruncates
from penstock._clinic.rules.source.ps306_sample_mutated_in_place import SampleMutatedInPlace
from penstock._clinic.rules.source.ps404_not_pinned import NotPinned
from penstock._clinic.rules.source.ps408_iterator_rebuilt_each_step import IteratorRebuiltEachStep
from penstock._clinic.rules.source.ps409_lock_serialises_workers import LockSerialisesWorkers
from penstock._clinic.rules.source.ps802_bad_sample import BadSample
from penstock._clinic.rules.source.ps803_result_not_picklable import ResultNotPicklable
from penstock._clinic.rules.source.ps804_exception_not_picklable import ExceptionNotPicklable
from penstock._clinic.rules.source.ps812_worker_exited import WorkerExited
from penstock._clinic.rules.source.ps813_blocking_io import BlockingIo
from penstock._clinic.rules.source.ps814_nested_workers import NestedWorkers

RULES: tuple[Rule, ...] = (
    UnpicklableDataset(),
    MissingMainGuard(),
    ClassNotImportable(),
    TensorFreedWhilePickling(),
    LockHeldAtFork(),
    ThreadPoolAfterFork(),
    CudaBeforeFork(),
    ClientNotForkSafe(),
    HandleSharedAcrossFork(),
    CopyOnWriteGrowth(),
    PerWorkerCache(),
    PrefetchMemory(),
    IterableNotSharded(),
    RngRepeated(),
    StaleDatasetInWorkers(),
    StopIterationTruncates(),
    SampleMutatedInPlace(),
    NotPinned(),
    IteratorRebuiltEachStep(),
    LockSerialisesWorkers(),
    BadSample(),
    ResultNotPicklable(),
    ExceptionNotPicklable(),
    WorkerExited(),
    BlockingIo(),
    NestedWorkers(),
)
