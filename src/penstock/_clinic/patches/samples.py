"""The patch that returns a copy of a stored sample."""

from __future__ import annotations

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import Page, PatchImpossible, dotted, with_imports

# Calls that copy what they are given, or only read it.
_COPIES = frozenset({"copy", "deepcopy", "clone", "array", "tensor", "int", "float", "len"})


def clone_sample(page: Page, fix: Fix) -> str:
    """Copy what `__getitem__` takes out of an attribute of the dataset.

    `name` is the variable that is given it, `attribute` the one it is taken out of, where they are known.
    """
    assert fix.site is not None
    method = page.method(fix.site.line, "__getitem__")
    wanted, attribute = fix.arguments.get("name"), fix.arguments.get("attribute")
    taken = [
        each
        for each in page.all(cst.Subscript, method)
        if _is_stored(page, each, wanted, handed_on=attribute is not None)
        and attribute in {None, dotted(each.value).rpartition(".")[2]}
    ]
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


def _is_stored(page: Page, node: cst.Subscript, wanted: str | None, *, handed_on: bool) -> bool:
    """`self.x[i]` that is returned or named, or `handed_on` to a call, and not yet copied."""
    if not dotted(node.value).startswith("self."):
        return False
    for each in page.above(node):
        if isinstance(each, cst.Attribute | cst.Subscript | cst.AugAssign | cst.Comparison):
            return False
        if isinstance(each, cst.Call) and (not handed_on or dotted(each.func).rpartition(".")[2] in _COPIES):
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
