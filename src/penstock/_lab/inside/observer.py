"""What the parts of the observer share in one process, and how they are put in place.

The `Context` says for which pass over which loader something happens. It is set while `iter(loader)` runs,
in the consumer; a worker finds it in the configuration of its own `multiprocessing` process object, which
travels with every start method.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from penstock._lab.inside.endings import Endings
from penstock._lab.inside.log import Log
from penstock._lab.inside.page import Page
from penstock._lab.inside.proc import Looker
from penstock._lab.inside.quiet import quiet
from penstock._lab.plan import Plan

_CONFIG = "penstock"


class Context(NamedTuple):
    """A pass over a loader."""

    loader: str
    number: int
    worker: int = -1  # -1: in the consumer


class Observer:
    """The observer of this process."""

    def __init__(self, plan: Plan, log: Log, endings: Endings) -> None:
        self.plan = plan
        self.log = log
        self.page = Page(plan.log)
        self.endings = endings
        self.context: Context | None = None
        self.seen_error = 0  # id of the exception that was reported last
        self.spent = 0.0  # seconds that we took in this process, where it matters for what is measured
        self.looker = Looker()
        self.fetchers = 0  # that a worker has made
        self.attributes: dict[str, Any] = {}  # of a worker's dataset in its first pass
        # Set by `install`:
        self.makings: Any = None
        self.drive: Any = None
        self.mends: Any = None

    def begin_worker(self) -> None:
        """In a worker: what was counted so far is the consumer's."""
        self.seen_error, self.spent, self.looker, self.fetchers = 0, 0.0, Looker(), 0

    @quiet
    def install(self) -> None:
        """Patch torch.utils.data, which the program has just imported."""
        # Everything that a worker will need is imported here, once, before any is forked.
        from penstock._engine import odd_sample, rng_objects, unpicklable  # noqa: F401
        from penstock._lab.inside import fetches, loaders, mends, passes, state, workers  # noqa: F401

        torch: Any = sys.modules["torch"]
        module = sys.modules["torch.utils.data.dataloader"]
        self._tell(torch)
        self.mends = mends.Mends(self)
        self.mends.begin()
        for part in (fetches, workers, loaders, passes):
            install = quiet(part.install)
            install(self, module)
        if self.plan.change.use_penstock:
            self._use_penstock()

    def report(self, error: BaseException, phase: str, **fields: Any) -> None:
        """Tell of an exception, once in each process while it travels up."""
        from penstock._lab.inside.frames import failure

        if self.seen_error == id(error):
            return
        self.seen_error = id(error)
        self.log.write("failed", **failure(error), phase=phase, **fields)

    def _tell(self, torch: Any) -> None:
        import multiprocessing

        method = multiprocessing.get_start_method(allow_none=True)  # asking without it would fix the default
        self.log.write(
            "torch",
            version=str(torch.__version__),
            default_start_method=method or multiprocessing.get_all_start_methods()[0],
            has_cuda=getattr(torch.version, "cuda", None) is not None,
            cpus=os.cpu_count(),
        )

    def _use_penstock(self) -> None:
        from penstock._install import install
        from penstock._lab.inside import ours

        install(cure=True, stall_timeout=self.plan.stall_s)
        ours.install(self)


def share(context: Context | None) -> None:
    """Let the processes that are started from now on know for which pass they work."""
    from multiprocessing import process

    config = getattr(process.current_process(), "_config", None)
    if isinstance(config, dict):
        if context is None:
            config.pop(_CONFIG, None)
        else:
            config[_CONFIG] = [context.loader, context.number]


def shared(worker: int) -> Context | None:
    """In a worker: the pass for which it was started."""
    from multiprocessing import process

    config = getattr(process.current_process(), "_config", None)
    told = config.get(_CONFIG) if isinstance(config, dict) else None
    return None if told is None else Context(told[0], told[1], worker)


def is_reimport() -> bool:
    """Whether a child of multiprocessing runs the program's main module again, to find its classes."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(getattr(process.current_process(), "_inheriting", False))
