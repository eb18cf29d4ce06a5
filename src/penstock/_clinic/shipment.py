"""A loader at hand becomes a program: its parts in a file, and a function that builds it from them.

    diagnose(loader) ── cloudpickle ──▶ folder/parts.pickle
                                        folder/shipped_loader.py: make() ──▶ DataLoader(...)

The folder lives as long as the exam.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from penstock._clinic import reasons
from penstock._clinic.report import Report

MODULE = "shipped_loader"

# Options of the loader that travel as they are; the sampler decides batches, see `_parts`.
_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "prefetch_factor",
    "persistent_workers",
    "generator",
    "in_order",  # since torch 2.6
)

_PROGRAM = '''\
"""The loader that `penstock.diagnose` was called with, built again from its parts."""

import os
import pickle
import sys

sys.path[:0] = [path for path in {path!r} if path not in sys.path]


def make():
    from torch.utils.data import DataLoader

    with open({parts!r}, "rb") as file:
        return DataLoader(**pickle.load(file))
'''


def with_loader(loader: Any, examine: Callable[[str], Report]) -> Report:
    """Examine a program that builds this loader again."""
    name = f"the loader over {type(loader.dataset).__name__}"
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        try:
            target = _write(loader, Path(folder))
        except Exception as error:  # noqa: BLE001 - whatever pickling user code raises
            reason = reasons.not_shipped(
                f"{name} cannot be shipped to a fresh process", f"{type(error).__name__}: {error}"
            )
            return Report(target=name, verdict="could-not-run", seconds=0.0, reason=reason)
        return dataclasses.replace(examine(target), target=name)


def _write(loader: Any, folder: Path) -> str:
    parts = folder / "parts.pickle"
    parts.write_bytes(cloudpickle.dumps(_parts(loader)))
    script = folder / f"{MODULE}.py"
    script.write_text(
        _PROGRAM.format(path=[path for path in sys.path if path], parts=str(parts)), encoding="utf-8"
    )
    return f"{script}:make"


def _parts(loader: Any) -> dict[str, Any]:
    """The keywords that build the same loader."""
    found = {name: getattr(loader, name) for name in _OPTIONS if hasattr(loader, name)}
    found["dataset"] = loader.dataset
    if not found["num_workers"]:
        found.pop("prefetch_factor", None)
    context = loader.multiprocessing_context
    if context is not None:
        found["multiprocessing_context"] = context.get_start_method()
    return {**found, **_batching(loader)}


def _batching(loader: Any) -> dict[str, Any]:
    """How samples become batches: by size, by a batch sampler of the user's own, or not at all."""
    from torch.utils.data import IterableDataset

    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"batch_sampler": loader.batch_sampler}
    return {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "sampler": loader.sampler}
