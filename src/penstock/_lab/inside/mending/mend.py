"""What a mend is: one repair, made from inside a running program, to prove a cause by its absence."""

from __future__ import annotations

from typing import Any, ClassVar


class MendError(Exception):
    """It cannot be done in this program; the text says why."""


class Mend:
    """One repair. Each method is called at its moment; what a mend does not override does nothing.

    A mend may be as crude as it likes: the program is ended after the experiment.
    """

    name: ClassVar[str] = ""

    def __init__(self, argument: str = "") -> None:
        self.argument = argument  # what follows the colon in "skip-index:17"

    def in_process(self) -> None:
        """Torch was imported, in the consumer or in a worker that was not forked."""

    def before_iter(self, loader: Any, number: int) -> None:
        """In the consumer: iter(loader) begins."""

    def started(self, loader: Any, iterator: Any) -> None:
        """In the consumer: iter(loader) returns this."""

    def in_worker(self, dataset: Any) -> None:
        """In a worker: it begins, before its init function."""

    def of_pass(self, dataset: Any, number: int) -> Any:
        """Where samples are made: a pass begins. Returns the dataset to use (heard for map-style ones)."""
        del number
        return dataset

    def done(self, dataset: Any, state: Any) -> None:
        """Where samples are made: a batch is made."""
        del dataset, state


class Getting:
    """A mend of the call that gets one sample: `get` calls `inner(index)`, more than once or not at all."""

    def get(self, inner: Any, index: Any) -> Any:
        """The sample of this index."""
        return inner(index)


class Guarding(Getting):
    """A mend of what the program's own code raises: `get` stands around its collate function as well."""


class OfSamples:
    """A mend of samples as the dataset gave them."""

    def sample(self, sample: Any) -> Any:
        """The sample to go on with."""
        return sample

    def together(self, samples: Any) -> Any:
        """The samples of a batch, before collate."""
        return samples


class OfBatches:
    """A mend of batches, where they are made and where they arrive."""

    def made(self, batch: Any) -> Any:
        """The batch to send."""
        return batch

    def arrived(self, batch: Any) -> Any:
        """The batch to hand to the program."""
        return batch


class OfStreams:
    """A mend of the stream of an iterable dataset."""

    def next_of(self, stream: Any) -> Any:
        """The next sample of the stream."""
        return next(stream)
