"""Reports of many kinds, as an exam would make them, and the sources that they speak of."""

from __future__ import annotations

from penstock._clinic.finding import Evidence, Finding, Prescription, Proof
from penstock._clinic.report import LoaderLine, Reason, Report, Rung
from penstock._lab.record import Frame, ProcessLook, Site, ThreadLook

MB = 1_000_000

TRAIN = """\
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, root):
        self.transform = lambda image: image / 255
    def __getitem__(self, index):
        with LOCK:
            return self.read(index)

loader = DataLoader(Images("data"), batch_size=10, shuffle=True, num_workers=4, prefetch_factor=2)
for epoch in range(3):
    for batch in loader:
        step(batch)
"""
SOURCES = {"train.py": TRAIN}

PATCH = """\
--- train.py
+++ train.py
@@ -3,5 +3,8 @@
{blank}
+def scaled(image):
+    return image / 255
+
 class Images(Dataset):
     def __init__(self, root):
-        self.transform = lambda image: image / 255
+        self.transform = scaled
     def __getitem__(self, index):
""".replace("{blank}", " ")


def read(file: str) -> list[str]:
    """The lines of a source of this module."""
    return SOURCES.get(file, "").splitlines(keepends=True)


def loader(**settings: object) -> LoaderLine:
    return LoaderLine("loader", "train.py", 11, {"batch_size": 10, "num_workers": 4, **settings})


def ladder(*rows: tuple[int, str, float | None, str], start: str = "fork", loader: str = "train.py:11#0"):
    return tuple(
        Rung(workers, start, outcome, rate, detail, loader) for workers, outcome, rate, detail in rows
    )


SHM = Report(
    target="train.py",
    verdict="sick",
    seconds=31.24,
    loaders=(loader(prefetch_factor=2),),
    ladder=ladder(
        (0, "ok", 122.4, ""),
        (1, "ok", 118.0, ""),
        (
            2,
            "error",
            None,
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_41>: No space left",
        ),
        (4, "error", None, "RuntimeError: No space left on device (28)"),
    ),
    findings=(
        Finding(
            code="PS201",
            cause="shm-exhausted",
            severity="error",
            message="the batches in flight need 320 MB of shared memory and /dev/shm has 64 MB",
            where=Site("train.py", 11, "<module>"),
            loader="train.py:11#0",
            evidence=(
                Evidence("size of /dev/shm", "64 MB", "host"),
                Evidence("batches in flight", "4 workers × 2 × 40 MB = 320 MB", "observed run"),
                Evidence(
                    "first failure", "RuntimeError: No space left on device (28), after 3 batches", "ladder"
                ),
            ),
            prescription=Prescription(
                "start the container with --shm-size=1g (now 64 MB), or num_workers=4 → num_workers=1",
                "all 100 samples arrive; at most 80 MB are in flight",
            ),
            proof=Proof(
                "verified",
                "the same loader with a /dev/shm of 4 GB: RuntimeError: No space left on device (28) is gone",
                {
                    "outcome": "RuntimeError: No space left on device (28)",
                    "batches": 3,
                    "samples_per_s": None,
                },
                {"outcome": "ok", "batches": 10, "samples_per_s": 231.7},
            ),
            cured_by_penstock=True,
        ),
    ),
    refuted=(
        Finding("PS215", "prefetch-memory", "warning", "…", Prescription("", "")),
        Finding("PS206", "view-of-large-storage", "error", "…", Prescription("", "")),
    ),
    notes=("spawn was not tried: the program asks for fork",),
    memory=((0.0, 80 * MB), (1.0, 260 * MB), (2.0, 640 * MB), (3.0, 700 * MB), (4.0, 702 * MB)),
)

FRAMES = (
    Frame("Images.__getitem__", "train.py", 8),
    Frame(
        "_MapDatasetFetcher.fetch", "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 54
    ),
    Frame("_worker_loop", "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 374),
)


def stuck(worker: int, pid: int) -> ProcessLook:
    thread = ThreadLook(pid, "MainThread", FRAMES, "futex_do_wait", "futex", "S")
    return ProcessLook(pid, 4100, "worker", worker, "train.py:11#0", 10 * worker, (thread,))


HANG = Report(
    target="train.py",
    verdict="sick",
    seconds=64.8,
    loaders=(loader(),),
    ladder=ladder(
        (0, "ok", 540, ""), (1, "hang", None, "no batch for 10 s"), (4, "hang", None, "no batch for 10 s")
    ),
    findings=(
        Finding(
            code="PS111",
            cause="lock-held-at-fork",
            severity="error",
            message="both workers wait for ever for a lock that thread 'refresher' held at the fork",
            where=Site("train.py", 8, "Images.__getitem__"),
            evidence=(
                Evidence("workers", "2 of 2 in train.py:8, futex_do_wait, no CPU time for 10 s", "stacks"),
                Evidence("threads in the consumer at iter()", "MainThread, refresher", "observed run"),
            ),
            prescription=Prescription(
                'multiprocessing_context="spawn"',
                "workers start without the lock; each start takes 3 s longer",
            ),
            proof=Proof(
                "verified",
                "the same loader under spawn: hang is gone",
                {"outcome": "hang"},
                {"outcome": "ok"},
            ),
            cured_by_penstock=True,
        ),
    ),
    stacks=(
        ProcessLook(
            4100,
            1,
            "main",
            threads=(
                ThreadLook(
                    4100,
                    "MainThread",
                    (
                        Frame(
                            "_try_get_data",
                            "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
                            1291,
                        ),
                        Frame("<module>", "train.py", 13),
                    ),
                    "poll_schedule_timeout",
                ),
                ThreadLook(4107, "refresher", (Frame("refresh", "train.py", 21),), "hrtimer_nanosleep"),
            ),
        ),
        stuck(0, 4121),
        stuck(1, 4122),
    ),
)

PICKLING = Report(
    target="train.py",
    verdict="sick",
    seconds=22.0,
    loaders=(loader(multiprocessing_context="spawn"),),
    ladder=ladder(
        (0, "ok", 801, ""), (1, "error", None, "AttributeError: Can't pickle local object"), start="spawn"
    ),
    findings=(
        Finding(
            code="PS101",
            cause="unpicklable-dataset",
            severity="error",
            message="the dataset cannot be sent to workers: dataset.transform is a lambda",
            where=Site("train.py", 6, "lambda"),
            evidence=(
                Evidence(
                    "dataset.transform",
                    "Can't pickle local object 'Images.__init__.<locals>.<lambda>'",
                    "samples",
                ),
                Evidence("start method", "spawn", "settings"),
            ),
            prescription=Prescription("make the lambda a function of the module", "workers start", PATCH),
            confidence="suspected",
            proof=Proof("not-tested", "the time for experiments was used up"),
        ),
    ),
)

HEALTHY = Report(
    target="train.py",
    verdict="healthy",
    seconds=18.31,
    loaders=(loader(), LoaderLine("valid", "train.py", 12, {})),
    ladder=(
        *ladder((0, "ok", 122.4, ""), (1, "ok", 240.0, ""), (2, "ok", 431.2, ""), (4, "ok", 440.9, "")),
        *ladder((0, "ok", None, ""), (1, "ok", None, ""), loader="train.py:12#0"),
    ),
)

HEALTHY_WITH_REMARK = Report(
    target="train.py",
    verdict="healthy",
    seconds=18.31,
    loaders=(loader(),),
    ladder=ladder((0, "ok", 122.4, ""), (4, "ok", 440.9, "")),
    findings=(
        Finding(
            code="PS407",
            cause="workers-restarted",
            severity="info",
            message="workers are started anew in every epoch, which takes 0.2 s of 1.9 s",
            where=Site("train.py", 11),
            prescription=Prescription(
                "persistent_workers=False → persistent_workers=True", "1.1 times as fast"
            ),
            proof=Proof(
                "verified", "persistent_workers=True: 1.10x", {"samples_per_s": 400}, {"samples_per_s": 440}
            ),
        ),
    ),
)

COULD_NOT_RUN = Report(
    target="train.py",
    verdict="could-not-run",
    seconds=4.0,
    reason=Reason(
        "PS902",
        "the script ended before it made a DataLoader",
        "it exited with status 2 after 3.1 s; its last line was: train.py: error: the following arguments "
        "are required: --data",
        "pass its arguments after two dashes: penstock doctor train.py -- --data DIR",
    ),
)

TWO = Report(
    target="train.py",
    verdict="sick",
    seconds=88.0,
    loaders=(loader(),),
    ladder=ladder((0, "ok", 100, ""), (4, "oom", None, "worker 2 was killed: out of memory")),
    findings=(
        Finding(
            code="PS213",
            cause="copy-on-write-growth",
            severity="error",
            message="every worker grows by 1.2 MB a batch because it touches a list of 2,000,000 objects",
            where=Site("train.py", 6, "transform"),
            evidence=(Evidence("slope", "1.2 MB a batch, 0.99 of it private pages", "observed run"),),
            prescription=Prescription("keep the list as one numpy array", "memory stays flat"),
            proof=Proof(
                "verified",
                "the list packed: growth_bytes 480 MB becomes 2 MB",
                {"growth_bytes": 480 * MB},
                {"growth_bytes": 2 * MB},
            ),
            cured_by_penstock=False,
        ),
        Finding(
            code="PS302",
            cause="rng-repeated",
            severity="warning",
            message="all 4 workers draw the same random numbers",
            prescription=Prescription("seed the generator in worker_init_fn", "4 different streams"),
            proof=Proof("refuted", "reseeding in every worker: it stays", {"distinct": 2}, {"distinct": 2}),
        ),
    ),
)

SLOW = Report(
    target="train.py",
    verdict="sick",
    seconds=41.0,
    loaders=(loader(num_workers=0),),
    ladder=ladder((0, "ok", 52.1, ""), (1, "ok", 51.0, ""), (2, "ok", 101.2, ""), (4, "ok", 196.6, "")),
    findings=(
        Finding(
            code="PS401",
            cause="too-few-workers",
            severity="warning",
            message="training waits for data 81 % of the time while 15 of 16 CPUs are idle",
            where=Site("train.py", 11, "loader"),
            evidence=(Evidence("wait", "81 % of 9.2 s", "observed run"),),
            prescription=Prescription("num_workers=0 → num_workers=4", "3.8 times the samples per second"),
            proof=Proof(
                "verified",
                "num_workers=4: 3.77x, 3 rounds from 3.61x to 3.90x",
                {"samples_per_s": 52.1},
                {"samples_per_s": 196.6},
            ),
        ),
    ),
)

EVIL = (
    "\x1b[31mred\x1b[0m [bold]markup[/bold] <script>alert(1)</script> "
    "\u202egnp\u2069 \x07\r\n\ud800 {{ 7*7 }}"
)

HOSTILE = Report(
    target="tr\x1b]0;title\x07ain.py",
    verdict="sick",
    seconds=1.0,
    loaders=(LoaderLine(EVIL, EVIL, 1, {EVIL: EVIL}),),
    ladder=(Rung(0, EVIL, "error", None, EVIL, EVIL), Rung(1, EVIL, EVIL, 1.0, EVIL, EVIL)),
    findings=(
        Finding(
            code="PS801",
            cause="dataset-raises",
            severity="error",
            message=EVIL,
            where=Site(EVIL, 1, EVIL),
            evidence=(Evidence(EVIL, EVIL, EVIL),),
            prescription=Prescription(EVIL, EVIL, f"--- a\n+++ b\n@@ -1 +1 @@\n-{EVIL}\n+x\n"),
            proof=Proof("verified", EVIL, {"outcome": EVIL, EVIL: EVIL}, {EVIL: 1.0}),
            cured_by_penstock=True,
        ),
        Finding("PS302", "rng-repeated", "info", EVIL, Prescription(EVIL, EVIL), where=Site(EVIL, 3)),
    ),
    refuted=(Finding("PS302", EVIL, "info", EVIL, Prescription(EVIL, EVIL)),),
    reason=Reason("PS900", EVIL, EVIL, EVIL),
    notes=(EVIL,),
    stacks=(
        ProcessLook(1, 0, EVIL, None, None, EVIL, (ThreadLook(1, EVIL, (Frame(EVIL, EVIL, 1),), EVIL),)),
    ),
)

ALL = {
    "shm": SHM,
    "hang": HANG,
    "pickling": PICKLING,
    "healthy": HEALTHY,
    "healthy-with-remark": HEALTHY_WITH_REMARK,
    "could-not-run": COULD_NOT_RUN,
    "two": TWO,
    "slow": SLOW,
    "hostile": HOSTILE,
}
