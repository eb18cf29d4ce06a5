"""Limits, and what is kept of a stream."""

from __future__ import annotations

from penstock._lab.limits import Kept, Limits


def machine(tmp_path, *, total, free, limit=None, used=0):
    """A machine with so many kB, and perhaps a cgroup with so many bytes."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {total} kB\nMemAvailable: {free} kB\n")
    if limit is not None:
        group = tmp_path / "sys/fs/cgroup"
        group.mkdir(parents=True)
        (group / "memory.max").write_text(str(limit))
        (group / "memory.current").write_text(str(used))
    return tmp_path


def test_a_patient_gets_most_of_what_is_free(tmp_path):
    limits = Limits.of_this_machine(machine(tmp_path, total=1000, free=500))
    assert limits.memory == int(500 * 1024 * 0.7)
    assert limits.least_free == int(1000 * 1024 * 0.04)


def test_a_cgroup_is_left_to_the_kernel(tmp_path):
    limits = Limits.of_this_machine(
        machine(tmp_path, total=1000, free=900, limit=160 * 1024, used=100 * 1024)
    )
    assert limits.memory == 150 * 1024
    assert limits.least_free == 0


def test_a_short_stream_is_kept_whole():
    kept = Kept(each=4)
    for part in (b"ab", b"cdef", b"g"):
        kept.add(part)
    assert kept.text() == "abcdefg"


def test_of_a_long_stream_both_ends_are_kept():
    kept = Kept(each=4)
    for _ in range(10):
        kept.add(b"0123456789")
    assert kept.text() == "0123\n[... 92 bytes ...]\n6789"
    assert kept.nbytes == 100


def test_bytes_that_are_no_text_do_no_harm():
    kept = Kept(each=4)
    kept.add(b"\xff\xfe")
    assert len(kept.text()) == 2
