"""When has the GPU done everything that was queued until now, on whatever stream?

`cuCtxRecordEvent` (driver 12.5 and later) marks all work of a context, non-blocking streams and those of
other libraries included, and a thread can sleep until the mark is reached. `cudaDeviceSynchronize` says
the same but keeps a CPU spinning meanwhile; it is the fallback for older drivers.

Neither may be called while a CUDA graph is being captured: the capture would be spoilt. torch's captures
all go through `torch.cuda.CUDAGraph`, whose begin and end we watch from the first use on.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

_BLOCKING_WITHOUT_TIMING = 1 | 2

_capturing = threading.Condition()
_captures = 0
_is_watching = False


def wait_devices() -> None:
    """Return when all that is queued now, on every device in use, has been done."""
    _watch_captures()
    try:
        marks = _mark_all()
    except (AttributeError, OSError):
        import torch

        with _capturing:
            _capturing.wait_for(lambda: _captures == 0)
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
        return
    driver = _driver()
    for mark in marks:
        driver.cuEventSynchronize(mark)
        driver.cuEventDestroy_v2(mark)


def _mark_all() -> list[Any]:
    driver = _driver()
    record = driver.cuCtxRecordEvent
    marks = []
    # No capture may begin between the look and the mark.
    with _capturing:
        _capturing.wait_for(lambda: _captures == 0)
        for context in _contexts(driver):
            mark = ctypes.c_void_p()
            driver.cuCtxSetCurrent(context)
            driver.cuEventCreate(ctypes.byref(mark), _BLOCKING_WITHOUT_TIMING)
            if record(context, mark):
                raise OSError("cuCtxRecordEvent failed")
            marks.append(mark)
    return marks


def _contexts(driver: Any) -> list[Any]:
    """The primary context of every device that this process uses."""
    count, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for device in range(count.value):
        driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
        if is_active.value:
            context = ctypes.c_void_p()
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            driver.cuDevicePrimaryCtxRelease_v2(device)  # torch holds it for the life of the process
            found.append(context)
    return found


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _watch_captures() -> None:
    global _is_watching  # noqa: PLW0603 - installed once, on first use
    if _is_watching:
        return
    _is_watching = True
    import torch

    graph: Any = torch.cuda.CUDAGraph
    begin, end = graph.capture_begin, graph.capture_end

    def capture_begin(self: Any, *args: Any, **options: Any) -> Any:
        _count_captures(1)
        try:
            return begin(self, *args, **options)
        except BaseException:
            _count_captures(-1)
            raise

    def capture_end(self: Any) -> Any:
        try:
            return end(self)
        finally:
            _count_captures(-1)

    graph.capture_begin, graph.capture_end = capture_begin, capture_end


def _count_captures(change: int) -> None:
    global _captures  # noqa: PLW0603 - guarded by _capturing
    with _capturing:
        _captures = max(0, _captures + change)  # one that was under way before we watched only ends
        _capturing.notify_all()
