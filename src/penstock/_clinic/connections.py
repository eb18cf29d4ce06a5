"""Who holds a connection that workers share: a client, or the dataset itself.

A library's client is one; so is any object of the program's that keeps a socket (`dataset.store.sock`). A
socket that the dataset keeps itself (`dataset.sock`) is a handle, as a file is.
"""

from __future__ import annotations

import re

from penstock._lab.record import LoaderSeen, Thing

# What torch's own wrappers (Subset, ConcatDataset) call the dataset inside.
_WRAPPED = re.compile(r"(\.datasets?(\[\d+\])?)+")


def client_of(loader: LoaderSeen | None) -> Thing | None:
    """The client of a library, or the socket inside of one of the program's own."""
    things = loader.things if loader else ()
    known = next((thing for thing in things if thing.kind == "client"), None)
    return known or next((thing for thing in things if thing.kind == "socket" and not _is_bare(thing)), None)


def bare_socket(loader: LoaderSeen | None) -> Thing | None:
    """The socket that a dataset keeps itself, where there is no client."""
    if loader is None or client_of(loader) is not None:
        return None
    return next((thing for thing in loader.things if thing.kind == "socket"), None)


def connection(loader: LoaderSeen | None) -> Thing | None:
    """What talks to the service, whoever holds it."""
    return client_of(loader) or bare_socket(loader)


def _is_bare(thing: Thing) -> bool:
    return _WRAPPED.sub("", thing.path, count=1).count(".") <= 1
