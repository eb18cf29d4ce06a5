"""Examine the corpus: training scripts that are sick by design, and healthy ones that look much like them.

    python -m tests.clinic.examine                      all of it; prints one line each and the bars
    python -m tests.clinic.examine sick/shm*            only those
    python -m tests.clinic.examine --jobs 2             two at a time (speeds get noisier)

The first lines of a script say what is true of it:

    # cause: shm-exhausted            (the primary cause; several: "a, b"; healthy scripts have none)
    # also: prefetch-memory           (findings that are right too, beside the primary one)
    # limits: shm=64M nofile=256 memory=1G tmpdir=long
    # arguments: --epochs 2

Limits are set from outside, as a container would. The doctor sees the file under another name, in a folder of
its own, without those lines.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus")
LIMIT_S = 180  # for one exam; the doctor promises 120
MEMORY = Path("/sys/fs/cgroup/memory")  # version 1; memory limits are left out where it is not to be had


@dataclass
class Case:
    """One script and what is true of it."""

    path: Path
    corpus: Path = CORPUS
    causes: list[str] = field(default_factory=list)
    also: list[str] = field(default_factory=list)
    limits: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(self.corpus))


@dataclass
class Result:
    case: Case
    report: dict[str, Any]
    seconds: float
    status: int
    stderr: str

    @property
    def found(self) -> list[str]:
        """Every finding, remarks too: what takes its time for good reason is remarked upon, no more."""
        return [finding["cause"] for finding in self.report.get("findings", [])]

    @property
    def alarms(self) -> list[str]:
        findings = self.report.get("findings", [])
        return [each["cause"] for each in findings if each["severity"] in {"error", "warning"}]


def read(path: Path, corpus: Path = CORPUS) -> Case:
    case = Case(path, corpus)
    for line in path.read_text().splitlines():
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(":")
        words = [word.strip() for word in value.split(",")]
        if key == "cause":
            case.causes = words
        elif key == "also":
            case.also = words
        elif key == "limits":
            case.limits = dict(word.split("=") for word in value.split())
        elif key == "arguments":
            case.arguments = value.split()
    return case


def cases(patterns: list[str], corpus: Path = CORPUS) -> list[Case]:
    paths = sorted(path for path in corpus.rglob("*.py") if not path.name.startswith("_"))
    found = [read(path, corpus) for path in paths]
    return [
        case
        for case in found
        if not patterns or any(fnmatch.fnmatch(case.name, pattern + "*") for pattern in patterns)
    ]


def _bytes(text: str) -> int:
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]


@contextlib.contextmanager
def _limited(limits: dict[str, str], folder: Path):
    """A command prefix and an environment that put a program under these limits."""
    prefix, env, group = [], {}, None
    steps = []
    if "nofile" in limits:
        steps.append(f"ulimit -n {limits['nofile']}")
    if "memory" in limits and os.access(MEMORY, os.W_OK):
        group = MEMORY / f"penstock-corpus-{os.getpid()}-{time.monotonic_ns()}"
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(_bytes(limits["memory"])))
        steps.append(f"echo $$ > {group}/cgroup.procs")
    if "shm" in limits:
        steps.append(f"mount -t tmpfs -o size={limits['shm']} tmpfs /dev/shm")
        prefix = ["unshare", "-m"]
    if limits.get("tmpdir") == "long":
        deep = folder / ("d" * 120)
        deep.mkdir()
        env["TMPDIR"] = str(deep)
    if steps:
        prefix += ["sh", "-c", " && ".join([*steps, 'exec "$@"']), "limited"]
    try:
        yield prefix, env
    finally:
        if group is not None:
            with contextlib.suppress(OSError):
                group.rmdir()


def examine(case: Case, options: list[str]) -> Result:
    with tempfile.TemporaryDirectory(prefix="exam-") as name:
        folder = Path(name)
        lines = case.path.read_text().splitlines(keepends=True)
        while lines and lines[0].startswith("# "):
            lines.pop(0)
        script, out = folder / "train.py", folder / "report.json"
        script.write_text("".join(lines))
        for beside in case.path.parent.glob("_*.py"):
            shutil.copy(beside, folder)
        with _limited(case.limits, folder) as (prefix, env):
            doctor = [sys.executable, "-m", "penstock", "doctor", "train.py", "--format", "json"]
            command = [*prefix, *doctor, "--output", str(out), *options, "--", *case.arguments]
            began = time.monotonic()
            try:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    env={**os.environ, **env},
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=LIMIT_S,
                    check=False,
                )
                status, stderr = done.returncode, done.stderr
            except subprocess.TimeoutExpired:
                status, stderr = 124, "the doctor itself did not end"
        report = json.loads(out.read_text()) if out.exists() else {}
        return Result(case, report, time.monotonic() - began, status, stderr)


def is_first(result: Result) -> bool:
    return result.found[:1] != [] and result.found[0] in result.case.causes


def line(result: Result) -> str:
    case = result.case
    if not case.causes:
        verdict = "ok" if result.report.get("verdict") == "healthy" and not result.alarms else "FALSE ALARM"
    elif is_first(result):
        verdict = "ok" if set(case.causes) & set(result.alarms) else "remark"
    elif set(case.causes) & set(result.found):
        verdict = "not first"
    else:
        verdict = "MISSED"
    found = " ".join(
        f"{each['cause']}({'remark' if each['severity'] == 'info' else each['proof']['status'][:3]})"
        for each in result.report.get("findings", [])
    )
    told = found or result.report.get("verdict", result.stderr[-200:])
    return f"{verdict:11} {result.seconds:5.0f} s  {case.name:52} {told}"


def bars(results: list[Result]) -> str:
    sick = [each for each in results if each.case.causes]
    healthy = [each for each in results if not each.case.causes]
    first = sum(is_first(each) for each in sick)
    loud = sum(is_first(each) and bool(set(each.case.causes) & set(each.alarms)) for each in sick)
    anywhere = sum(bool(set(each.case.causes) & set(each.found)) for each in sick)
    alarms = sum(bool(each.alarms) or each.report.get("verdict") != "healthy" for each in healthy)
    proofs = [
        finding["proof"]["status"]
        for each in sick
        for finding in each.report.get("findings", [])
        if finding["severity"] != "info" and finding["cause"] in {*each.case.causes, *each.case.also}
    ]
    broken = sum(each.status not in {0, 1, 2} or not each.report for each in results)
    wrong = [
        f"{each.case.name}: {cause}"
        for each in sick
        for cause in each.alarms
        if cause not in {*each.case.causes, *each.case.also}
    ]
    times = [each.seconds for each in results] or [0.0]
    rows = [
        f"primary cause first      {first} of {len(sick)} (bar 90 %), as an alarm {loud}",
        f"primary cause anywhere   {anywhere} of {len(sick)} (bar 97 %)",
        f"verified                 {proofs.count('verified')} of {len(proofs)} (bar 85 % of the testable)",
        f"alarm on a healthy one   {alarms} of {len(healthy)} (bar 0)",
        f"doctor broke             {broken} of {len(results)} (bar 0)",
        f"seconds                  median {statistics.median(times):.0f}, worst {max(times):.0f} (30, 120)",
        f"further alarms on sick   {len(wrong)}",
        *(f"    {each}" for each in wrong),
    ]
    return "\n".join(rows)


def keep(result: Result, folder: Path) -> None:
    place = folder / result.case.name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".json").write_text(json.dumps({**result.report, "took": result.seconds}, indent=1))
    place.with_suffix(".stderr").write_text(result.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("patterns", nargs="*", help="such as sick/shm or healthy")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="another folder of such scripts")
    parser.add_argument(
        "--reports", type=Path, help="write each report, and what was on stderr, to this folder"
    )
    parser.add_argument("--options", default="", help="further options for the doctor")
    given = parser.parse_args()
    chosen = cases(given.patterns, given.corpus)
    if not chosen:
        parser.error(f"no program is named {' or '.join(given.patterns)}, such as sick/shm or healthy")
    results: list[Result] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for result in pool.map(lambda case: examine(case, given.options.split()), chosen):
            print(line(result), flush=True)
            results.append(result)
            if given.reports:
                keep(result, given.reports)
    print(bars(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
