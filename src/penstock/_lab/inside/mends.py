"""Named repairs for experiments: the list, and who is called when.

`Change.mends` of a plan names them, some with an argument ("skip-index:17"). Each is made from inside the
running program, where nobody would make it by hand, and tells the log whether it could be made ("mend": name,
done, why). What could not be made proves nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from penstock._lab.inside.mending import of_datasets, of_processes, of_samples, of_threads, of_waits
from penstock._lab.inside.mending.mend import (
    Getting,
    Guarding,
    Mend,
    MendError,
    OfBatches,
    OfSamples,
    OfStreams,
)
from penstock._lab.inside.observer import Context, Observer

ALL: dict[str, type[Mend]] = {
    kind.name: kind
    for kind in (
        of_samples.CloneSamples,
        of_samples.CompactSamples,
        of_samples.DropKept,
        of_samples.PackTensors,
        of_samples.PlainResults,
        of_samples.UnsentBatches,
        of_samples.CachedSamples,
        of_samples.SkipIndex,
        of_samples.SkipRaising,
        of_samples.SkipOdd,
        of_samples.StopIterationRaises,
        of_samples.PlainExceptions,
        of_samples.NoExits,
        of_samples.ShardIterable,
        of_datasets.ReopenHandles,
        of_datasets.WidenRaces,
        of_datasets.ReseedRngObjects,
        of_datasets.NoLocks,
        of_datasets.CopySamples,
        of_datasets.NoCache,
        of_datasets.PackLists,
        of_datasets.FreshAttributes,
        of_datasets.TrueLength,
        of_datasets.KeepPickledTensors,
        of_processes.NoRaiseThreads,
        of_processes.OneThread,
        of_processes.SocketTimeout,
        of_processes.ShareByDescriptor,
        of_processes.ReuseIterator,
        of_processes.ShortTempdir,
        of_processes.InnerWorkersZero,
        of_processes.EqualRanks,
        of_threads.RestartThreads,
        of_threads.RebuildClients,
        of_waits.SampleDeadline,
    )
}

# These need nothing of the program, so that they are always done.
_ALWAYS = (
    Getting,
    OfSamples,
    OfBatches,
    OfStreams,
    of_processes.InnerWorkersZero,
    of_processes.ReuseIterator,
    of_processes.EqualRanks,
)


class Mends:
    """The repairs that the plan asks for."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._told: set[tuple[str, str]] = set()
        self._all: list[Mend] = []
        for name in observer.plan.change.mends:
            kind = ALL.get(name.partition(":")[0])
            if kind is None:
                self._tell(name, "no such mend")
            else:
                self._all.append(kind(name.partition(":")[2]))
        self._gets = [mend for mend in self._all if isinstance(mend, Getting)]
        self._guards = [mend for mend in self._all if isinstance(mend, Guarding)]
        self._of_samples = [mend for mend in self._all if isinstance(mend, OfSamples)]
        self._of_batches = [mend for mend in self._all if isinstance(mend, OfBatches)]
        self._of_streams = [mend for mend in self._all if isinstance(mend, OfStreams)]
        self.has_gets = bool(self._gets)
        self.has_samples = bool(self._of_samples)
        self.has_batches = bool(self._of_batches)
        self.needs_samples = bool(self._gets or self._of_samples or self._of_streams)
        self._is_limited = any(isinstance(mend, of_processes.EqualRanks) for mend in self._all)

    def begin(self) -> None:
        """Torch was imported."""
        for mend in self._all:
            if isinstance(mend, of_datasets.FreshAttributes):
                mend.beside(self._observer.plan.log)
            self._try(mend, mend.in_process)
            if isinstance(mend, _ALWAYS):
                self._tell(mend.name, "")

    def settings(self) -> dict[str, Any]:
        """Options that loaders get."""
        settings = dict(self._observer.plan.change.settings)
        worker: Any = sys.modules.get("torch.utils.data._utils.worker")
        is_inner = worker is not None and getattr(worker, "_worker_info", None) is not None
        if is_inner:
            is_mended = any(mend.name == "inner-workers-zero" for mend in self._all)
            return {"num_workers": 0} if is_mended else {}
        return settings

    # ---- in the consumer -----------------------------------------------------------------------

    def reused(self, loader: Any) -> Any:
        """An iterator to hand out in place of a new one."""
        for mend in self._all:
            if isinstance(mend, of_processes.ReuseIterator):
                return mend.reused(loader)
        return None

    def before_iter(self, loader: Any, context: Context) -> None:
        """iter(loader) begins."""
        for mend in self._all:
            self._try(mend, mend.before_iter, loader, context.number)

    def started(self, loader: Any, iterator: Any) -> None:
        """iter(loader) returns."""
        for mend in self._all:
            self._try(mend, mend.started, loader, iterator)

    def is_over(self, batches: int) -> bool:
        """Whether a pass ends here, whatever is left."""
        if not self._is_limited:
            return False
        most = next(mend.most for mend in self._all if isinstance(mend, of_processes.EqualRanks))
        return most is not None and batches >= most

    def arrived(self, batch: Any) -> Any:
        """A batch, on its way to the program."""
        for mend in reversed(self._of_batches):
            batch = mend.arrived(batch)
        return batch

    # ---- where samples are made ----------------------------------------------------------------

    def in_worker(self, dataset: Any) -> None:
        """A worker begins."""
        for mend in self._all:
            self._try(mend, mend.in_worker, dataset)

    def of_pass(self, dataset: Any, number: int, collate_fn: Any) -> Any:
        """A pass begins; the dataset to use."""
        for mend in self._all:
            if _is_plain(mend.of_pass):
                continue
            if isinstance(mend, of_datasets.FreshAttributes):
                mend.with_(collate_fn)
            try:
                dataset = mend.of_pass(dataset, number)
                self._tell(mend.name, "")
            except Exception as error:  # noqa: BLE001 - then the program runs without it, and that is told
                self._tell(mend.name, f"{error}")
        return dataset

    def get(self, dataset: Any, index: Any) -> Any:
        """One sample, through every mend of the call."""
        call = dataset.__getitem__
        for mend in self._gets:
            call = _through(mend, call)
        return call(index)

    def sample(self, sample: Any) -> Any:
        """A sample as the dataset gave it."""
        for mend in self._of_samples:
            sample = mend.sample(sample)
        return sample

    def together(self, samples: Any) -> Any:
        """Samples, before collate."""
        for mend in self._of_samples:
            samples = mend.together(samples)
        return samples

    def collate(self, collate_fn: Any, samples: Any) -> Any:
        """The batch, through every mend of what the program's own code raises."""
        call = collate_fn
        for mend in self._guards:
            call = _through(mend, call)
        return call(samples)

    def made(self, batch: Any) -> Any:
        """A batch, where it was made."""
        for mend in self._of_batches:
            batch = mend.made(batch)
        return batch

    def next_of(self) -> Any:
        """How to take the next sample of a stream."""
        return self._of_streams[0].next_of if self._of_streams else next

    def done(self, dataset: Any, state: Any) -> None:
        """A batch was made."""
        for mend in self._all:
            self._try(mend, mend.done, dataset, state)

    def _try(self, mend: Mend, call: Any, *args: Any) -> None:
        if _is_plain(call):
            return
        try:
            call(*args)
        except MendError as error:
            self._tell(mend.name, str(error))
        except Exception as error:  # noqa: BLE001 - then the program runs without it, and that is told
            self._tell(mend.name, f"{type(error).__name__}: {error}")
        else:
            self._tell(mend.name, "")

    def _tell(self, name: str, why: str) -> None:
        if (name, why) not in self._told:
            self._told.add((name, why))
            self._observer.log.write("mend", name=name, done=not why, why=why)


def _is_plain(call: Any) -> bool:
    """Whether a mend leaves this moment alone."""
    return getattr(Mend, call.__name__, None) is call.__func__


def _through(mend: Getting, call: Any) -> Any:
    return lambda index: mend.get(call, index)
