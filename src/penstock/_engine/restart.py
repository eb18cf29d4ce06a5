"""Whether a worker that is gone gets a successor, and when.

Every loss costs one of `most` restarts, and every answered ticket earns one back: a machine on which workers
are killed now and then goes on for ever, and a loader whose workers only die gives up soon. The first
successors come at once; when a worker dies again and again without an answer they wait longer and longer.

Pure: events in, decisions out; the caller has the clock.
"""

from __future__ import annotations

# Successors that come at once; most deaths are single, and a wait would cost time for nothing.
PROMPT = 2
# Forks that the system may refuse one after another: it hardly changes its mind.
MOST_UNBORN = 4
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0


class Restarts:
    """The restarts of one iterator."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._in_a_row: dict[int, int] = {}
        self.count = 0  # losses in all

    def answered(self, worker: int) -> None:
        """A worker has answered a ticket."""
        self._in_a_row.pop(worker, None)
        self._left = min(self._most, self._left + 1)

    def lost(self, worker: int, *, is_unborn: bool = False) -> float | None:
        """A worker is gone: seconds until its successor may start, or None when there is to be none.

        `is_unborn`: the system refused to fork it.
        """
        self.count += 1
        row = self._in_a_row[worker] = self._in_a_row.get(worker, 0) + 1
        if self._left < 1 or (is_unborn and row > MOST_UNBORN):
            return None
        self._left -= 1
        if row <= PROMPT:
            return 0.0
        return float(min(FIRST_WAIT_S * 2 ** (row - PROMPT - 1), LONGEST_WAIT_S))
