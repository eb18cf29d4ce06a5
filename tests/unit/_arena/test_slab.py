"""Room for one batch, piece by piece."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from penstock._arena.segment import Segment
from penstock._arena.slab import ALIGNMENT, HEADROOM, SMALLEST, SlabWriter
from penstock._base import host
from penstock.errors import ArenaError


def piece(writer, offset, nbytes):
    return writer.buffer()[offset : offset + nbytes]


# ---- pieces -------------------------------------------------------------------------------------


def test_pieces_are_aligned(writer):
    offsets = [writer.allocate(nbytes) for nbytes in (1, 63, 64, 65, 0, 7)]
    assert offsets == [0, 64, 128, 192, 320, 320]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)


def test_an_address_of_the_slab_is_aligned_like_its_offset(writer):
    writer.allocate(1)
    assert writer.address() % ALIGNMENT == 0


def test_a_first_piece_takes_a_useful_amount(writer):
    writer.allocate(1)
    assert writer.nbytes == SMALLEST


def test_an_empty_slab_has_room_once_somebody_looks(writer):
    assert len(writer.buffer()) == SMALLEST


def test_pieces_lie_in_the_segment(writer):
    offset = writer.allocate(5)
    piece(writer, offset, 5)[:] = (1, 2, 3, 4, 5)
    fd = writer._known[0][0].fd
    assert os.pread(fd, 5, offset) == bytes((1, 2, 3, 4, 5))


def test_an_offset_is_found_by_its_address(writer):
    offset = writer.allocate(100) + 10
    assert writer.offset_of(writer.address() + offset) == offset


def test_a_foreign_address_has_no_offset(writer):
    writer.allocate(100)
    assert writer.offset_of(torch.zeros(8).data_ptr()) is None


def test_the_byte_after_the_slab_has_no_offset(writer):
    writer.allocate(100)
    assert writer.offset_of(writer.address() + writer.nbytes) is None


def test_an_address_of_the_batch_before_has_no_offset(writer):
    writer.allocate(100)
    kept = writer.buffer()
    writer.finish()
    writer.learn(1, Segment.create().fd, 0)
    writer.begin(1, 0, 0)
    writer.allocate(100)
    assert writer.offset_of(kept.ctypes.data) is None


# ---- growth -------------------------------------------------------------------------------------


def test_growing_keeps_old_pieces_valid(writer):
    first = piece(writer, writer.allocate(10), 10)
    first[:] = 7
    offset = writer.allocate(10 * SMALLEST)
    first[9] = 8
    assert piece(writer, 0, 10).tolist() == [7] * 9 + [8]
    assert offset == ALIGNMENT


def test_growing_does_not_move_old_pieces(writer):
    first = piece(writer, writer.allocate(10), 10)
    before = first.ctypes.data
    writer.allocate(10 * SMALLEST)
    assert first.ctypes.data == before
    assert writer.offset_of(before) == 0


def test_growing_leaves_headroom(writer):
    writer.allocate(8 * SMALLEST)
    assert writer.nbytes == 9 * SMALLEST  # room for what follows the tensors
    writer.allocate(2 * SMALLEST)
    assert writer.nbytes >= 9 * SMALLEST * HEADROOM


def test_a_slab_is_made_as_large_as_earlier_batches_were(writer):
    writer.finish()
    writer.begin(0, 0, 5000)
    assert writer.nbytes == 5000


def test_a_slab_that_another_worker_has_grown_is_seen_whole(writer):
    writer.allocate(10)
    writer.finish()
    segment = writer._known[0][0]
    os.posix_fallocate(segment.fd, 0, 4 * SMALLEST)
    os.pwrite(segment.fd, b"there", 3 * SMALLEST)
    writer.begin(0, 4 * SMALLEST, 0)
    assert bytes(piece(writer, 3 * SMALLEST, 5)) == b"there"


def test_a_slab_that_did_not_grow_is_not_mapped_again(writer):
    writer.allocate(10)
    address = writer.address()
    writer.finish()
    writer.begin(0, SMALLEST, 0)
    assert writer.address() == address


def test_a_slab_without_room_is_an_arena_error(writer, monkeypatch):
    monkeypatch.setattr(host, "memory_available", lambda: 0)
    with pytest.raises(ArenaError, match="PS701"):
        writer.allocate(1)


def test_a_slab_that_could_not_be_begun_does_not_claim_the_bytes_of_another(writer, monkeypatch):
    writer.allocate(10 * SMALLEST)
    writer.finish()
    writer.learn(1, Segment.create().fd, 0)
    monkeypatch.setattr(host, "memory_available", lambda: 0)
    with pytest.raises(ArenaError):
        writer.begin(1, 0, 10 * SMALLEST)
    assert writer.nbytes == 0


# ---- the end of a batch -------------------------------------------------------------------------


def test_a_batch_that_nobody_kept_is_finished(writer):
    writer.allocate(10)
    assert writer.finish() is False


def test_an_empty_batch_is_finished(writer):
    assert writer.finish() is False


def test_a_kept_array_is_noticed(writer):
    kept = piece(writer, writer.allocate(10), 10)
    assert writer.finish() is True
    assert kept.size == 10


def test_a_kept_tensor_is_noticed(writer):
    offset = writer.allocate(40)
    kept = torch.frombuffer(writer.buffer(), dtype=torch.float32, count=10, offset=offset)[3:]
    assert writer.finish() is True
    assert kept.shape == (7,)


def test_a_piece_kept_from_before_the_slab_grew_is_noticed(writer):
    kept = piece(writer, writer.allocate(10), 10)
    writer.allocate(10 * SMALLEST)
    assert writer.finish() is True
    assert kept.size == 10


def test_a_piece_of_an_earlier_batch_does_not_count_twice(writer):
    kept = piece(writer, writer.allocate(10), 10)
    writer.finish()
    writer.learn(1, Segment.create().fd, 0)
    writer.begin(1, 0, 0)
    writer.allocate(10)
    assert writer.finish() is False
    assert kept.size == 10


def test_a_writer_is_open_from_begin_to_finish(writer):
    assert writer.is_open
    writer.finish()
    assert not writer.is_open


# ---- slabs that go --------------------------------------------------------------------------------


def test_forgetting_a_slab_closes_its_descriptor(writer):
    fd = writer._known[0][0].fd
    writer.finish()
    writer.forget(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_tensor_stays_valid_when_its_slab_is_forgotten(writer):
    kept = torch.from_numpy(piece(writer, writer.allocate(10), 10))
    kept.fill_(3)
    writer.finish()
    writer.forget(0)
    assert kept.tolist() == [3] * 10
    kept.fill_(4)


def test_a_tensor_stays_valid_when_the_writer_is_closed(writer):
    kept = torch.from_numpy(piece(writer, writer.allocate(10), 10))
    writer.finish()
    writer.close()
    kept.fill_(4)
    assert kept.tolist() == [4] * 10


def test_forgetting_an_unknown_slab_does_nothing(writer):
    writer.forget(99)


def test_learning_a_slab_anew_closes_the_old_descriptor(writer):
    old = writer._known[0][0].fd
    fresh = Segment.create().fd
    writer.learn(0, fresh, 0)
    assert writer._known[0][0].fd == fresh != old


def test_closing_twice_is_closing_once():
    writer = SlabWriter()
    writer.learn(0, Segment.create().fd, 0)
    writer.close()
    writer.close()


def test_numpy_can_write_what_the_consumer_maps(writer):
    offset = writer.allocate(16)
    piece(writer, offset, 16).view(np.float64)[:] = (1.5, 2.5)
    consumer = Segment(writer._known[0][0].fd, writer.nbytes).map()
    assert np.frombuffer(consumer.whole, np.float64)[:2].tolist() == [1.5, 2.5]
