"""The patch that opens a handle in the process that uses it."""

from __future__ import annotations

import textwrap

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import (
    Page,
    PatchImpossible,
    dotted,
    names,
    replaced,
    statements,
    with_imports,
)

_PROPERTY = """
@property
def {name}(self):
    if self._{name}_owner != os.getpid():  # each process opens its own
        self._{name}, self._{name}_owner = {made}, os.getpid()
    return self._{name}

def __getstate__(self):
    return {{**self.__dict__, "_{name}": None, "_{name}_owner": None}}
"""


def lazy_open(page: Page, fix: Fix) -> str:
    """Make an attribute that `__init__` opens a property that each process opens for itself."""
    assert fix.site is not None
    name = str(fix.arguments.get("attribute") or fix.arguments.get("path", "")).split(".")[-1]
    made, owner = _assignment(page, name, fix.site.line)
    method = page.around(made, cst.FunctionDef)
    if isinstance(made.value, cst.Name):
        raise PatchImpossible("it is opened outside of the class")
    if method is None or any(
        isinstance(each, cst.FunctionDef) and each.name.value in {"__getstate__", "__reduce__", name}
        for each in owner.body.body
    ):
        raise PatchImpossible("the class has a state of its own")
    parameters = {each.name.value for each in method.params.params} - {"self"}
    used = sorted(names(made.value) & parameters)
    if names(made.value) & _locals(page, method, made):
        raise PatchImpossible("what opens it needs names of the constructor")
    new = {each: f"self._{name}_{each}" for each in used}
    value = page.code(replaced(made.value, *_renamed(made.value, new)))
    keep = "".join(f"self._{name}_{each} = {each}\n" for each in used)
    lines = statements(f"{keep}self._{name} = self._{name}_owner = None\n")
    line = next(each for each in page.above(made) if isinstance(each, cst.SimpleStatementLine))
    added = statements(textwrap.dedent(_PROPERTY.format(name=name, made=value)))
    added[0] = added[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    added[1] = added[1].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
    # Both changes in one: after the first, the constructor would be another object.
    constructor = replaced(method, (line, cst.FlattenSentinel(lines)))
    module = page.replaced((method, cst.FlattenSentinel([constructor, *added])))
    return with_imports(module, "import os").code


def _assignment(page: Page, name: str, line: int) -> tuple[cst.Assign, cst.ClassDef]:
    found = []
    for each in page.all(cst.Assign):
        owner = page.around(each, cst.ClassDef)
        method = page.around(each, cst.FunctionDef)
        is_it = len(each.targets) == 1 and dotted(each.targets[0].target) == f"self.{name}"
        if is_it and owner is not None and method is not None and method.name.value == "__init__":
            first, last = page.lines(owner)
            found.append((not first <= line <= last, each, owner))
    near = [pair for pair in found if not pair[0]] or found
    if len(near) != 1:
        raise PatchImpossible(f"not one place makes self.{name}")
    return near[0][1], near[0][2]


def _locals(page: Page, method: cst.FunctionDef, made: cst.Assign) -> set[str]:
    """Names that the constructor itself makes."""
    local: set[str] = set()
    for each in page.all(cst.Assign, method):
        if each is not made:
            local |= {dotted(target.target) for target in each.targets if isinstance(target.target, cst.Name)}
    for with_ in page.all(cst.With, method):
        local |= {dotted(item.asname.name) for item in with_.items if item.asname is not None}
    return local


def _renamed(node: cst.CSTNode, new: dict[str, str]) -> list[tuple[cst.CSTNode, cst.CSTNode]]:
    """Which names to replace by which, leaving keywords and attributes alone."""
    if isinstance(node, cst.Name):
        return [(node, cst.parse_expression(new[node.value]))] if node.value in new else []
    inner = [node.value] if isinstance(node, cst.Attribute | cst.Arg) else node.children
    return [pair for child in inner for pair in _renamed(child, new)]
