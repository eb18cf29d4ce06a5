"""PS204 socket-path-too-long

## What it finds
A temporary directory whose path is too long for the sockets that workers make in it.

## Why it matters
Workers pass descriptors over Unix sockets below `$TMPDIR`, and the path of such a socket may have 107
characters. Cluster schedulers set longer ones. The error is raised in a worker's feeder thread, which drops
it: the program hangs, with "AF_UNIX path too long" on standard error.

## How we know
The text, with the length of the temporary directory. The experiment runs the same with `TMPDIR=/tmp`.

## What to do
Set a short `TMPDIR` (`export TMPDIR=/tmp`) before the program starts.

## When we stay silent
When no process said so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import loader_named
from penstock._clinic.said import first_said, loader_of
from penstock._clinic.trying import mended
from penstock._lab.plan import Change

_TEXT = re.compile(r"AF_UNIX path too long")

LONGEST = 107  # characters in the path of a Unix socket on Linux
SHORT = "/tmp"  # noqa: S108 - the directory to prescribe, not one to write to


class SocketPathTooLong:
    """The temporary directory's path leaves no room for a socket's name."""

    code: ClassVar[str] = "PS204"
    cause: ClassVar[str] = "socket-path-too-long"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when a socket could not be made."""
        found = first_said(facts, _TEXT)
        if found is None:
            return
        loader = loader_of(facts, found.trial, found.failure)
        length = found.trial.host.tmpdir_length
        what = "hangs" if found.trial.outcome == "hang" else "fails"
        told = f"the temporary directory has a path of {length} characters, and" if length else ""
        yield Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{loader_named(loader)} {what} because {told} a worker's socket below TMPDIR may have "
                f"{LONGEST} in all".replace("because  ", "because ")
            ),
            prescription=Prescription(
                change=f"set TMPDIR={SHORT} before the program starts",
                expect="workers can hand their batches over",
                fix=Fix("set-variable", None, {"name": "TMPDIR", "value": SHORT}),
            ),
            evidence=(
                Evidence("what was said", found.line, found.source),
                Evidence("length of the temporary directory's path", str(length), "host"),
            ),
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            experiments=(
                Experiment(f"the same with TMPDIR={SHORT}", Change(env={"TMPDIR": SHORT})),
                mended(f"short-tempdir:{SHORT}", f"the same with {SHORT} as the folder for sockets"),
            ),
            stopped_at_s=found.failure.at_s if found.failure else found.trial.seconds,
        )
