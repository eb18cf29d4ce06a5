"""Named repairs, for experiments."""

from __future__ import annotations

from typing import Any


class Mends:
    """The repairs that the plan asks for."""

    def __init__(self, observer: Any) -> None:
        self._observer = observer
        self.names = frozenset(observer.plan.change.mends)
        self.has_batches = False
        self.has_samples = False

    def settings(self) -> dict[str, Any]:
        """Options that every loader gets."""
        return dict(self._observer.plan.change.settings)

    def reused(self, loader: Any) -> Any:
        return None

    def before_iter(self, loader: Any, context: Any) -> None:
        pass

    def started(self, loader: Any, iterator: Any) -> None:
        pass

    def batch(self, batch: Any) -> Any:
        return batch

    def sample(self, sample: Any) -> Any:
        return sample

    def next_of(self, context: Any) -> Any:
        return next

    def in_worker(self, dataset: Any, context: Any) -> None:
        pass

    def fetched(self, dataset: Any) -> None:
        pass
