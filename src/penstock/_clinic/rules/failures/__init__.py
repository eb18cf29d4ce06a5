"""What fails while the program runs: samples, batches, exceptions, processes, waits."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.failures.ps801_dataset_raises import DatasetRaises
from penstock._clinic.rules.failures.ps802_bad_sample import BadSample
from penstock._clinic.rules.failures.ps803_result_not_picklable import ResultNotPicklable
from penstock._clinic.rules.failures.ps804_exception_not_picklable import ExceptionNotPicklable
from penstock._clinic.rules.failures.ps805_exception_type_lost import ExceptionTypeLost
from penstock._clinic.rules.failures.ps811_worker_segfault import WorkerSegfault
from penstock._clinic.rules.failures.ps812_worker_exited import WorkerExited
from penstock._clinic.rules.failures.ps813_blocking_io import BlockingIo
from penstock._clinic.rules.failures.ps814_nested_workers import NestedWorkers

RULES: tuple[Rule, ...] = (
    DatasetRaises(),
    BadSample(),
    ResultNotPicklable(),
    ExceptionNotPicklable(),
    ExceptionTypeLost(),
    WorkerSegfault(),
    WorkerExited(),
    BlockingIo(),
    NestedWorkers(),
)
