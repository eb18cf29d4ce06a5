"""Write the expected texts anew; look at the difference before it is committed."""

from __future__ import annotations

from penstock._render.as_text import as_text
from tests.unit._render import reports
from tests.unit._render.test_as_text import EXPECTED

if __name__ == "__main__":
    for name, report in reports.ALL.items():
        (EXPECTED / f"{name}.txt").write_text(as_text(report, read=reports.read), encoding="utf-8")
