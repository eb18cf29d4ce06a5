"""Pieces of a slab never overlap, however it grows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock._arena.segment import Segment
from penstock._arena.slab import ALIGNMENT, SMALLEST, SlabWriter

SIZES = st.one_of(
    st.integers(0, 200),
    st.sampled_from([ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1, SMALLEST - 1, SMALLEST, SMALLEST + 1]),
    st.integers(0, 3 * SMALLEST),
)


@given(
    batches=st.lists(st.lists(SIZES, max_size=8), min_size=1, max_size=4),
    expected=st.integers(0, 2 * SMALLEST),
)
def test_pieces_never_overlap(batches, expected):
    writer = SlabWriter()
    writer.learn(0, Segment.create().fd, 0)
    for sizes in batches:
        writer.begin(0, 0, expected)
        pieces, end = [], 0
        for number, nbytes in enumerate(sizes):
            offset = writer.allocate(nbytes)
            assert offset % ALIGNMENT == 0
            assert end <= offset < end + ALIGNMENT
            end = offset + nbytes
            if nbytes:
                piece = writer.buffer()[offset : offset + nbytes]
                assert piece.size == nbytes
                assert writer.offset_of(piece.ctypes.data) == offset
                piece[:] = number + 1
                pieces.append((number + 1, offset, piece))
        assert writer.nbytes >= end
        for value, offset, piece in pieces:
            assert (piece == value).all()
            assert (writer.buffer()[offset : offset + piece.size] == value).all()
        kept = bool(pieces)
        assert writer.finish() is kept
        del pieces
        piece = None
    writer.close()


@given(sizes=st.lists(SIZES, min_size=1, max_size=6), keep=st.integers(-1, 5))
def test_a_kept_piece_is_noticed_wherever_it_lies(sizes, keep):
    writer = SlabWriter()
    writer.learn(0, Segment.create().fd, 0)
    writer.begin(0, 0, 0)
    kept = None
    for number, nbytes in enumerate(sizes):
        offset = writer.allocate(nbytes)
        if number == keep:
            kept = writer.buffer()[offset : offset + max(1, nbytes)]
    assert writer.finish() is (kept is not None)
    writer.close()
    if kept is not None:
        kept[:] = 1
        assert np.all(kept == 1)
