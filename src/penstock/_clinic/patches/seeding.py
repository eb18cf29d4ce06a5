"""The patch that seeds a dataset's own generator in each worker."""

from __future__ import annotations

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.call import makes_a_loader, with_keyword
from penstock._clinic.patches.page import (
    Page,
    PatchImpossible,
    dotted,
    insert,
    statements,
    tidy,
    with_imports,
)

_FUNCTION = '''

def {name}(worker_id):
    """Give each worker, in each epoch, random numbers of its own."""
    info = get_worker_info()
    info.dataset.{path} = {made}


'''
_MADE = {
    "default_rng": "{callee}(info.seed)",
    "RandomState": "{callee}(info.seed % 2**32)",
    "Random": "{callee}(info.seed)",
    "Generator": "{callee}().manual_seed(info.seed)",
}


def seed_workers(page: Page, fix: Fix) -> str:
    """Add a `worker_init_fn` that makes the generator anew from the worker's seed."""
    assert fix.site is not None
    path = str(fix.arguments.get("attribute") or fix.arguments.get("path", "")).removeprefix("dataset.")
    loaders = [call for call in page.all(cst.Call) if makes_a_loader(call)]
    line = fix.site.line
    here = [call for call in loaders if page.lines(call)[0] <= line <= page.lines(call)[1]] or loaders
    if not path.isidentifier() or len(here) != 1 or any(_has_function(call) for call in here):
        raise PatchImpossible("not one loader without a function of its own")
    name = "seed_worker"
    while any(each.value == name for each in page.all(cst.Name)):
        name += "_"
    made = _made(page, path)
    module = page.replaced((here[0], with_keyword(here[0], "worker_init_fn", name)))
    added = statements(_FUNCTION.format(name=name, path=path, made=made))
    module = insert(module, page.top_of(here[0]), added)
    return tidy(with_imports(module, "from torch.utils.data import get_worker_info"))


def _has_function(call: cst.Call) -> bool:
    return any(arg.keyword is not None and arg.keyword.value == "worker_init_fn" for arg in call.args)


def _made(page: Page, attribute: str) -> str:
    for each in page.all(cst.Assign):
        if dotted(each.targets[0].target) != f"self.{attribute}":
            continue
        for call in page.all(cst.Call, each.value):
            callee = dotted(call.func)
            form = _MADE.get(callee.split(".")[-1])
            if form is not None:
                return form.format(callee=callee)
    raise PatchImpossible("it is not known how the generator is made")
