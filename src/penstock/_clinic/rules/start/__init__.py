"""Starting workers: shipping what they need, and what a fork copies and does not copy."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.start.ps101_unpicklable_dataset import UnpicklableDataset
from penstock._clinic.rules.start.ps102_missing_main_guard import MissingMainGuard
from penstock._clinic.rules.start.ps103_class_not_importable import ClassNotImportable
from penstock._clinic.rules.start.ps104_tensor_freed_while_pickling import TensorFreedWhilePickling
from penstock._clinic.rules.start.ps105_start_method_changed import StartMethodChanged
from penstock._clinic.rules.start.ps106_slow_worker_start import SlowWorkerStart
from penstock._clinic.rules.start.ps111_lock_held_at_fork import LockHeldAtFork
from penstock._clinic.rules.start.ps112_thread_pool_after_fork import ThreadPoolAfterFork
from penstock._clinic.rules.start.ps113_cuda_before_fork import CudaBeforeFork
from penstock._clinic.rules.start.ps114_client_not_fork_safe import ClientNotForkSafe
from penstock._clinic.rules.start.ps115_handle_shared_across_fork import HandleSharedAcrossFork

RULES: tuple[Rule, ...] = (
    UnpicklableDataset(),
    MissingMainGuard(),
    ClassNotImportable(),
    TensorFreedWhilePickling(),
    StartMethodChanged(),
    SlowWorkerStart(),
    LockHeldAtFork(),
    ThreadPoolAfterFork(),
    CudaBeforeFork(),
    ClientNotForkSafe(),
    HandleSharedAcrossFork(),
)
