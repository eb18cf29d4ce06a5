"""Programs that misbehave without any loader: which one, the argument says."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def prints():
    line = "x" * 4095 + "\n"
    while True:
        sys.stdout.write(line)


def multiplies():
    for _ in range(600):
        subprocess.Popen(["/bin/sleep", "60"])
    time.sleep(60)


def daemonises():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(600)
        os._exit(0)
    os.wait()
    print("parent leaves")


def ignores():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


def loops():
    while True:
        pass


def asks():
    input("which data set? ")


def wanders():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()
    print("still here")


def leaves():
    print("bye", flush=True)
    os._exit(0)


def eats():
    held = []
    while True:
        held.append(bytearray(b"x" * (8 << 20)))
        time.sleep(0.005)


def litters():
    tempfile.mkdtemp(prefix="forgotten-")
    Path(f"/dev/shm/torch_{os.getpid()}_1_0").write_text("x")


def leaves_a_segment():
    from multiprocessing import resource_tracker, shared_memory

    segment = shared_memory.SharedMemory(create=True, size=16)
    resource_tracker.unregister(segment._name, "shared_memory")
    segment.close()  # nobody has it open any more, and its name stays


def kills_its_parent():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def fails():
    raise ValueError("nothing works")


globals()[sys.argv[1]]()
