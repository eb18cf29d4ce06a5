"""Judges what workers tell of their first samples: mistakes that are certain, said once for each loader.

    worker ── Signs ──▶ hear ──▶ findings: warnings to give between two batches
                          └────▶ verdicts: with cure=True, whether workers shall divide an iterable dataset

Pure: the runtime carries signs here and verdicts back, the loader gives the warnings.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from penstock._engine import rng_objects, unsharded
from penstock._engine.rng_objects import RngSign


class Told(NamedTuple):
    """What one worker saw in its first samples of an epoch."""

    worker: int
    prefix: tuple[bytes, ...]  # digests, of an iterable dataset
    rngs: tuple[RngSign, ...]


class Memory:
    """What a loader remembers from one pass to the next."""

    def __init__(self) -> None:
        self.said: set[str] = set()  # by code
        self.births: dict[str, bytes] = {}  # state of each generator when a lone worker began


class Mistakes:
    """The judge of one iterator."""

    def __init__(
        self, workers: int, memory: Memory, *, is_iterable: bool, cure: bool, is_persistent: bool
    ) -> None:
        """`memory` is the loader's."""
        self._workers = workers
        self._memory = memory
        self._is_iterable = is_iterable
        self._cure = cure
        # Only fresh workers begin again where the last ones began.
        self._births = dict(memory.births) if workers == 1 and not is_persistent else {}
        self.findings: deque[str] = deque()
        self.is_sharded: bool | None = None
        self.begin()

    @property
    def waits(self) -> bool:
        """Whether workers wait for a verdict before they answer tickets."""
        return self._cure and self._is_iterable and self._workers > 1

    def begin(self) -> None:
        """A new epoch."""
        self._told: dict[int, Told] = {}
        self._lost: set[int] = set()
        self.is_sharded = None

    def hear(self, told: Told) -> list[tuple[int, bool]]:
        """Take in what a worker saw; return verdicts to send: (worker, whether to divide its stream)."""
        self._told[told.worker] = told
        self._judge_rngs()
        if self.waits and self.is_sharded is not None:
            return [(told.worker, self.is_sharded)]  # one that was started in the place of another
        return self._judge_streams()

    def lose(self, worker: int) -> list[tuple[int, bool]]:
        """A worker is gone for good; return verdicts, as `hear` does."""
        self._lost.add(worker)
        return [] if self.is_sharded is not None else self._judge_streams()

    def say(self, what: str, text: str) -> None:
        """Find this, unless it was said before."""
        if what not in self._memory.said:
            self._memory.said.add(what)
            self.findings.append(text)

    def _judge_streams(self) -> list[tuple[int, bool]]:
        if not self._is_iterable or len(self._told.keys() | self._lost) < self._workers:
            return []
        prefixes = [told.prefix for told in self._told.values()]
        is_repeated = unsharded.is_repeated(prefixes)
        if is_repeated:
            words = unsharded.cured if self.waits else unsharded.warning
            self.say("PS301", words(len(prefixes[0]), self._workers))
        if not self.waits:
            return []
        self.is_sharded = is_repeated
        return [(worker, is_repeated) for worker in sorted(self._told)]

    def _judge_rngs(self) -> None:
        reports = {worker: told.rngs for worker, told in self._told.items() if told.rngs}
        if not reports:
            return
        repeat = rng_objects.repeated(reports, self._births, in_step=self._is_iterable)
        if repeat is not None:
            self.say("PS302", rng_objects.warning(repeat, is_iterable=self._is_iterable))
        path = rng_objects.reseeded(reports)
        if path is not None:
            self.say("PS302", rng_objects.cured(path))
        if self._workers == 1:
            self._memory.births.update(
                (sign.path, sign.first) for signs in reports.values() for sign in signs
            )


def told_by(fields: Any) -> Told:
    """Rebuild what crossed a channel as plain tuples."""
    worker, prefix, rngs = fields
    return Told(worker, tuple(prefix), tuple(RngSign(*sign) for sign in rngs))
