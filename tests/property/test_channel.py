"""Frames arrive whole and in order, however the bytes are cut."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock._engine import channel as module
from penstock._engine.channel import Channel, ChannelClosed, pair
from penstock._engine.messages import Loaded, Spawn


def message(number, size):
    return Loaded(number, "x" * size) if size else Spawn(number)


def bytes_of(messages):
    """What the messages are on the wire."""
    here, there = pair()
    there.setblocking(False)
    sender, data = Channel(here), b""
    for each in messages:
        sender.send(each)
        while True:
            is_flushed = sender.flush()
            try:
                data += there.recv(1 << 20)
            except BlockingIOError:
                if is_flushed:
                    break
    sender.close()
    there.close()
    return data


# A message that fills one read to the last byte.
EXACT = next(
    size
    for size in range(module._CHUNK - 100, module._CHUNK)
    if len(bytes_of([message(0, size)])) == module._CHUNK
)
SIZES = st.one_of(
    st.integers(0, 50),
    st.sampled_from([EXACT - 1, EXACT, EXACT + 1, module._CHUNK, module._CHUNK + 1, 300_000]),
)
MESSAGES = st.lists(SIZES, max_size=8)


@given(sizes=st.lists(st.integers(0, 300), max_size=6), cuts=st.lists(st.integers(1, 400), max_size=40))
def test_frames_may_be_cut_anywhere(sizes, cuts):
    messages = [message(number, size) for number, size in enumerate(sizes)]
    data = bytes_of(messages)
    here, there = pair()
    channel, got, start = Channel(here), [], 0
    for cut in [*cuts, len(data)]:
        there.sendall(data[start : start + cut])
        start += cut
        got += [parcel.message for parcel in channel.receive_nowait()]
        assert got == messages[: len(got)]
    assert got == messages
    there.close()
    with pytest.raises(ChannelClosed):
        channel.receive_nowait()
    channel.close()


@example(sizes=[EXACT], steps=[], is_patient=False)
@given(
    sizes=MESSAGES,
    steps=st.lists(st.sampled_from(["send", "read", "flush"]), max_size=30),
    is_patient=st.booleans(),
)
def test_messages_of_any_size_arrive_in_order(sizes, steps, is_patient):
    messages = [message(number, size) for number, size in enumerate(sizes)]
    here, there = pair()
    sender, receiver = Channel(here), Channel(there)
    waiting, got = list(messages), []
    for step in [*steps, *("send" for _ in waiting)]:
        if step == "read":
            got += [parcel.message for parcel in receiver.receive_nowait()]
        elif step == "flush":
            sender.flush()
        elif waiting:
            sender.send(waiting.pop(0))
    while not sender.flush():
        got += [parcel.message for parcel in receiver.receive_nowait()]
    sender.close()
    there.setblocking(is_patient)
    with contextlib.suppress(ChannelClosed):
        while True:
            parcels = [receiver.wait_message()] if is_patient else receiver.receive_nowait()
            got += [parcel.message for parcel in parcels]
    receiver.close()
    assert got == messages


def labelled(label):
    """A descriptor that can be told from others."""
    fd = os.memfd_create("test")
    os.write(fd, bytes([label]))
    return fd


def opened(parcel):
    """A message and the labels of its descriptors, which are closed."""
    labels = []
    for fd in parcel.fds:
        labels += os.pread(fd, 1, 0)
        os.close(fd)
    return parcel.message, labels


@given(
    plan=st.lists(st.tuples(SIZES, st.integers(0, 3)), max_size=6), reads=st.lists(st.booleans(), max_size=20)
)
def test_descriptors_arrive_with_their_messages(plan, reads):
    here, there = pair()
    sender, receiver = Channel(here), Channel(there)
    labels = iter(range(100))
    expected = [
        (message(number, size), [next(labels) for _ in range(count)])
        for number, (size, count) in enumerate(plan)
    ]
    waiting = [(sent, [labelled(label) for label in marks]) for sent, marks in expected]
    mine = [fd for _, fds in waiting for fd in fds]
    got = []
    for is_read in reads:
        if is_read:
            got += map(opened, receiver.receive_nowait())
        elif waiting:
            sender.send(*waiting.pop(0))
    for sent, fds in waiting:
        sender.send(sent, fds)
    while len(got) < len(expected):
        sender.flush()
        got += map(opened, receiver.receive_nowait())
    assert got == expected
    assert not receiver._fds
    sender.close()
    receiver.close()
    for fd in mine:
        os.close(fd)
