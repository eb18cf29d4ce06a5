"""The process that the kernel kills before the doctor."""

from __future__ import annotations

import time
from pathlib import Path

from penstock._lab import warden
from penstock._lab.ballast import SCORE, ballast

PATIENCE_S = 20.0


def machine(tmp_path, limit):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(limit)
    (group / "memory.current").write_text("0")
    return tmp_path


def score_of(process):
    end = time.monotonic() + PATIENCE_S
    path = Path(f"/proc/{process.pid}/oom_score_adj")
    while (score := path.read_text().strip()) != SCORE and time.monotonic() < end:
        time.sleep(0.01)
    return int(score)


def test_where_memory_is_limited_it_goes_after_the_patient_and_before_us(tmp_path):
    own = int(Path("/proc/self/oom_score_adj").read_text())
    with ballast(machine(tmp_path, "1000000")) as process:
        assert own < score_of(process) < int(warden.OOM_SCORE)
    assert process.returncode is not None


def test_it_may_be_gone_before_we_end_it(tmp_path):
    with ballast(machine(tmp_path, "1000000")) as process:
        process.kill()
        process.wait()


def test_elsewhere_there_is_none(tmp_path):
    with ballast(machine(tmp_path, "max")) as process:
        assert process is None
