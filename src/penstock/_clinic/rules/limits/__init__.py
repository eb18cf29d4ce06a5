"""PS2xx: the machine's limits, and memory."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.limits.ps201_shm_exhausted import ShmExhausted
from penstock._clinic.rules.limits.ps202_fd_exhausted import FdExhausted
from penstock._clinic.rules.limits.ps203_map_count_exhausted import MapCountExhausted
from penstock._clinic.rules.limits.ps204_socket_path_too_long import SocketPathTooLong
from penstock._clinic.rules.limits.ps205_shm_leaked import ShmLeaked
from penstock._clinic.rules.limits.ps206_view_of_large_storage import ViewOfLargeStorage
from penstock._clinic.rules.limits.ps211_worker_out_of_memory import WorkerOutOfMemory
from penstock._clinic.rules.limits.ps212_fork_out_of_memory import ForkOutOfMemory
from penstock._clinic.rules.limits.ps213_copy_on_write_growth import CopyOnWriteGrowth
from penstock._clinic.rules.limits.ps214_per_worker_cache import PerWorkerCache
from penstock._clinic.rules.limits.ps215_prefetch_memory import PrefetchMemory

RULES: tuple[Rule, ...] = (
    ShmExhausted(),
    FdExhausted(),
    MapCountExhausted(),
    SocketPathTooLong(),
    ShmLeaked(),
    ViewOfLargeStorage(),
    WorkerOutOfMemory(),
    ForkOutOfMemory(),
    CopyOnWriteGrowth(),
    PerWorkerCache(),
    PrefetchMemory(),
)
