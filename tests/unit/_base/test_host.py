"""Machines that are not this one, as files under a folder."""

from __future__ import annotations

import os

import pytest

from penstock._base import host

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A file system root, filled from {path: text}."""

    def build(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return build


@pytest.fixture
def sixteen_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)


def meminfo(available):
    return f"MemTotal:       99999999 kB\nMemFree:        1 kB\nMemAvailable:   {available >> 10} kB\n"


# ---- cpus ---------------------------------------------------------------------------------------


def test_the_time_of_all_cpus_is_read_in_seconds(machine):
    root = machine({"proc/stat": "cpu  300 100 200 400 50 10 20 20 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"})
    ticks = os.sysconf("SC_CLK_TCK")
    assert host.cpu_seconds(root) == pytest.approx((650 / ticks, 450 / ticks))


def test_the_time_of_cpus_that_nobody_counts_is_nothing(tmp_path):
    assert host.cpu_seconds(tmp_path) == (0.0, 0.0)


def test_without_a_cgroup_there_is_no_quota(tmp_path):
    assert host.cpu_quota(tmp_path) is None


def test_a_quota_of_version_two_is_read_from_inside_a_container(machine):
    root = machine({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})
    assert host.cpu_quota(root) == 1.5


def test_a_quota_of_version_two_is_read_at_the_groups_own_path(machine):
    root = machine(
        {
            "proc/self/cgroup": "0::/a.slice/b.scope\n",
            "sys/fs/cgroup/a.slice/b.scope/cpu.max": "400000 100000",
        }
    )
    assert host.cpu_quota(root) == 4


def test_a_quota_of_version_two_without_a_limit_is_none(machine):
    root = machine({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert host.cpu_quota(root) is None


def test_a_quota_of_version_one_is_read_under_the_controllers_name(machine):
    root = machine(
        {
            "proc/self/cgroup": "12:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
        }
    )
    assert host.cpu_quota(root) == 2.5


def test_a_quota_of_version_one_is_read_from_inside_a_container(machine):
    root = machine(
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/docker/not-visible-here\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        }
    )
    assert host.cpu_quota(root) == 0.5


def test_a_quota_of_version_one_without_a_limit_is_none(machine):
    root = machine(
        {
            "proc/self/cgroup": "4:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        }
    )
    assert host.cpu_quota(root) is None


def test_a_quota_in_a_hybrid_tree_is_found(machine):
    root = machine({"proc/self/cgroup": "0::/x\n", "sys/fs/cgroup/unified/x/cpu.max": "200000 100000"})
    assert host.cpu_quota(root) == 2


def test_a_quota_of_a_parent_group_counts(machine):
    root = machine(
        {
            "proc/self/cgroup": "0::/user.slice/job.scope\n",
            "sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000",
            "sys/fs/cgroup/user.slice/cpu.max": "200000 100000",
        }
    )
    assert host.cpu_quota(root) == 2


def test_the_smaller_of_two_quotas_counts(machine):
    root = machine(
        {
            "proc/self/cgroup": "0::/x\n",
            "sys/fs/cgroup/x/cpu.max": "800000 100000",
            "sys/fs/cgroup/cpu.max": "200000 100000",
        }
    )
    assert host.cpu_quota(root) == 2


@pytest.mark.usefixtures("sixteen_cpus")
@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("150000 100000", 2),
        ("100000 100000", 1),
        ("1000 100000", 1),
        ("6400000 100000", 16),
        ("max 100000", 16),
    ],
)
def test_cpus_are_the_affinity_mask_cut_down_by_the_quota(machine, quota, cpus):
    assert host.cpu_count(machine({"sys/fs/cgroup/cpu.max": quota})) == cpus


def test_cpus_without_affinity_masks_are_counted(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert host.cpu_count(tmp_path) == 6


def test_there_is_always_one_cpu(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert host.cpu_count(tmp_path) == 1


# ---- memory -------------------------------------------------------------------------------------


def test_memory_is_what_the_machine_has_available(machine):
    assert host.memory_available(machine({"proc/meminfo": meminfo(8 * GIB)})) == 8 * GIB


def test_memory_is_cut_down_by_a_group_of_version_two(machine):
    root = machine(
        {
            "proc/meminfo": meminfo(8 * GIB),
            "proc/self/cgroup": "0::/pod\n",
            "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{GIB}\n",
        }
    )
    assert host.memory_available(root) == GIB


def test_memory_is_cut_down_by_a_group_of_version_one(machine):
    root = machine(
        {
            "proc/meminfo": meminfo(8 * GIB),
            "proc/self/cgroup": "9:memory:/docker/x\n",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": f"{3 * GIB}",
            "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": f"{GIB}",
        }
    )
    assert host.memory_available(root) == 2 * GIB


def test_page_cache_that_the_kernel_would_give_up_counts_as_free(machine):
    root = machine(
        {
            "proc/meminfo": meminfo(8 * GIB),
            "sys/fs/cgroup/memory.max": f"{2 * GIB}",
            "sys/fs/cgroup/memory.current": f"{2 * GIB}",
            "sys/fs/cgroup/memory.stat": f"anon 1\nactive_file {GIB}\ninactive_file 4096\n",
        }
    )
    assert host.memory_available(root) == 4096


def test_page_cache_of_a_group_of_version_one_counts_as_free(machine):
    root = machine(
        {
            "proc/meminfo": meminfo(8 * GIB),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}",
            "sys/fs/cgroup/memory/memory.stat": "cache 1\ntotal_inactive_file 8192\n",
        }
    )
    assert host.memory_available(root) == 8192


def test_a_group_without_a_limit_leaves_the_machines_memory(machine):
    root = machine(
        {
            "proc/meminfo": meminfo(GIB),
            "sys/fs/cgroup/memory.max": "max",
            "sys/fs/cgroup/memory.current": "123",
        }
    )
    assert host.memory_available(root) == GIB


def test_memory_is_never_negative(machine):
    root = machine(
        {
            "proc/meminfo": meminfo(GIB),
            "sys/fs/cgroup/memory.max": "100",
            "sys/fs/cgroup/memory.current": "200",
        }
    )
    assert host.memory_available(root) == 0


def test_memory_of_a_system_without_meminfo_is_asked_of_sysconf(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert host.memory_available(tmp_path) == 40960


def test_memory_of_a_system_that_does_not_tell_is_assumed_to_be_modest(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sysconf")
    assert host.memory_available(tmp_path) == GIB


def test_this_machine_has_cpus_and_memory():
    assert host.cpu_count() >= 1
    assert host.memory_available() > 0


# ---- deaths for want of memory ------------------------------------------------------------------


def test_without_any_counter_nobody_was_killed(tmp_path):
    assert host.oom_kills(tmp_path) == 0


def test_kills_are_counted_by_the_cgroup(machine):
    root = machine(
        {
            "proc/self/cgroup": "0::/a.slice\n",
            "proc/vmstat": "oom_kill 90\n",
            "sys/fs/cgroup/a.slice/memory.events": "low 0\noom 7\noom_kill 3\noom_group_kill 0\n",
        }
    )
    assert host.oom_kills(root) == 3


def test_kills_are_counted_by_version_one(machine):
    root = machine(
        {
            "proc/self/cgroup": "4:memory:/job\n0::/\n",
            "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        }
    )
    assert host.oom_kills(root) == 2


def test_without_a_cgroup_the_machine_counts(machine):
    assert host.oom_kills(machine({"proc/vmstat": "nr_free_pages 7\noom_kill 5\n"})) == 5


# ---- what there is in all, and what is one's own ----------------------------------------------------


def test_the_total_is_the_machines_or_the_cgroups(machine, tmp_path):
    machine({"proc/meminfo": "MemTotal:       1000 kB\nMemAvailable:    10 kB\n"})
    assert host.memory_total(tmp_path) == 1000 * 1024
    machine({"sys/fs/cgroup/memory.max": "4096\n"})
    assert host.memory_total(tmp_path) == 4096


def test_memory_of_ones_own_is_the_part_that_is_not_shared(machine, tmp_path):
    machine({"proc/self/statm": "500 300 100 1 0 200 0\n"})
    page = host._PAGE
    assert host.anonymous_memory(tmp_path) == 200 * page
    assert host.own_memory(tmp_path) == 200 * page  # an old kernel
    machine({"proc/self/smaps_rollup": "00400000-7fff rollup\nRss: 9 kB\nPss_Anon:   7 kB\n"})
    assert host.own_memory(tmp_path) == 7 * 1024


def test_this_process_has_memory_of_its_own():
    assert 0 < host.own_memory() <= host.anonymous_memory() < host.memory_total()
