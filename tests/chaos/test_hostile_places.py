"""Containers and clusters: no /dev/shm, few descriptors, little memory, no standard streams.

Each either works or says in one error what is missing; it never hangs and never dies of a signal.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from .hostile import Cgroup
from .stage import HANG_S, RESULT, environment, script

QUIET = "import warnings; warnings.simplefilter('ignore')\n"  # more workers than CPUs


def run(stage, text, **options):
    """Run a script that may find the scenario impossible here."""
    out = stage.run(text, **options)
    if out.startswith("skip"):
        pytest.skip(out)
    return out


@pytest.fixture
def cgroup():
    """Makes cgroups; removes them."""
    with contextlib.ExitStack() as stack:

        def make(controller, **limits):
            try:
                group = Cgroup(controller, **limits)
            except OSError as refused:
                pytest.skip(f"cannot make a cgroup: {refused}")
            stack.callback(group.remove)
            return group

        yield make


# ---- file systems -------------------------------------------------------------------------------


@pytest.mark.parametrize("megabytes", [64, 1])
@pytest.mark.parametrize("collate", ["None", "list"])
def test_the_size_of_dev_shm_does_not_matter(stage, megabytes, collate):
    out = run(
        stage,
        f"""
        from tests.chaos.hostile import small_shm
        small_shm({megabytes} << 20)
        class Large(Pictures):
            def __getitem__(self, index):
                return torch.full((4 << 20,), float(index))  # 16 MiB
        kept = list(DataLoader(Large(12), batch_size=2, num_workers=2, collate_fn={collate}))
        say(all(float(sample[0]) == float(sample[-1]) == 2 * n + place
                for n, batch in enumerate(kept) for place, sample in enumerate(batch)))
        say(os.listdir("/dev/shm"))
    """,
    )
    assert out == "True\n[]\n"


@pytest.mark.slow
def test_batches_larger_than_dev_shm_come_from_four_workers(stage):
    out = run(
        stage,
        f"""
        {QUIET}
        from tests.chaos.hostile import small_shm
        small_shm(64 << 20)
        class Large(Pictures):
            def __getitem__(self, index):
                return torch.full((150 << 18,), float(index))  # 150 MiB
        for n, batch in enumerate(DataLoader(Large(6), batch_size=1, num_workers=4, prefetch_factor=1)):
            say(float(batch[0, 0]) == float(batch[0, -1]) == n)
    """,
    )
    assert out == "True\n" * 6


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_no_temporary_directory_is_needed(stage, tmp_path, method):
    # None can be written to, and the path is too long for the name of a socket.
    long = tmp_path / ("d" * 100) / ("e" * 100)
    long.mkdir(parents=True)
    out = run(
        stage,
        f"""
        import tempfile
        from tests.chaos.hostile import read_only_tmp
        assert len(tempfile.gettempdir()) > 200
        os.chdir("/")
        read_only_tmp()
        dataset = Pictures(8)
        dataset.table = torch.arange(1 << 20)  # 8 MiB
        loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context="{method}")
        say([is_right(batch, range(2 * n, 2 * n + 2)) for n, batch in enumerate(loader)] == [True] * 4)
        """,
        env={"TMPDIR": str(long), "LC_ALL": "C", "HOME": "/nonexistent"},
    )
    assert out == "True\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_working_directory_that_is_gone_does_not_matter(stage, tmp_path, method):
    place = tmp_path / "gone"
    place.mkdir()
    out = stage.run(f"""
        os.chdir({str(place)!r})
        os.rmdir({str(place)!r})
        say(len(list(DataLoader(Pictures(4), num_workers=1, multiprocessing_context="{method}"))))
    """)
    assert out == "4\n"


# ---- descriptors --------------------------------------------------------------------------------


def test_eight_workers_live_with_64_descriptors(stage):
    out = stage.run(
        QUIET + "say(len(list(DataLoader(Numbers(64), num_workers=8))))", limits={"RLIMIT_NOFILE": 64}
    )
    assert out == "64\n"


def test_kept_batches_live_with_64_descriptors(stage):
    out = stage.run(
        """
        kept = list(DataLoader(Pictures(150), batch_size=1, num_workers=2))
        say(len(kept), all([is_right(batch, [n]) for n, batch in enumerate(kept)]))
        """,
        limits={"RLIMIT_NOFILE": 64},
    )
    assert out == "150 True\n"


def test_files_that_the_program_opens_meanwhile_cost_no_batch(stage):
    # The dataset, or a logger, takes the descriptors that were free when the epoch began.
    out = stage.run(
        """
        files, seen = [], 0
        try:
            for n, batch in enumerate(DataLoader(Pictures(40), batch_size=1, num_workers=2)):
                assert is_right(batch, [n])
                seen += 1
                if n == 2:
                    try:
                        while True:
                            files.append(open("/dev/null"))
                    except OSError:
                        pass
        except errors.ArenaError as error:
            say(error.code)
        say(seen)
        """,
        limits={"RLIMIT_NOFILE": 64},
    )
    assert out == "40\n" or out.startswith("PS702")


@pytest.mark.parametrize("limit", [8, 12, 16, 24])
def test_too_few_descriptors_are_named_in_the_error(stage, limit):
    out = stage.run(
        QUIET
        + f"""import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, 64))
try:
    say(len(list(DataLoader(Pictures(16), num_workers=4))))
except errors.PenstockError as error:
    say(error.code, "Too many open files" in str(error))
"""
    )
    assert out in ("16\n", "PS702 True\n", "PS603 True\n")


# ---- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [20, 120, 200])
def test_little_address_space_is_an_error_with_words_or_no_matter(stage, extra):
    out = stage.run(f"""
        import resource
        now = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (now + ({extra} << 20), -1))
        class Large(Pictures):
            def __getitem__(self, index):
                return torch.full((5 << 20,), float(index))  # 20 MiB
        iterator = iter(DataLoader(Large(12), batch_size=2, num_workers=2, arena_bytes=1))
        failures, seen = set(), 0
        while True:
            try:
                batch = next(iterator)
                seen += 1
            except StopIteration:
                break
            except errors.PenstockError as error:
                failures.add(error.code)
            except (RuntimeError, MemoryError) as error:  # torch's own, from the dataset
                assert "memory" in str(error), error
        say(sorted(failures - {{"PS603", "PS702", "PS701"}}))
    """)
    assert out == "[]\n"


def test_lack_of_memory_is_an_error_with_numbers_and_the_next_batch_is_right(stage):
    # Memory is short for a moment, the program drops its caches and goes on.
    with stage.play("""
        from multiprocessing import Value
        from penstock._base import host
        room = Value("q", 1 << 40)
        host.memory_available = lambda *_: room.value
        iterator = iter(DataLoader(Pictures(24), batch_size=1, num_workers=1, prefetch_factor=1))
        kept = [next(iterator) for _ in range(4)]
        room.value = 0
        number = 4
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                break
            except errors.ArenaError as error:
                say(error.code, "only 0.0 MiB of memory are left" in str(error))
                room.value = 1 << 40
            else:
                kept.append(batch)
                assert is_right(batch, [number]), number
            number += 1
        say("count", number)
    """) as consumer:
        assert consumer.hear("PS701") == "True"
        assert consumer.hear("count") == "24"


LARGE = """
    class Large(Pictures):
        def __getitem__(self, index):
            return torch.tensor(float(index)).{form}
    def epoch(**options):
        seen = 0
        try:
            for batch in DataLoader(Large(12), batch_size=1, **options):
                assert float(batch[0, 0]) == float(batch[0, -1]) == seen
                seen += 1
        except errors.PenstockError as error:
            say("error", error.code, str(error).splitlines()[0])
        say("seen", seen)
"""


def test_a_memory_cgroup_that_is_full_is_an_error_with_numbers_or_no_matter(stage, cgroup):
    # Samples take nothing here, batches 48 MiB each.
    group = cgroup("memory", limit_in_bytes=160 << 20)
    with stage.play(f"""
    from tests.chaos.hostile import join
    join({str(group.path)!r})
    {LARGE.format(form="expand(12 << 20)")}
    epoch(num_workers=1, prefetch_factor=6)
    """) as consumer:
        seen = consumer.hear("seen")
        assert consumer.wait() == 0
        consumer.leaves_nothing()
        assert seen == "12" or "PS701" in consumer.out, consumer.out


def test_a_dataset_that_fills_the_memory_cgroup_is_not_awaited(stage, cgroup):
    group = cgroup("memory", limit_in_bytes=160 << 20)
    with stage.play(f"""
    from tests.chaos.hostile import join
    join({str(group.path)!r})
    {LARGE.format(form="repeat(12 << 20)")}
    epoch(num_workers=2)
    """) as consumer:
        seen = consumer.hear("seen")
        assert consumer.wait() == 0
        consumer.leaves_nothing()
        assert seen == "12" or "error PS701" in consumer.out or "(SIGKILL)" in consumer.out, consumer.out


def test_batches_that_fit_into_a_memory_cgroup_come(stage, cgroup):
    group = cgroup("memory", limit_in_bytes=256 << 20)
    out = stage.run(f"""
        from tests.chaos.hostile import join
        join({str(group.path)!r})
        class Large(Pictures):
            def __getitem__(self, index):
                return torch.full((1 << 20,), float(index))  # 4 MiB
        say(sum(len(batch) for batch in DataLoader(Large(48), batch_size=2, num_workers=2)))
        say(len(list(DataLoader(Large(24), batch_size=2, num_workers=2, arena_bytes=16 << 20))))
    """)
    assert out == "48\n12\n"


def test_the_limit_of_a_cgroup_above_counts_too(stage, cgroup):
    group = cgroup("memory", limit_in_bytes=160 << 20)
    below = group.path / "step"
    below.mkdir()
    out = stage.run(f"""
        from tests.chaos.hostile import join
        from penstock._base import host
        join({str(below)!r})
        say(host.memory_available() <= 160 << 20)
        join({str(group.path.parent)!r})
    """)
    assert out == "True\n"


@pytest.mark.parametrize("room", [0, 1, 2])
def test_too_few_processes_are_named_in_the_error(stage, cgroup, room):
    group = cgroup("pids", max=1 + room)
    with stage.play(f"""
        from tests.chaos.hostile import join
        join({str(group.path)!r})
        try:
            list(DataLoader(Pictures(8), num_workers=2))
        except errors.WorkerLostError as error:
            say("error", error.code)
    """) as consumer:
        assert consumer.hear("error") == "PS603"
        assert consumer.wait() == 0
        consumer.leaves_nothing()


def test_a_limit_of_file_sizes_is_named_in_the_error(stage):
    out = stage.run("""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))
        class Large(Pictures):
            def __getitem__(self, index):
                return torch.full((1 << 20,), float(index))  # 4 MiB
        try:
            list(DataLoader(Large(4), num_workers=1))
        except errors.ArenaError as error:
            say(error.code, "File too large" in str(error))
    """)
    assert out == "PS702 True\n"


# ---- standard streams ---------------------------------------------------------------------------

CLOSED = """
    class Talks(Pictures):
        def __getitem__(self, index):
            print("to the user", flush=True)
            for fd in (1, 2):  # as C libraries do, whatever Python thinks of the stream
                try:
                    os.write(fd, b"from a library\\n")
                except OSError:
                    pass
            return picture(index)
    def right(method):
        loader = DataLoader(Talks(16), batch_size=2, num_workers=2, multiprocessing_context=method)
        return [is_right(batch, range(2 * n, 2 * n + 2)) for n, batch in enumerate(loader)] == [True] * 8
    os.write({result}, f"right {{[right(method) for method in {methods}]}}\\n".encode())
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_standard_streams_do_not_matter(stage, closed):
    # Their numbers are free, and what is opened next gets them: it must not be a batch, or a channel.
    with stage.play(CLOSED.format(result=RESULT, methods=["fork"]), closed=closed) as consumer:
        assert consumer.hear("right") == "[True]"
        assert consumer.wait() == 0
        consumer.leaves_nothing()


@pytest.mark.slow
def test_clean_workers_do_without_standard_streams_too(tmp_path):
    program, result = tmp_path / "script.py", tmp_path / "result"
    program.write_text(script(CLOSED.format(result=9, methods=["spawn"])))
    command = f'exec "{sys.executable}" "{program}" <&- >&- 2>&- 9>"{result}"'
    process = subprocess.Popen(["sh", "-c", command], env=environment())
    try:
        assert process.wait(3 * HANG_S) == 0
    finally:
        process.kill()
        process.wait()
    assert result.read_text() == "right [True]\n"


def test_a_broken_pipe_on_standard_output_is_the_consumers_matter(stage):
    # `train.py | head`
    out = stage.run("""
        result = os.dup(1)
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)
        class Talks(Pictures):
            def __getitem__(self, index):
                try:
                    os.write(1, b"x")
                except BrokenPipeError:
                    pass
                return picture(index)
        count = len(list(DataLoader(Talks(8), num_workers=2)))
        os.dup2(result, 1)
        say(count)
    """)
    assert out == "8\n"


def test_affinity_to_one_cpu_is_enough(stage):
    out = stage.run("""
        import warnings; warnings.simplefilter("ignore")
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        loader = DataLoader(Pictures(12), num_workers=2)
        say([is_right(batch, [n]) for n, batch in enumerate(loader)] == [True] * 12)
    """)
    assert out == "True\n"
