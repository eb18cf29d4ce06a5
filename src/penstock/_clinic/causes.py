"""Every cause by its code: the index of what the doctor knows. Pure.

Families: PS1xx starting workers, PS2xx the machine's limits and memory, PS3xx silently wrong data, PS4xx
speed, PS8xx what fails while it runs. PS0xx and PS5xx to PS7xx are errors of our own loader
(`penstock.errors`), PS9xx say why a program could not be examined. A code has one meaning for ever; PS301 to
PS303 are also warnings of the loader.
"""

from __future__ import annotations

CAUSES: dict[str, str] = {
    # starting workers
    "PS101": "unpicklable-dataset",
    "PS102": "missing-main-guard",
    "PS103": "class-not-importable",
    "PS104": "tensor-freed-while-pickling",
    "PS105": "start-method-changed",
    "PS106": "slow-worker-start",
    "PS111": "lock-held-at-fork",
    "PS112": "thread-pool-after-fork",
    "PS113": "cuda-before-fork",
    "PS114": "client-not-fork-safe",
    "PS115": "handle-shared-across-fork",
    # the machine's limits, and memory
    "PS201": "shm-exhausted",
    "PS202": "fd-exhausted",
    "PS203": "map-count-exhausted",
    "PS204": "socket-path-too-long",
    "PS205": "shm-leaked",
    "PS206": "view-of-large-storage",
    "PS211": "worker-out-of-memory",
    "PS212": "fork-out-of-memory",
    "PS213": "copy-on-write-growth",
    "PS214": "per-worker-cache",
    "PS215": "prefetch-memory",
    # silently wrong data
    "PS301": "iterable-not-sharded",
    "PS302": "rng-repeated",
    "PS303": "stale-dataset-in-workers",
    "PS304": "stop-iteration-truncates",
    "PS305": "wrong-length",
    "PS306": "sample-mutated-in-place",
    # speed
    "PS401": "too-few-workers",
    "PS402": "transform-bound",
    "PS403": "storage-bound",
    "PS404": "not-pinned",
    "PS405": "not-fed-fast-enough",
    "PS406": "too-many-workers",
    "PS407": "workers-restarted",
    "PS408": "iterator-rebuilt-each-step",
    "PS409": "lock-serialises-workers",
    "PS410": "many-small-tensors",
    "PS411": "workers-not-worth-it",
    "PS412": "large-python-objects",
    "PS413": "straggler-samples",
    "PS414": "thread-oversubscription",
    # failures while it runs
    "PS801": "dataset-raises",
    "PS802": "bad-sample",
    "PS803": "result-not-picklable",
    "PS804": "exception-not-picklable",
    "PS805": "exception-type-lost",
    "PS811": "worker-segfault",
    "PS812": "worker-exited",
    "PS813": "blocking-io",
    "PS814": "nested-workers",
    "PS815": "uneven-ranks",
    "PS816": "pin-thread-died",
    "PS817": "slow-shutdown",
    "PS818": "ctrl-c",
    "PS819": "orphan-workers",
    "PS820": "stale-iterator-noise",
}
CODES: dict[str, str] = {cause: code for code, cause in CAUSES.items()}

# What a fork does to what is open or held at that moment: the price of a cure that forks workers.
OF_FORK = frozenset(
    {
        "lock-held-at-fork",
        "thread-pool-after-fork",
        "cuda-before-fork",
        "client-not-fork-safe",
        "handle-shared-across-fork",
    }
)

# Where nothing else tells which of two silent errors is worse: samples that are lost, wrong or repeated come
# before those that are made with old values, and these before chance that repeats itself.
GRAVITY: tuple[str, ...] = (
    "handle-shared-across-fork",
    "client-not-fork-safe",
    "stop-iteration-truncates",
    "iterable-not-sharded",
    "wrong-length",
    "sample-mutated-in-place",
    "stale-dataset-in-workers",
    "rng-repeated",
)

# Root before symptom: the cause on the left comes before those on its right, when both are found.
LEADS_TO: dict[str, tuple[str, ...]] = {
    "copy-on-write-growth": ("worker-out-of-memory", "fork-out-of-memory"),
    "per-worker-cache": ("worker-out-of-memory", "fork-out-of-memory"),
    "prefetch-memory": ("worker-out-of-memory", "shm-exhausted"),
    "view-of-large-storage": (
        "shm-exhausted",
        "worker-out-of-memory",
        "fd-exhausted",
        "many-small-tensors",
        "workers-not-worth-it",
        "too-many-workers",
        "not-fed-fast-enough",
    ),
    "shm-leaked": ("shm-exhausted",),
    "start-method-changed": (
        "unpicklable-dataset",
        "missing-main-guard",
        "class-not-importable",
        "tensor-freed-while-pickling",
        "slow-worker-start",
        "dataset-raises",
    ),
    "lock-held-at-fork": ("blocking-io",),
    "thread-pool-after-fork": ("blocking-io",),
    "client-not-fork-safe": ("dataset-raises", "bad-sample", "blocking-io"),
    "tensor-freed-while-pickling": ("worker-exited",),
    "missing-main-guard": ("worker-exited", "unpicklable-dataset"),
    "class-not-importable": ("worker-exited",),
    "exception-not-picklable": ("dataset-raises", "result-not-picklable"),
    "exception-type-lost": ("dataset-raises",),
    "nested-workers": ("dataset-raises",),
    "handle-shared-across-fork": (
        "dataset-raises",
        "bad-sample",
        "worker-segfault",
        "blocking-io",
        "rng-repeated",
    ),
    # One slowness, one leading cause: the most specific first, hand-over and starving in general last.
    "iterator-rebuilt-each-step": (
        "workers-restarted",
        "slow-worker-start",
        "too-many-workers",
        "workers-not-worth-it",
        "too-few-workers",
        "storage-bound",
        "transform-bound",
        "not-fed-fast-enough",
        "slow-shutdown",
    ),
    "slow-worker-start": ("workers-restarted", "too-many-workers", "workers-not-worth-it"),
    "lock-serialises-workers": (
        "straggler-samples",
        "too-many-workers",
        "workers-not-worth-it",
        "too-few-workers",
        "storage-bound",
        "transform-bound",
        "not-fed-fast-enough",
    ),
    "thread-oversubscription": (
        "slow-worker-start",
        "workers-restarted",
        "straggler-samples",
        "too-many-workers",
        "workers-not-worth-it",
        "too-few-workers",
        "transform-bound",
        "not-fed-fast-enough",
    ),
    "straggler-samples": (
        "too-many-workers",
        "too-few-workers",
        "storage-bound",
        "transform-bound",
        "not-fed-fast-enough",
    ),
    "many-small-tensors": (
        "large-python-objects",
        "workers-not-worth-it",
        "too-many-workers",
        "not-fed-fast-enough",
    ),
    "large-python-objects": (
        "workers-not-worth-it",
        "too-many-workers",
        "transform-bound",
        "not-fed-fast-enough",
    ),
    "workers-restarted": ("workers-not-worth-it", "not-fed-fast-enough"),
    "workers-not-worth-it": ("not-fed-fast-enough",),
    "too-many-workers": (
        "workers-restarted",
        "workers-not-worth-it",
        "transform-bound",
        "not-fed-fast-enough",
    ),
    "too-few-workers": ("storage-bound", "transform-bound", "not-fed-fast-enough"),
    "storage-bound": ("not-fed-fast-enough",),
    "transform-bound": ("not-fed-fast-enough",),
    "stop-iteration-truncates": ("wrong-length",),
    "orphan-workers": ("worker-exited",),
    "ctrl-c": ("worker-exited", "orphan-workers", "slow-shutdown"),
    "iterable-not-sharded": ("wrong-length",),
    "wrong-length": ("dataset-raises",),
    "shm-exhausted": ("worker-segfault", "worker-exited", "result-not-picklable", "blocking-io"),
    "fd-exhausted": (
        "dataset-raises",
        "result-not-picklable",
        "worker-exited",
        "blocking-io",
        "pin-thread-died",
    ),
    "socket-path-too-long": ("result-not-picklable", "worker-exited", "blocking-io"),
    "worker-out-of-memory": ("worker-exited", "worker-segfault", "dataset-raises"),
}
