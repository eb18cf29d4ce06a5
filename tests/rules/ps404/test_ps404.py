"""PS404 not-pinned."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps404_not_pinned import NotPinned
from tests.rules.pacing import Program

SICK = Program(nbytes=38 << 20, has_cuda=True)


def found(program):
    return list(NotPinned().check(program.facts))


def test_large_batches_for_a_device_in_pageable_memory_are_found():
    (finding,) = found(SICK)

    assert finding.message == "batches of 38 MB are copied to the device from pageable memory"
    assert finding.experiments[0].change.settings == {"pin_memory": True}
    assert finding.experiments[0].drive == "script"


def test_without_a_device_nothing_is_copied():
    assert not found(SICK.but(has_cuda=False))


def test_small_batches_are_copied_in_no_time():
    assert not found(SICK.but(nbytes=10_000))


def test_a_loader_that_pins_is_left_alone():
    assert not found(SICK.but(settings={"pin_memory": True}))
