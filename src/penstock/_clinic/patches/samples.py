"""The patch that returns a copy of a stored sample."""

from __future__ import annotations

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import Page, PatchImpossible, dotted, with_imports


def clone_sample(page: Page, fix: Fix) -> str:
    """Copy what `__getitem__` takes out of an attribute of the dataset."""
    assert fix.site is not None
    method = page.method(fix.site.line, "__getitem__")
    wanted = fix.arguments.get("name")
    taken = [each for each in page.all(cst.Subscript, method) if _is_stored(page, each, wanted)]
    if not taken:
        raise PatchImpossible("no stored sample is taken there")
    owner = page.at(cst.ClassDef, fix.site.line)
    pairs, imports = [], False
    for each in taken:
        how = _how(page, owner, dotted(each.value))
        text = page.code(each)
        imports |= how == "deepcopy"
        copied = f"copy.deepcopy({text})" if how == "deepcopy" else f"{text}.{how}()"
        pairs.append((each, cst.parse_expression(copied)))
    module = page.replaced(*pairs)
    return (with_imports(module, "import copy") if imports else module).code


def _is_stored(page: Page, node: cst.Subscript, wanted: str | None) -> bool:
    """`self.x[i]` that is returned or named, and not yet copied."""
    if not dotted(node.value).startswith("self."):
        return False
    for each in page.above(node):
        if isinstance(each, cst.Attribute | cst.Subscript | cst.AugAssign | cst.Comparison):
            return False
        if isinstance(each, cst.Call):
            return False
        if isinstance(each, cst.Assign):
            return wanted is None or dotted(each.targets[0].target) == wanted
        if isinstance(each, cst.Return):
            return wanted is None
    return False


def _how(page: Page, owner: cst.ClassDef, attribute: str) -> str:
    """How a part of this attribute is copied: by what the class says of it."""
    for each in page.all(cst.Assign, owner):
        if dotted(each.targets[0].target) == attribute:
            text = page.code(each.value)
            if "torch." in text and not text.startswith(("[", "{", "list(", "dict(")):
                return "clone"
            if ("np." in text or "numpy." in text) and not text.startswith(("[", "{", "list(", "dict(")):
                return "copy"
    return "deepcopy"
