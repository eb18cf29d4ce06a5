"""Messages and descriptors through a pair of sockets."""

from __future__ import annotations

import fcntl
import os
import socket

import pytest

from penstock._engine import channel as module
from penstock._engine.channel import Channel, ChannelClosed, pair
from penstock._engine.messages import Failed, Kill, Loaded, Rewind, Spawn
from penstock.errors import WorkerLostError

LARGE = "x" * (4 << 20)  # more than any socket takes at once


@pytest.fixture
def ends():
    """Two channels, neither of which blocks."""
    made = [Channel(sock) for sock in pair()]
    yield made
    for channel in made:
        channel.close()


@pytest.fixture
def patient():
    """A channel that never blocks and one that waits for messages."""
    here, there = pair()
    made = [Channel(here), Channel(there, is_patient=True)]
    yield made
    for channel in made:
        channel.close()


@pytest.fixture
def wire():
    """A channel, and the bare socket at its other end."""
    here, there = pair()
    made = Channel(here)
    yield made, there
    made.close()
    there.close()


def frames(*messages):
    """The bytes of messages on the wire."""
    here, there = pair()
    sender = Channel(here)
    for message in messages:
        sender.send(message)
    sender.close()
    data = b""
    while part := there.recv(1 << 20):
        data += part
    there.close()
    return data


def received(channel):
    return [parcel.message for parcel in channel.receive_nowait()]


def temporary(text):
    """A descriptor of a file with this text."""
    fd = os.memfd_create("test")
    os.write(fd, text)
    return fd


def texts(parcel):
    """What is in the descriptors of a parcel, which are closed."""
    found = []
    for fd in parcel.fds:
        found.append(os.pread(fd, 100, 0))
        os.close(fd)
    return found


# ---- messages -----------------------------------------------------------------------------------


def test_a_system_without_descriptors_is_told(monkeypatch):
    def refuse(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(WorkerLostError) as caught:
        pair()
    assert str(caught.value) == (
        "[PS603] workers cannot be started: the system refused a channel to them\n"
        "  why:  [Errno 24] Too many open files\n"
        "  fix:  raise the limit of open files (`ulimit -n`), or keep fewer open\n"
        "  more: penstock explain PS603"
    )


def test_a_message_arrives(ends):
    ends[0].send(Kill(3, 9))
    assert received(ends[1]) == [Kill(3, 9)]


def test_messages_go_both_ways(ends):
    ends[0].send(Spawn(1))
    ends[1].send(Spawn(2))
    assert received(ends[1]) == [Spawn(1)]
    assert received(ends[0]) == [Spawn(2)]


def test_messages_arrive_in_order(ends):
    for number in range(50):
        ends[0].send(Spawn(number))
    assert received(ends[1]) == [Spawn(number) for number in range(50)]


def test_nothing_is_received_when_nothing_was_sent(ends):
    assert ends[1].receive_nowait() == []


def test_messages_larger_than_one_read_arrive(ends):
    text = "y" * (module._CHUNK + 1)
    ends[0].send(Loaded(1, text))
    ends[0].send(Spawn(2))
    assert received(ends[1]) == [Loaded(1, text), Spawn(2)]


def test_every_field_keeps_its_type(ends):
    message = Failed(0, 1, 2, 3, 4, False, ("a", None, b"b"))
    ends[0].send(message)
    (got,) = received(ends[1])
    assert got == message
    assert type(got) is Failed


def test_a_patient_end_waits_for_one_message_at_a_time(patient):
    here, there = patient
    here.send(Spawn(1))
    here.send(Spawn(2))
    assert there.wait_message().message == Spawn(1)
    assert there.wait_message().message == Spawn(2)


# ---- frames -------------------------------------------------------------------------------------


def test_a_partial_frame_waits_for_its_rest(wire):
    channel, sock = wire
    data = frames(Spawn(5))
    for cut in range(1, len(data)):
        sock.sendall(data[:cut])
        assert received(channel) == []
        sock.sendall(data[cut:])
        assert received(channel) == [Spawn(5)]


def test_a_frame_and_a_half_is_one_message(wire):
    channel, sock = wire
    data = frames(Spawn(5), Rewind(None))
    sock.sendall(data[:-1])
    assert received(channel) == [Spawn(5)]
    sock.sendall(data[-1:])
    assert received(channel) == [Rewind(None)]


# ---- descriptors --------------------------------------------------------------------------------


def test_a_descriptor_arrives_with_its_message(ends):
    fd = temporary(b"here")
    ends[0].send(Spawn(1), [fd])
    (parcel,) = ends[1].receive_nowait()
    assert parcel.message == Spawn(1)
    assert texts(parcel) == [b"here"]
    os.close(fd)


def test_descriptors_arrive_in_order_with_their_messages(ends):
    fds = [temporary(str(number).encode()) for number in range(6)]
    ends[0].send(Spawn(0), fds[:2])
    ends[0].send(Spawn(1))
    ends[0].send(Spawn(2), fds[2:3])
    ends[0].send(Spawn(3), fds[3:])
    parcels = []
    while len(parcels) < 4:
        parcels += ends[1].receive_nowait()
    assert [parcel.message.worker for parcel in parcels] == [0, 1, 2, 3]
    assert [texts(parcel) for parcel in parcels] == [[b"0", b"1"], [], [b"2"], [b"3", b"4", b"5"]]
    for fd in fds:
        os.close(fd)


def test_a_descriptor_that_arrived_is_closed_on_exec(ends):
    fd = temporary(b"")
    ends[0].send(Spawn(1), [fd])
    (parcel,) = ends[1].receive_nowait()
    assert fcntl.fcntl(parcel.fds[0], fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(parcel.fds[0])
    os.close(fd)


def test_a_descriptor_stays_the_senders(ends):
    fd = temporary(b"mine")
    ends[0].send(Spawn(1), [fd])
    assert os.pread(fd, 4, 0) == b"mine"
    os.close(fd)
    assert texts(ends[1].receive_nowait()[0]) == [b"mine"]


def test_descriptors_go_once_with_a_message_that_goes_in_parts(ends):
    fd = temporary(b"once")
    ends[0].send(Loaded(1, LARGE), [fd])
    assert ends[0].has_outbox
    parcels = []
    while not parcels:
        parcels = ends[1].receive_nowait()
        ends[0].flush()
    assert parcels[0].message == Loaded(1, LARGE)
    assert texts(parcels[0]) == [b"once"]
    assert not ends[1]._fds
    os.close(fd)


def test_descriptors_that_nobody_took_are_closed(wire):
    channel, sock = wire
    fd = temporary(b"")
    data = frames(Spawn(1))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fd.to_bytes(4, "little"))]
    sock.sendmsg([data[:-1]], rights)  # the frame is never finished
    channel.receive_nowait()
    arrived = channel._fds[0]
    channel.close()
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arrived)


@pytest.mark.parametrize(
    "count",
    [
        250,
        pytest.param(260),
    ],
)
def test_many_descriptors_arrive(ends, count):
    fd = temporary(b"")
    try:
        ends[0].send(Spawn(1), [fd] * count)
        parcels = []
        for _ in range(3):
            parcels += ends[1].receive_nowait()
        for parcel in parcels:
            assert len(texts(parcel)) == count
        assert len(parcels) == 1
    finally:
        os.close(fd)


# ---- a full socket ------------------------------------------------------------------------------


def test_what_the_socket_does_not_take_waits_in_the_outbox(ends):
    ends[0].send(Loaded(1, LARGE))
    assert ends[0].has_outbox
    assert received(ends[1]) == []


def test_an_outbox_is_emptied_by_flushing(ends):
    ends[0].send(Loaded(1, LARGE))
    got = []
    while not ends[0].flush():
        got += received(ends[1])
    got += received(ends[1])
    assert got == [Loaded(1, LARGE)]
    assert not ends[0].has_outbox


def test_a_message_behind_an_outbox_does_not_overtake(ends):
    ends[0].send(Loaded(1, LARGE))
    got = received(ends[1])  # there is room in the socket again
    ends[0].send(Spawn(2))
    ends[0].send(Spawn(3))
    while len(got) < 3:
        ends[0].flush()
        got += received(ends[1])
    assert got == [Loaded(1, LARGE), Spawn(2), Spawn(3)]


def test_an_empty_outbox_is_flushed(ends):
    assert ends[0].flush() is True


# ---- the other side is gone ---------------------------------------------------------------------


def test_a_closed_peer_is_noticed(ends):
    ends[0].close()
    with pytest.raises(ChannelClosed):
        ends[1].receive_nowait()


def test_a_closed_peer_is_noticed_after_all_that_it_sent(ends):
    for number in range(3):
        ends[0].send(Spawn(number))
    ends[0].close()
    assert received(ends[1]) == [Spawn(0), Spawn(1), Spawn(2)]
    with pytest.raises(ChannelClosed):
        ends[1].receive_nowait()


def test_a_closed_peer_is_noticed_after_messages_that_fill_a_read(ends):
    (size,) = (
        n for n in range(module._CHUNK) if n > 65_000 and len(frames(Loaded(1, "x" * n))) == module._CHUNK
    )
    ends[0].send(Loaded(1, "x" * size))
    ends[0].close()
    assert received(ends[1]) == [Loaded(1, "x" * size)]
    with pytest.raises(ChannelClosed):
        ends[1].receive_nowait()


def test_a_peer_that_died_with_unread_messages_is_noticed_after_all_that_it_sent(ends):
    ends[0].send(Spawn(1))
    ends[1].send(Spawn(2))
    ends[0].close()  # the kernel reports a reset: something was unread
    assert received(ends[1]) == [Spawn(1)]
    with pytest.raises(ChannelClosed):
        ends[1].receive_nowait()


def test_a_patient_end_wakes_when_its_peer_is_gone(patient):
    here, there = patient
    here.send(Spawn(1))
    here.close()
    assert there.wait_message().message == Spawn(1)
    with pytest.raises(ChannelClosed):
        there.wait_message()


def test_a_peer_that_closes_in_the_middle_of_a_frame_is_noticed(wire):
    channel, sock = wire
    sock.sendall(frames(Spawn(1))[:-2])
    sock.close()
    assert received(channel) == []
    with pytest.raises(ChannelClosed):
        channel.receive_nowait()


@pytest.mark.parametrize("fds", [[], [0]])
def test_sending_to_a_closed_peer_is_noticed(ends, fds):
    ends[1].close()
    with pytest.raises(ChannelClosed):
        ends[0].send(Spawn(1), fds)


def test_flushing_to_a_closed_peer_is_noticed(ends):
    ends[0].send(Loaded(1, LARGE))
    ends[1].close()
    with pytest.raises(ChannelClosed):
        ends[0].flush()


def test_closing_twice_is_closing_once(ends):
    ends[0].close()
    ends[0].close()
    assert ends[0].fileno() == -1


def test_closing_drops_the_outbox(ends):
    ends[0].send(Loaded(1, LARGE))
    ends[0].close()
    assert not ends[0].has_outbox


def test_a_channel_can_be_polled(wire):
    channel, _ = wire
    assert channel.fileno() >= 0


def test_an_end_blocks_only_if_it_is_patient(patient):
    assert [channel._sock.getblocking() for channel in patient] == [False, True]


def test_hanging_up_is_heard_although_a_fork_has_a_copy():
    here, there = pair()
    copy, mine, other = here.dup(), Channel(here), Channel(there)
    mine.hang_up()
    with pytest.raises(ChannelClosed):
        other.receive_nowait()
    copy.close()
    other.close()
