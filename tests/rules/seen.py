"""Facts for rules about limits and data: one loader, seen in a few ways."""

from __future__ import annotations

import dataclasses

from penstock._clinic.facts import Facts
from penstock._lab.plan import Change, Plan
from penstock._lab.record import (
    DatasetSeen,
    Failure,
    FetchSeen,
    HostSeen,
    IteratorSeen,
    LoaderSeen,
    SampleSeen,
    Site,
    Trial,
    Vitals,
)

KEY = "train.py:31#0"
MB = 1 << 20
GB = 1 << 30

HOST = HostSeen(
    cpus=2.0, cores_seen=2, memory_limit=16 * GB, shm_size=8 * GB, shm_free=8 * GB, nofile=1024,
    tmpdir_length=4, max_map_count=65_530,
)  # fmt: skip


def host(**fields):
    return dataclasses.replace(HOST, **fields)


def loader(*, dataset=None, things=(), length=100, start_method="fork", strategy="", **settings):
    return LoaderSeen(
        key=KEY,
        site=Site("/home/me/train.py", 31),
        name="train_loader",
        settings={"num_workers": 2, "batch_size": 4, "prefetch_factor": 2, **settings},
        dataset=dataset or DatasetSeen(type="Pictures", site=Site("/home/me/train.py", 8), length=400),
        things=things,
        length=length,
        start_method=start_method,
        sharing_strategy=strategy,
    )


def trial(seen=None, **fields):
    seen = seen or loader()
    defaults = {"host": HOST, "loaders": (seen,), "iterators": (passed(),)}
    return Trial(**{**defaults, **fields})


def passed(number=0, **fields):
    defaults = {"batches": 100, "samples": 400, "end": "exhausted", "workers": (11, 12)}
    return IteratorSeen(loader=KEY, number=number, **{**defaults, **fields})


def zero(**fields):
    """The rung without workers."""
    plan = Plan(drive="loader", loader=KEY, change=Change(settings={"num_workers": 0}), epochs=2)
    return trial(plan=plan, **{"iterators": (passed(workers=()), passed(1, workers=())), **fields})


def facts(observed, *rungs, source=None):
    return Facts(source=source, observed=observed, ladder=rungs)


def failure(text, *, kind="RuntimeError", phase="next", **fields):
    return Failure(type=kind, text=text, phase=phase, loader=KEY, at_s=3.0, **fields)


def vitals(count=40, **growing):
    """One look for each batch; each argument is a function of the batch's number, or a constant."""
    return tuple(
        Vitals(
            at_s=number * 0.1,
            batches=number + 1,
            **{name: int(value(number) if callable(value) else value) for name, value in growing.items()},
        )
        for number in range(count)
    )


def fetches(count=40, *, workers=2, iterator=0, size=4, **fields):
    """So many batches of each worker; arguments are functions of (worker, number), or constants."""
    return tuple(
        FetchSeen(
            loader=KEY,
            iterator=iterator,
            worker=worker,
            pid=11 + worker,
            indices=tuple(range(size)),
            began_s=iterator * 100 + number + worker / 10,
            **{name: value(worker, number) if callable(value) else value for name, value in fields.items()},
        )
        for worker in range(workers)
        for number in range(count)
    )


def samples(contents, *, iterator=0, worker=-1):
    """One sample for each content, in order; a content is its digest."""
    return tuple(
        SampleSeen(loader=KEY, iterator=iterator, worker=worker, index=index, digest=str(content))
        for index, content in enumerate(contents)
    )
