"""Where the processes of a hung program stood: the lines that matter, alike processes together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.text import Text

from penstock._lab.record import Frame, ProcessLook
from penstock._render import words

MOST_FRAMES = 4  # of one process on the screen; the page has them all
# Parts of a path that say: not the user's own code.
FOREIGN = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen", "torch/utils/data/")
OURS = str(Path(__file__).parent.parent)  # the observer's frames stand between the user's and torch's


class Layout(Protocol):
    """What lays out a paragraph: see `as_text.Page`."""

    def hang(self, first: Text, body: Text, *, indent: int) -> Iterator[Text]:
        """A paragraph after `first`."""
        ...


@dataclass(frozen=True, slots=True)
class Standing:
    """Processes that stood at the same lines."""

    who: tuple[str, ...]
    waits: str  # in the kernel; empty when unknown
    frames: tuple[Frame, ...]  # innermost first; the user's own, where there are any


def standings(looks: Sequence[ProcessLook]) -> list[Standing]:
    """The main threads of all processes, those at the same place together; workers first."""
    groups: dict[tuple[str, tuple[Frame, ...]], list[str]] = {}
    for look in in_order(looks):
        thread = look.main
        key = (thread.wchan, thread.frames) if thread else ("", ())
        groups.setdefault(key, []).append(name(look))
    return [Standing(tuple(who), waits, _own(frames)) for (waits, frames), who in groups.items()]


def in_order(looks: Sequence[ProcessLook]) -> list[ProcessLook]:
    """Workers first, by number; they are where a hang usually sits."""
    return sorted(looks, key=lambda look: (look.role != "worker", look.worker or 0))


def name(look: ProcessLook) -> str:
    """A process as people speak of it: 'worker 1 (pid 4122, sample 10)'."""
    who = f"worker {look.worker}" if look.worker is not None else words.plain(look.role)
    sample = "" if look.index is None else f", sample {words.plain(look.index)}"
    return f"{who} (pid {look.pid}{sample})"


def is_observer(frame: Frame) -> bool:
    """Whether a line is of the doctor's own observer, which no user asked for."""
    return frame.file.startswith(OURS)


def place(frame: Frame) -> str:
    """Where a frame is; files of libraries by the names that people know."""
    file = frame.file
    for part in (*FOREIGN[:2], "/lib/python"):
        before, found, after = file.partition(part)
        if found and before:
            file = after if part in FOREIGN[:2] else after.partition("/")[2]
    return f"{words.short_path(file)}:{frame.line}"


def is_own(frame: Frame) -> bool:
    """Whether a line is the user's own."""
    return not is_observer(frame) and not any(part in frame.file for part in FOREIGN)


def _own(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """From the innermost frame of the user's own outwards; the innermost of all, where none is."""
    own = tuple(frame for frame in frames if is_own(frame))
    return (own or frames)[:MOST_FRAMES]


def as_lines(looks: Sequence[ProcessLook], page: Layout) -> Iterator[Text]:
    """The stacks for the terminal; nothing when there are none."""
    if not looks:
        return
    yield Text("where it stood", "bold")
    for standing in standings(looks):
        waits = f", in {words.plain(standing.waits)}" if standing.waits else ""
        yield from page.hang(Text("  "), Text(", ".join(standing.who) + waits), indent=4)
        for frame in standing.frames:
            yield from page.hang(
                Text(), Text(f"{place(frame)} in {words.plain(frame.function)}", "dim"), indent=6
            )
    yield Text()
