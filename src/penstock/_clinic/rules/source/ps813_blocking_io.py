"""PS813 blocking-io

## What it finds
A network request without a time limit in the path of `__getitem__`.

## Why it matters
`requests` and `urlopen` wait for ever by default. One server that stops answering stops one worker, and with
it the whole loader, which hands out batches in order.

## How we know
The source calls `requests.get`, `urllib.request.urlopen`, `socket.create_connection` and the like without
`timeout=` in what workers run.

## What to do
Pass `timeout=` (seconds), and try again a bounded number of times.

## When we stay silent
When `timeout=` is passed, or may be in `**kwargs`, when `settimeout` or `socket.setdefaulttimeout` is called,
and when the request is not in the path of a sample.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place
from penstock._clinic.reading.patterns import FETCHING, calls, is_own_call, made_by, quoted
from penstock._clinic.reading.program import Program, program, site

VERBS = ("get", "post", "put", "head", "request", "patch", "delete")
REQUESTS = frozenset(f"requests.{verb}" for verb in VERBS)
# By place, where `timeout` is given without its name: urlopen(url, data, timeout).
OPENERS = {"urllib.request.urlopen": 3, "urllib2.urlopen": 3, "socket.create_connection": 2}
SESSIONS = frozenset({"requests.Session", "requests.session"})


class BlockingIo:
    """A worker may wait for the network for ever."""

    code: ClassVar[str] = "PS813"
    cause: ClassVar[str] = "blocking-io"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each request."""
        if facts.source is None:
            return
        read = program(facts.source)
        is_limited = _has_default(read)
        for dataset in read.datasets:
            if not read.may_work(dataset):
                continue
            for place in dataset.reach(*FETCHING):
                for call in calls(place):
                    name = _request(call, dataset, place)
                    if name and not (name in OPENERS and (is_limited or _sets_limit(place))):
                        yield self._finding(call, name, place)

    def _finding(self, call: ast.Call, name: str, place: Place) -> Finding:
        return suspicion(
            self,
            site(place.module, call),
            f"`{name}` without `timeout` may wait for ever, and the loader with it",
            Prescription(
                change=f"pass `timeout=` to `{name}`",
                expect="a silent server becomes an error that names the sample",
                fix=Fix("socket-timeout", site(place.module, call)),
            ),
            ("in the worker", quoted(place.module, call)),
        )


def _request(call: ast.Call, dataset: ClassRead, place: Place) -> str | None:
    """The name of a request without a time limit."""
    if any(keyword.arg in {None, "timeout"} for keyword in call.keywords):
        return None
    name = place.module.dotted(call.func)
    if name in REQUESTS or (name in OPENERS and len(call.args) < OPENERS[name]):
        return name
    session = is_own_call(call, *VERBS)
    if session is None:
        return None
    made = (made_by(each.value, each.module) for each in dataset.assigned(session))
    is_session = any(each is not None and each[0] in SESSIONS for each in made)
    return f"self.{session}.{getattr(call.func, 'attr', 'get')}" if is_session else None


def _sets_limit(place: Place) -> bool:
    """Whether the same function gives its socket a limit."""
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "settimeout" for call in calls(place)
    )


def _has_default(read: Program) -> bool:
    return any(
        module.dotted(call.func) == "socket.setdefaulttimeout"
        for module in read.modules
        for call in module.calls
    )
