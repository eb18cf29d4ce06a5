"""How programs end, and do not: ranks, shutdown, interrupts, what is left behind (PS815 to PS820)."""

from __future__ import annotations

from penstock._clinic.rule import Rule
from penstock._clinic.rules.endings.ps815_uneven_ranks import UnevenRanks
from penstock._clinic.rules.endings.ps816_pin_thread_died import PinThreadDied
from penstock._clinic.rules.endings.ps817_slow_shutdown import SlowShutdown
from penstock._clinic.rules.endings.ps818_ctrl_c import CtrlC
from penstock._clinic.rules.endings.ps819_orphan_workers import OrphanWorkers
from penstock._clinic.rules.endings.ps820_stale_iterator_noise import StaleIteratorNoise

RULES: tuple[Rule, ...] = (
    UnevenRanks(),
    PinThreadDied(),
    OrphanWorkers(),
    CtrlC(),
    SlowShutdown(),
    StaleIteratorNoise(),
)
