"""A report as JSON, by its contract (`_clinic/report.py`). Needs neither rich nor torch."""

from __future__ import annotations

import json
import math
from typing import Any

from penstock._clinic import report as contract
from penstock._clinic.report import Report


def as_json(report: Report) -> str:
    """The report as JSON text. ASCII only; values that JSON does not have become null or their text."""
    return json.dumps(tamed(contract.as_json(report)), indent=2, allow_nan=False) + "\n"


def tamed(value: Any) -> Any:
    """Settings and measured values may hold anything: the same with nothing but what JSON has."""
    if isinstance(value, dict):
        return {str(name): tamed(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [tamed(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)
