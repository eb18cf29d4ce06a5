"""Which sample kills its worker.

A worker that does a ticket for the second time tells before each sample which one it is: one that kills
is caught in the act. Two deaths at one sample prove it, if the worker ended by its own doing (a segmentation
fault, an abort, an exit); a signal from outside (SIGKILL, SIGTERM) may have come from anywhere, so it takes
three. A ticket whose workers die at changing places, or outside of any sample, is given up after MOST deaths.

Pure: deaths in, verdicts out.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

PROOF_OWN = 2
PROOF_FOREIGN = 3
MOST = 5

FOREIGN = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})


class Verdict(NamedTuple):
    """What to do with a ticket that was in hand when a worker died."""

    condemned: int | None  # the position in its batch of the sample that kills, if it was found now
    is_hopeless: bool  # nobody shall try this ticket again


class Suspects:
    """Tickets during which workers died, until they are answered."""

    def __init__(self) -> None:
        self._deaths: dict[int, list[tuple[int | None, int]]] = {}
        self._condemned: set[tuple[int, int]] = set()  # ticket and position

    def lost(self, number: int, position: int | None, status: int) -> Verdict:
        """A worker died over this ticket, at the sample at `position` if that is known."""
        deaths = self._deaths.setdefault(number, [])
        deaths.append((position, status))
        here = [status for place, status in deaths if place == position]
        proof = PROOF_FOREIGN if any(each in FOREIGN for each in here) else PROOF_OWN
        if position is not None and len(here) >= proof:
            if (number, position) in self._condemned:  # it was left out: what came in its place kills too
                return Verdict(None, is_hopeless=True)
            self._condemned.add((number, position))
            # The others are innocent until something happens to them again.
            self._deaths[number] = [death for death in deaths if death[0] != position]
            return Verdict(position, is_hopeless=False)
        return Verdict(None, is_hopeless=len(deaths) >= MOST)

    def answered(self, number: int) -> None:
        """The ticket is done."""
        if self._deaths:
            self._deaths.pop(number, None)
