"""The nursery: a fresh interpreter that has imported torch, and forks clean zygotes from that state.

It runs no user code and starts no thread. See NOTE [ Fork and threads ] in `zygote`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from typing import NoReturn

# Everything a worker needs, imported once, before any fork.
from penstock._base import libc
from penstock._base.origin import Origin
from penstock._engine import tame, worker
from penstock._engine.backends import ship
from penstock._engine.backends.zygote import LOOK_S, Zygote, leave_consumer
from penstock._engine.channel import Channel, ChannelClosed
from penstock._engine.messages import Adopt, Load, Loaded


def life(fd: int, origin: Origin) -> None:
    """The whole life of the nursery, which already dies with its consumer."""
    leave_consumer()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was born with it held back
    libc.name_process("penstock-nurse")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # zygotes are reaped by the kernel
    sys.argv[:] = [""]
    tame.tame()
    worker.warm_up()
    gc.collect()
    gc.freeze()
    consumer, watch = origin.consumer, None
    with contextlib.suppress(AttributeError, OSError):
        watch = os.pidfd_open(consumer)
    channel = Channel(socket.socket(fileno=fd))
    with contextlib.closing(channel), contextlib.suppress(ChannelClosed):
        while _wait(channel, watch, consumer):
            for parcel in channel.receive_nowait():
                if isinstance(parcel.message, Adopt):
                    _fork_zygote(channel, parcel.fds[0], consumer)


def _wait(channel: Channel, watch: int | None, consumer: int) -> bool:
    """Sleep until there is a message; False when the consumer is gone."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    if watch is None:
        poll.poll(LOOK_S * 1000)
        return os.getppid() == consumer
    poll.register(watch, select.POLLIN)
    return all(fd != watch for fd, _ in poll.poll())


def _fork_zygote(channel: Channel, fd: int, consumer: int) -> None:
    nursery = os.getpid()
    if os.fork() == 0:
        _clean_life(channel, fd, consumer, nursery)
    os.close(fd)


def _clean_life(channel: Channel, fd: int, consumer: int, nursery: int) -> NoReturn:
    status = 1
    try:
        libc.die_with_parent()
        if os.getppid() != nursery:
            os._exit(1)
        channel.close()
        leave_consumer()
        patient = Channel(socket.socket(fileno=os.dup(fd)), is_patient=True)
        parcel = patient.wait_message()
        assert isinstance(parcel.message, Load)
        try:
            job = ship.unpack(ship.Manifest(*parcel.message.manifest), parcel.fds)
        except BaseException:
            patient.send(Loaded(os.getpid(), traceback.format_exc()))
            raise
        patient.send(Loaded(os.getpid(), ""))
        patient.close()
        Zygote(Channel(socket.socket(fileno=fd)), job, consumer).serve()
        status = 0
    except ChannelClosed:
        status = 0
    finally:
        os._exit(status)
