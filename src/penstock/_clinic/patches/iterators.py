"""The patch that makes an iterator once, where a loop made one for each step."""

from __future__ import annotations

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import Page, PatchImpossible, dotted, insert, replaced, statements, tidy

_ENDLESS = '''

def endless(loader):
    """The batches of one epoch after another."""
    while True:
        yield from loader


'''


def hoist_iterator(page: Page, fix: Fix) -> str:
    """Replace `next(iter(loader))` in a loop by `next(batches)`, with `batches` made before the loop."""
    found = [call for call in page.all(cst.Call) if _loader(call)]
    wanted = fix.arguments.get("loader")
    found = [call for call in found if _loader(call) == wanted] or found
    loops = {id(loop): loop for call in found if (loop := _loop(page, call)) is not None}
    loaders = {_loader(call) for call in found}
    if len(loops) != 1 or len(loaders) != 1 or not all(loaders):
        raise PatchImpossible("not one loop over one loader")
    loop, loader = next(iter(loops.values())), next(iter(loaders))
    taken = {each.value for each in page.all(cst.Name)}
    name, maker = _free("batches", taken), _free("endless", taken)
    before = statements(f"{name} = {maker}({loader})\n")[0].with_changes(leading_lines=loop.leading_lines)
    calls = [(call, cst.parse_expression(f"next({name})")) for call in found if _loop(page, call) is loop]
    # Both changes in one: after the first, the loop would be another object.
    after = replaced(loop, *calls).with_changes(leading_lines=[])
    changed = page.replaced((loop, cst.FlattenSentinel([before, after])))
    return tidy(insert(changed, page.top_of(loop), statements(_ENDLESS.replace("endless", maker))))


def _loader(call: cst.Call) -> str:
    """The loader in `next(iter(loader))`; nothing for any other call."""
    if dotted(call.func) != "next" or not call.args or not isinstance(call.args[0].value, cst.Call):
        return ""
    inner = call.args[0].value
    return dotted(inner.args[0].value) if dotted(inner.func) == "iter" and len(inner.args) == 1 else ""


def _loop(page: Page, call: cst.Call) -> cst.For | cst.While | None:
    """The outermost loop around a call, within its function."""
    loop = None
    for each in page.above(call):
        if isinstance(each, cst.FunctionDef | cst.Lambda):
            break
        if isinstance(each, cst.For | cst.While):
            loop = each
    return loop


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
