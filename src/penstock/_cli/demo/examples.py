"""The six examples: what each claims, the ways to run it, and how the runs speak about the claim. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock._cli.demo import programs

FIRST = "How do I resolve runtime errors related to num_workers?"
SECOND = "Why does a DataLoader freeze with multiple workers?"

SLOWER = 1.5  # times the seconds without: from here on a lock does harm


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run did."""

    samples: int | None = None  # that arrived, when the program came to its end
    seconds: float = 0.0
    error: str = ""  # the last line of its error
    is_hung: bool = False
    threads: int | None = None  # that a library said it has
    names_sample: bool = False  # whether the error says which sample it was

    @property
    def is_ok(self) -> bool:
        """Whether it came to its end."""
        return self.samples is not None

    @property
    def rate(self) -> float | None:
        """Samples per second."""
        return self.samples / self.seconds if self.samples and self.seconds else None


Word = Literal["holds", "half true", "wrong", "not tested"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a claim holds on this machine, and why."""

    word: Word
    why: str


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a program."""

    name: str
    argument: str = ""
    in_small_shm: bool = False


Runs = Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class Example:
    """One example."""

    title: str
    question: str
    program: str
    claim: str
    ways: tuple[Way, ...]
    judge: Callable[[Runs], Judgement]
    needs: tuple[str, str] | None = None  # a module, and how people call it
    is_data_at_fault: bool = False  # then the best that a loader can do is one clear error with the sample


def shared_memory(runs: Runs) -> Judgement:
    """Lazy loading is said to help."""
    eager, lazy = runs["as printed"], runs["loading lazily"]
    if eager.is_ok:
        return Judgement("not tested", "shared memory is large enough here")
    if lazy.is_ok:
        return Judgement("holds", "it fails, and loading lazily cures it")
    return Judgement("wrong", "loading lazily fails too: what fills it are the batches on their way")


def pickling(runs: Runs) -> Judgement:
    """A lambda is said to fail when workers start."""
    failed = [name for name, run in runs.items() if not run.is_ok]
    if len(failed) == len(runs):
        return Judgement("holds", "it fails whatever the start method")
    if failed:
        fine = ", ".join(name for name in runs if name not in failed)
        return Judgement("half true", f"it fails with {', '.join(failed)}, and runs with {fine}")
    return Judgement("wrong", "it runs with every start method")


def opencv(runs: Runs) -> Judgement:
    """OpenCV is said to crash, and a variable to prevent it."""
    without, with_it = runs["without the variable"], runs["with the variable"]
    if not without.is_ok:
        return Judgement("holds" if with_it.is_ok else "half true", f"without the variable: {without.error}")
    if with_it.threads != 1:
        return Judgement("wrong", f"nothing crashes, and OpenCV keeps its {with_it.threads} threads anyway")
    return Judgement("wrong", "nothing crashes without the variable")


def files(runs: Runs) -> Judgement:
    """Reading files in several workers is said to freeze."""
    run = runs["as printed"]
    if run.is_ok:
        return Judgement("wrong", f"{run.samples} files, 4 workers, no conflict and no freeze")
    return Judgement("holds" if run.is_hung else "half true", "it froze" if run.is_hung else run.error)


def exception(runs: Runs) -> Judgement:
    """A swallowed exception is said to corrupt batches silently, or to freeze."""
    run = runs["as printed"]
    if run.is_ok or run.is_hung:
        return Judgement("holds", "it froze" if run.is_hung else "the batches came, without a word")
    return Judgement("wrong", "the loader stops at once; torch only does not say at which sample")


def lock(runs: Runs) -> Judgement:
    """A lock is said to be the correction."""
    printed, locked, free = runs["as printed"], runs["with `import os`"], runs["without the lock"]
    broken = "" if printed.is_ok else "as printed it does not run; mended, "
    if not free.is_ok:
        return Judgement("holds" if locked.is_ok else "half true", f"without the lock: {free.error}")
    if not locked.is_ok:
        return Judgement("wrong", f"{broken}it fails: {locked.error}")
    ratio = locked.seconds / free.seconds
    if ratio >= SLOWER:
        return Judgement("wrong", f"{broken}it is {ratio:.1f} times slower than no lock, which is right too")
    return Judgement("half true", f"{broken}it does no harm here, and no good either")


EXAMPLES = (
    Example(
        title="Shared memory runs out",
        question=FIRST,
        program=programs.SHARED_MEMORY,
        claim="a large array in the dataset exhausts shared memory; load lazily",
        ways=(Way("as printed", "", in_small_shm=True), Way("loading lazily", "lazy", in_small_shm=True)),
        judge=shared_memory,
    ),
    Example(
        title="A lambda in the dataset",
        question=FIRST,
        program=programs.PICKLING,
        claim="a lambda in the dataset fails as soon as workers start",
        ways=(Way("fork", "fork"), Way("spawn", "spawn")),
        judge=pickling,
    ),
    Example(
        title="OpenCV in workers",
        question=FIRST,
        program=programs.OPENCV,
        claim="OpenCV's threads crash workers; OPENCV_OPENMP_NUM_THREADS=1 turns them off",
        ways=(Way("without the variable"), Way("with the variable", "variable")),
        judge=opencv,
        needs=("cv2", "OpenCV"),
    ),
    Example(
        title="Files without a lock",
        question=SECOND,
        program=programs.FILES,
        claim="workers that read files without a lock conflict and freeze",
        ways=(Way("as printed"),),
        judge=files,
    ),
    Example(
        title="An exception in a worker",
        question=SECOND,
        program=programs.EXCEPTION,
        claim="a swallowed exception corrupts batches silently, or freezes the loader",
        ways=(Way("as printed"),),
        judge=exception,
        is_data_at_fault=True,
    ),
    Example(
        title="Files with a lock",
        question=SECOND,
        program=programs.LOCK,
        claim="a multiprocessing.Lock around the reads is the correction",
        ways=(Way("as printed", "printed"), Way("with `import os`"), Way("without the lock", "free")),
        judge=lock,
    ),
)
