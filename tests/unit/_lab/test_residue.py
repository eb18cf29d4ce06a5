"""What a patient leaves in /dev/shm and among the sockets."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from penstock._lab import residue


def test_only_names_of_the_patient_count(tmp_path):
    for name in ("torch_7_1_0", "torch_8_1_0", "psm_abc", "psm_other", "sem.mp-x", "old"):
        (tmp_path / name).touch()
    left = residue.left_in_shm(frozenset({"old"}), {7}, {"psm_abc", "sem.mp-x", "old"}, tmp_path)
    assert left == ("psm_abc", "sem.mp-x", "torch_7_1_0")


def test_they_are_removed(tmp_path):
    (tmp_path / "torch_7_1_0").touch()
    residue.remove_shm(("torch_7_1_0", "gone-already"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_names_of_dead_processes_are_stale(tmp_path):
    (tmp_path / f"torch_{os.getpid()}_1_0").touch()
    (tmp_path / "torch_99999999_1_0").write_bytes(b"x" * 5000)
    (tmp_path / "of-somebody").touch()
    names, nbytes = residue.stale(tmp_path)
    assert names == ("torch_99999999_1_0",)
    assert nbytes >= 5000


def test_a_socket_of_multiprocessing_goes_with_its_directory(tmp_path):
    home = tmp_path / "pymp-abc"
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "listener-1"))
        server.listen()
        paths = residue.socket_paths([os.getpid()])
    assert str(home / "listener-1") in paths
    residue.remove_sockets(paths)
    assert not home.exists()


def test_a_socket_of_anybody_else_stays(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "service.sock"))
        residue.remove_sockets((str(tmp_path / "service.sock"),))
    assert (tmp_path / "service.sock").exists()


def test_temporary_files_are_removed_where_they_are_temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    here, kept = Path(tempfile.mkdtemp()), tmp_path / "results" / "run-1"
    (here / "0.wav").touch()
    kept.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(kept)

    residue.remove_temporaries([str(here), str(kept), str(link), str(tmp_path / "gone-already")])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert kept.is_dir()


def test_names_of_processes_that_are_no_more_are_known_by_their_pid_or_by_word_of_their_maker(tmp_path):
    for name in ("torch_11_5_0", "torch_12_5_0", "tile_1", "tile_2", "others"):
        (tmp_path / name).touch()
    told = {"tile_1": 11, "tile_2": 12, "unlinked": 11}

    assert residue.orphaned([11, 12], [12], told, tmp_path) == {"torch_11_5_0": 11, "tile_1": 11}
