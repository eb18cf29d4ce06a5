"""Every refusal: its type and its whole text."""

from __future__ import annotations

import math
import multiprocessing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock._base import settings
from penstock.errors import SettingsError, SettingsTypeError

COUNTS = {"num_workers": 0, "prefetch_factor": None, "batch_size": 1}


def refusal(kind, check, *args):
    with pytest.raises(SettingsError) as caught:
        check(*args)
    assert type(caught.value) is kind
    return str(caught.value)


def counts(**changed):
    return tuple({**COUNTS, **changed}.values())


# ---- counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "kind", "nearest"),
    [
        ("num_workers", "4", "str", "num_workers=4"),
        ("num_workers", "-4", "str", "num_workers=-4"),
        ("num_workers", 2.0, "float", "an int for num_workers"),
        ("num_workers", None, "NoneType", "an int for num_workers"),
        ("num_workers", True, "bool", "an int for num_workers"),
        ("batch_size", "32", "str", "batch_size=32"),
        ("batch_size", 1.5, "float", "an int for batch_size"),
        ("batch_size", [8], "list", "an int for batch_size"),
        ("prefetch_factor", "2", "str", "prefetch_factor=2"),
        ("prefetch_factor", 0.5, "float", "an int for prefetch_factor"),
    ],
)
def test_a_count_that_is_no_integer_is_a_type_error(name, value, kind, nearest):
    arguments = counts(**{"num_workers": 1, name: value})
    assert refusal(SettingsTypeError, settings.check_counts, *arguments) == (
        f"[PS001] {name} option should be a whole number\n"
        f"  why:  got {name}={value!r}, of type {kind}\n"
        f"  fix:  pass {nearest}\n"
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize("value", ["--4", "²"])
def test_a_text_that_looks_like_a_number_is_a_type_error(value):
    with pytest.raises(TypeError):
        settings.check_counts(value, None, 1)


def test_negative_workers_are_refused():
    assert refusal(SettingsError, settings.check_counts, *counts(num_workers=-1)) == (
        "[PS002] num_workers option should be non-negative; use num_workers=0 to disable multiprocessing\n"
        "  why:  got num_workers=-1\n"
        "  fix:  the nearest allowed value is num_workers=0\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_of_nothing_is_refused(size):
    assert refusal(SettingsError, settings.check_counts, *counts(batch_size=size)) == (
        f"[PS002] batch_size should be a positive integer value, but got batch_size={size}\n"
        f"  why:  got batch_size={size}\n"
        "  fix:  the nearest allowed value is batch_size=1\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize("factor", [0, -2])
def test_a_prefetch_factor_below_one_is_refused(factor):
    arguments = counts(num_workers=2, prefetch_factor=factor)
    assert refusal(SettingsError, settings.check_counts, *arguments) == (
        "[PS002] prefetch_factor option should be non-negative, and a worker needs at least one batch "
        "to work on\n"
        f"  why:  got prefetch_factor={factor}\n"
        "  fix:  the nearest allowed value is prefetch_factor=1\n"
        "  more: penstock explain PS002"
    )


def test_a_prefetch_factor_without_workers_is_refused():
    assert refusal(SettingsError, settings.check_counts, *counts(prefetch_factor=2)) == (
        "[PS003] prefetch_factor option could only be specified in multiprocessing."
        "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.\n"
        "  why:  got num_workers=0 and prefetch_factor=2\n"
        "  fix:  leave prefetch_factor out, or set num_workers=1\n"
        "  more: penstock explain PS003"
    )


@pytest.mark.parametrize("value", [1, np.int64(3), torch.tensor(2)])
def test_whatever_torch_takes_for_an_integer_is_taken(value):
    settings.check_counts(value, value, value)


def test_no_batch_size_is_taken():
    settings.check_counts(0, None, None)


# ---- times --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "kind"), [("5", "str"), (None, "NoneType"), (True, "bool"), ([1], "list")])
def test_a_timeout_that_is_no_number_is_a_type_error(value, kind):
    assert refusal(SettingsTypeError, settings.check_times, value) == (
        "[PS001] timeout option should be a number of seconds\n"
        f"  why:  got timeout={value!r}, of type {kind}\n"
        "  fix:  pass timeout=0, which waits without limit\n"
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, -math.inf])
def test_a_timeout_that_no_clock_shows_is_refused(value):
    assert refusal(SettingsError, settings.check_times, value) == (
        "[PS002] timeout option should be non-negative\n"
        f"  why:  got timeout={value!r}\n"
        "  fix:  the nearest allowed value is timeout=0 (no limit)\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize("value", [0, 1, 0.25, np.float32(2), np.int64(1), Fraction(1, 2)])
def test_every_real_number_of_seconds_is_taken(value):
    settings.check_times(value)


# ---- options that need workers ------------------------------------------------------------------


def test_persistent_workers_without_workers_are_refused():
    assert refusal(SettingsError, settings.check_workers_needed, 0, True, None) == (
        "[PS003] persistent_workers option needs num_workers > 0\n"
        "  why:  got num_workers=0 and persistent_workers=True\n"
        "  fix:  leave persistent_workers out, or set num_workers=1\n"
        "  more: penstock explain PS003"
    )


def test_a_context_without_workers_is_refused():
    assert refusal(SettingsError, settings.check_workers_needed, 0, False, "spawn") == (
        "[PS003] multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
        "but got num_workers=0\n"
        "  why:  got num_workers=0 and multiprocessing_context='spawn'\n"
        "  fix:  leave multiprocessing_context out, or set num_workers=1\n"
        "  more: penstock explain PS003"
    )


@pytest.mark.parametrize("arguments", [(1, True, "spawn"), (0, False, None)])
def test_worker_options_go_with_workers(arguments):
    settings.check_workers_needed(*arguments)


# ---- what comes when ------------------------------------------------------------------------------

ORDER = {"shuffle": None, "sampler": None, "batch_sampler": None, "batch_size": 1, "drop_last": False}


@pytest.mark.parametrize(("name", "value"), [("sampler", [1]), ("batch_sampler", [[1]]), ("shuffle", True)])
def test_an_iterable_dataset_cannot_be_told_its_order(name, value):
    assert refusal(SettingsError, settings.check_order, True, {**ORDER, name: value}) == (
        f"[PS004] DataLoader with IterableDataset: expected unspecified {name} option, "
        f"but got {name}={value}\n"
        "  why:  an iterable dataset yields its samples in its own order\n"
        f"  fix:  leave {name} out and order the samples in the dataset, or use a map-style dataset\n"
        "  more: penstock explain PS004"
    )


def test_a_sampler_and_shuffle_exclude_each_other():
    assert refusal(
        SettingsError, settings.check_order, False, {**ORDER, "sampler": [1], "shuffle": True}
    ) == (
        "[PS003] sampler option is mutually exclusive with shuffle\n"
        "  why:  got sampler=[1] and shuffle=True\n"
        "  fix:  leave shuffle out: the sampler decides the order\n"
        "  more: penstock explain PS003"
    )


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({"batch_size": 4}, "batch_size=4"),
        ({"batch_size": None}, "batch_size=None"),
        ({"shuffle": True}, "shuffle=True"),
        ({"sampler": [1]}, "sampler=[1]"),
        ({"drop_last": True, "batch_size": 2}, "batch_size=2, drop_last=True"),
    ],
)
def test_a_batch_sampler_excludes_whatever_decides_the_batches(options, extra):
    given = {**ORDER, "batch_sampler": [[1]], **options}
    assert refusal(SettingsError, settings.check_order, False, given) == (
        "[PS003] batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
        "and drop_last\n"
        f"  why:  got batch_sampler and {extra}\n"
        "  fix:  leave those out: the batch sampler decides the batches\n"
        "  more: penstock explain PS003"
    )


def test_single_samples_cannot_drop_the_last_batch():
    given = {**ORDER, "batch_size": None, "drop_last": True}
    assert refusal(SettingsError, settings.check_order, False, given) == (
        "[PS003] batch_size=None option disables auto-batching and is mutually exclusive with drop_last\n"
        "  why:  got batch_size=None and drop_last=True\n"
        "  fix:  leave drop_last out, or set batch_size\n"
        "  more: penstock explain PS003"
    )


@pytest.mark.parametrize(
    ("is_iterable", "options"),
    [
        (False, {}),
        (False, {"shuffle": True, "batch_size": 4, "drop_last": True}),
        (False, {"sampler": [1], "batch_size": 4}),
        (False, {"sampler": [1], "shuffle": False}),
        (False, {"batch_sampler": [[1]], "shuffle": False}),
        pytest.param(False, {"batch_sampler": [[1]], "shuffle": 0}),
        (False, {"batch_size": None}),
        (True, {}),
        (True, {"shuffle": False, "batch_size": 4, "drop_last": True}),
        pytest.param(True, {"shuffle": 0}),
    ],
    ids=str,
)
def test_options_that_agree_about_the_order_are_taken(is_iterable, options):
    settings.check_order(is_iterable, {**ORDER, **options})


# ---- start methods ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "nearest"), [("spwan", "spawn"), ("Fork", "fork"), ("forksrv", "forkserver")]
)
def test_an_unknown_start_method_is_refused_with_the_nearest_one(value, nearest, monkeypatch):
    methods = ["fork", "spawn", "forkserver"]
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: methods)
    assert refusal(SettingsError, settings.check_context, value) == (
        "[PS002] multiprocessing_context option should specify a valid start method in "
        f"['fork', 'spawn', 'forkserver'], but got multiprocessing_context={value!r}\n"
        f"  why:  got multiprocessing_context={value!r}\n"
        f"  fix:  the nearest allowed value is multiprocessing_context={nearest!r}\n"
        "  more: penstock explain PS002"
    )


def test_a_context_that_is_none_is_a_type_error(monkeypatch):
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["fork", "spawn"])
    assert refusal(SettingsTypeError, settings.check_context, 5) == (
        "[PS001] multiprocessing_context option should be a valid context object or a string specifying the "
        "start method, but got multiprocessing_context=5\n"
        "  why:  it is of type int\n"
        "  fix:  pass one of 'fork', 'spawn'\n"
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize("context", [None, "fork", "spawn", multiprocessing.get_context("spawn")])
def test_every_context_is_taken(context):
    settings.check_context(context)


# ---- our own options ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ("processes", "process"),
        ("threads", "thread"),
        ("in-line", "inline"),
        ("Auto", "auto"),
        (7, "process"),
    ],
)
def test_an_unknown_backend_is_refused_with_the_nearest_one(value, nearest):
    assert refusal(SettingsError, settings.check_own, value, None, False) == (
        "[PS002] backend option should be one of 'process', 'thread', 'inline', 'auto'\n"
        f"  why:  got backend={value!r}\n"
        f"  fix:  the nearest allowed value is backend={nearest!r}\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize("value", [0, -1])
def test_an_arena_of_nothing_is_refused(value):
    assert refusal(SettingsError, settings.check_own, "process", value, False) == (
        "[PS002] arena_bytes option should be a positive number of bytes\n"
        f"  why:  got arena_bytes={value}\n"
        "  fix:  the nearest allowed value is arena_bytes=None (a share of the free memory)\n"
        "  more: penstock explain PS002"
    )


def test_an_arena_that_is_no_number_is_a_type_error():
    assert refusal(SettingsTypeError, settings.check_own, "process", 1e9, False) == (
        "[PS001] arena_bytes option should be a whole number\n"
        "  why:  got arena_bytes=1000000000.0, of type float\n"
        "  fix:  pass an int for arena_bytes\n"
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize(("value", "kind"), [(1, "int"), ("yes", "str"), (None, "NoneType")])
def test_pack_lists_is_true_or_false(value, kind):
    assert refusal(SettingsTypeError, settings.check_own, "process", None, value) == (
        "[PS001] pack_lists option should be True or False\n"
        f"  why:  got pack_lists={value!r}, of type {kind}\n"
        "  fix:  pass pack_lists=False\n"
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize(
    ("value", "kind", "nearest"),
    [("7", "str", "seed=7"), (1.5, "float", "an int for seed"), (True, "bool", "an int for seed")],
)
def test_a_seed_that_is_no_integer_is_a_type_error(value, kind, nearest):
    assert refusal(SettingsTypeError, settings.check_seed, value, "process") == (
        "[PS001] seed option should be a whole number\n"
        f"  why:  got seed={value!r}, of type {kind}\n"
        f"  fix:  pass {nearest}\n"
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize(("value", "nearest"), [(-1, 0), (2**64, 2**64 - 1)])
def test_a_seed_of_more_than_64_bits_is_refused(value, nearest):
    assert refusal(SettingsError, settings.check_seed, value, "process") == (
        "[PS002] seed option should be None or a whole number from 0 to 2**64 - 1\n"
        f"  why:  got seed={value}\n"
        f"  fix:  the nearest allowed value is seed={nearest}\n"
        "  more: penstock explain PS002"
    )


def test_a_seed_for_threads_is_refused():
    assert refusal(SettingsError, settings.check_seed, 7, "thread") == (
        "[PS003] seed option cannot be kept by worker threads, which share the generators of random numbers "
        "with each other and with the training loop\n"
        "  why:  got seed=7 and backend='thread'\n"
        "  fix:  leave backend out for worker processes, or leave seed out\n"
        "  more: penstock explain PS003"
    )


@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1, np.int64(3), torch.tensor(2)])
@pytest.mark.parametrize("backend", ["process", "inline", "auto"])
def test_every_seed_of_64_bits_is_taken(seed, backend):
    settings.check_seed(seed, backend)


def test_no_seed_goes_with_threads():
    settings.check_seed(None, "thread")


def test_a_negative_epoch_is_refused():
    assert refusal(SettingsError, settings.check_epoch, -2) == (
        "[PS002] epoch should be non-negative\n"
        "  why:  got epoch=-2\n"
        "  fix:  the nearest allowed value is epoch=0\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize("backend", settings.BACKENDS)
def test_every_backend_is_taken(backend):
    settings.check_own(backend, 1, True)


@pytest.mark.parametrize(("value", "kind"), [(1, "int"), ("yes", "str"), (None, "NoneType")])
def test_cure_is_true_or_false(value, kind):
    assert refusal(SettingsTypeError, settings.check_mistakes, value, "raise") == (
        "[PS001] cure option should be True or False\n"
        f"  why:  got cure={value!r}, of type {kind}\n"
        "  fix:  pass cure=False\n"
        "  more: penstock explain PS001"
    )


# ---- bad samples --------------------------------------------------------------------------------


def test_a_quarantine_that_is_no_path_is_refused():
    with pytest.raises(SettingsTypeError) as caught:
        settings.check_quarantine(3)
    assert str(caught.value) == (
        "[PS001] quarantine option should be the path of a file or None\n"
        "  why:  got quarantine=3, of type int\n"
        "  fix:  pass quarantine=None\n"
        "  more: penstock explain PS001"
    )


def test_what_follows_a_crash_is_one_of_two():
    assert refusal(SettingsError, settings.check_mistakes, True, "reply") == (
        "[PS002] on_iterable_crash option should be one of 'raise', 'replay'\n"
        "  why:  got on_iterable_crash='reply'\n"
        "  fix:  the nearest allowed value is on_iterable_crash='replay'\n"
        "  more: penstock explain PS002"
    )


# ---- stalls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("warn", "timeout"), [("auto", 30.0), (None, None), (1, 1), (0.5, float("inf"))])
def test_limits_of_a_stall_are_taken(warn, timeout):
    settings.check_stalls(warn, timeout)


def test_a_warning_after_no_time_is_refused():
    assert refusal(SettingsError, settings.check_stalls, 0, None) == (
        '[PS002] stall_warn option should be a number of seconds above 0, "auto" or None\n'
        "  why:  got stall_warn=0\n"
        "  fix:  the nearest allowed value is stall_warn=None (no limit)\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize("path", [None, "bad.jsonl", Path("bad.jsonl")])
def test_a_path_is_taken(path):
    settings.check_quarantine(path)


@pytest.mark.parametrize("value", [-1, 0.0, float("nan")])
def test_a_stall_of_no_time_is_refused(value):
    assert refusal(SettingsError, settings.check_stalls, None, value) == (
        "[PS002] stall_timeout option should be a number of seconds above 0 or None\n"
        f"  why:  got stall_timeout={value!r}\n"
        "  fix:  the nearest allowed value is stall_timeout=None (no limit)\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize(("value", "kind"), [("adaptive", "str"), (True, "bool"), ([1], "list")])
def test_a_warning_after_what_is_no_time_is_a_type_error(value, kind):
    assert refusal(SettingsTypeError, settings.check_stalls, value, None) == (
        '[PS001] stall_warn option should be a number of seconds above 0, "auto" or None\n'
        f"  why:  got stall_warn={value!r}, of type {kind}\n"
        '  fix:  pass stall_warn="auto"\n'
        "  more: penstock explain PS001"
    )


@pytest.mark.parametrize(("value", "kind"), [("auto", "str"), (False, "bool")])
def test_a_stall_of_what_is_no_time_is_a_type_error(value, kind):
    assert refusal(SettingsTypeError, settings.check_stalls, None, value) == (
        "[PS001] stall_timeout option should be a number of seconds above 0 or None\n"
        f"  why:  got stall_timeout={value!r}, of type {kind}\n"
        "  fix:  pass stall_timeout=30.0\n"
        "  more: penstock explain PS001"
    )
