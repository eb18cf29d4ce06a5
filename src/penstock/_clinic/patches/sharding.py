"""The patch that divides a stream between the workers."""

from __future__ import annotations

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import (
    Page,
    PatchImpossible,
    dotted,
    is_docstring,
    replaced,
    statements,
    with_imports,
)

_PART = """info = get_worker_info()
first, step = (info.id, info.num_workers) if info is not None else (0, 1)
"""


def shard(page: Page, fix: Fix) -> str:
    """Let `__iter__` yield every n-th sample only, in worker n of so many."""
    assert fix.site is not None
    method = page.method(fix.site.line, "__iter__")
    outer = [each for each in page.all(cst.For, method) if page.around(each, cst.For) is None]
    returned = [each for each in page.all(cst.Return, method) if each.value is not None]
    if len(outer) == 1 and not returned:
        loop = outer[0]
        source = page.code(loop.iter)
        if any(isinstance(each, cst.While) for each in page.above(loop)):
            raise PatchImpossible("the stream has no end")
        pair = (loop.iter, cst.parse_expression(f"itertools.islice({source}, first, None, step)"))
    elif len(returned) == 1 and not page.all(cst.Yield, method):
        value = returned[0].value
        assert value is not None
        inner = value.args[0].value if isinstance(value, cst.Call) and dotted(value.func) == "iter" else value
        pair = (value, cst.parse_expression(f"itertools.islice({page.code(inner)}, first, None, step)"))
    else:
        raise PatchImpossible("the stream is made in more than one place")
    first = method.body.body[0]
    lines = statements(_PART)
    changed = replaced(method, pair)
    body = list(changed.body.body)
    at = 1 if is_docstring(first) else 0
    block = changed.body.with_changes(body=[*body[:at], *lines, *body[at:]])
    module = page.replaced((method, changed.with_changes(body=block)))
    return with_imports(module, "import itertools", "from torch.utils.data import get_worker_info").code
