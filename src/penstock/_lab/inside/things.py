"""What hangs on dataset, collate function and the rest that matters to workers."""

from __future__ import annotations

from typing import Any

from penstock._lab.plan import Plan


def add(fields: dict[str, Any], loader: Any, plan: Plan) -> None:
    """Add what was found to LoaderSeen's fields."""
    fields["things"] = []
