"""Patches that move code to the top of a module, where a fresh process can find it, or behind a guard."""

from __future__ import annotations

import builtins
import textwrap
from typing import Any

import libcst as cst

from penstock._clinic.finding import Fix
from penstock._clinic.patches.page import (
    Page,
    PatchImpossible,
    dotted,
    insert,
    names,
    statements,
    tidy,
    with_imports,
)

_GUARD = 'if __name__ == "__main__":\n'


def lambda_to_function(page: Page, fix: Fix) -> str:
    """Make a lambda a function of the module; what it closes over is bound by functools.partial."""
    assert fix.site is not None
    at_line = [each for each in page.all(cst.Lambda) if page.lines(each)[0] == fix.site.line]
    if len(at_line) != 1:
        raise PatchImpossible("not one lambda on that line")
    found = at_line[0]
    name = _new_name(page, _wanted(page, found))
    given = [each.name.value for each in (*found.params.posonly_params, *found.params.params)]
    bound = sorted(names(found.body) - set(given) - _known(page))
    parameters = page.code(found.params).strip()
    if bound:
        parameters += ("" if "*" in parameters else ", *") + "".join(f", {each}" for each in bound)
    made = statements(f"\n\ndef {name}({parameters.lstrip(', ')}):\n    return {page.code(found.body)}\n\n\n")
    kept = ", ".join(f"{each}={each}" for each in bound)
    call = cst.parse_expression(f"functools.partial({name}, {kept})" if bound else name)
    module = insert(page.replaced((found, call)), page.top_of(found), made)
    return tidy(with_imports(module, "import functools") if bound else module)


def lift_class(page: Page, fix: Fix) -> str:
    """Move a class out of a function, or out of the guard, to the module."""
    assert fix.site is not None
    wanted = fix.arguments.get("name")
    classes = [each for each in page.all(cst.ClassDef) if page.around(each, cst.FunctionDef) is not None]
    classes += [each for each in page.all(cst.ClassDef) if _is_guarded(page, each)]
    here = [each for each in classes if wanted in {None, each.name.value}]
    if wanted is None:
        first, last = fix.site.line, fix.site.line
        here = [each for each in here if page.lines(each)[0] <= first and last <= page.lines(each)[1]]
    if len({id(each) for each in here}) != 1:
        raise PatchImpossible("not one such class")
    found = here[0]
    if names(found.body) & _locals(page, found):
        raise PatchImpossible("the class reads names of the function around it")
    text = textwrap.dedent(page.code(found)).strip("\n")
    top = page.top_of(found)
    beside: list[Any] = list(page.siblings(found))
    if len(beside) == 1:
        raise PatchImpossible("nothing else would be left there")
    pairs: list[tuple[cst.CSTNode, Any]] = [(found, cst.RemovalSentinel.REMOVE)]
    if beside[0] is found:  # what is first now needs no blank line before it
        pairs.append((beside[1], beside[1].with_changes(leading_lines=[])))
    module = page.replaced(*pairs)
    return tidy(insert(module, top, statements(f"\n\n{text}\n\n\n")))


def main_guard(page: Page, fix: Fix) -> str:
    """Put what runs from a line on, or from the choice of a start method on, behind the guard."""
    assert fix.site is not None
    body = list(page.module.body)
    start = min(
        (
            place
            for place, statement in enumerate(body)
            if page.lines(statement)[1] >= fix.site.line or _sets_method(page, statement)
        ),
        default=None,
    )
    if start is None or any(_is_guard(each) for each in body):
        raise PatchImpossible("there is nothing to guard")
    if any(isinstance(each, cst.FunctionDef | cst.ClassDef) for each in body[start:]):
        raise PatchImpossible("definitions follow")
    rest = page.module.with_changes(body=body[start:], header=[], footer=[]).code.strip("\n")
    if '"""' in rest or "'''" in rest:
        raise PatchImpossible("a text of several lines would change")
    guarded = statements(_GUARD + textwrap.indent(rest, "    ") + "\n")
    guard = guarded[0].with_changes(leading_lines=[cst.EmptyLine(indent=False), cst.EmptyLine(indent=False)])
    return page.module.with_changes(body=[*body[:start], guard]).code


def _wanted(page: Page, found: cst.Lambda) -> str:
    for each in page.above(found):
        if isinstance(each, cst.Arg) and each.keyword is not None:
            return each.keyword.value
        if isinstance(each, cst.Assign):
            return dotted(each.targets[0].target).split(".")[-1].strip("_") or "function"
        if isinstance(each, cst.BaseSmallStatement):
            break
    return "function"


def _new_name(page: Page, wanted: str) -> str:
    taken = {each.value for each in page.all(cst.Name)}
    name = f"{wanted}_function" if wanted in taken else wanted
    while name in taken:
        name += "_"
    return name


def _known(page: Page) -> set[str]:
    """Names that any function of the module may read."""
    known = set(dir(builtins))
    for statement in page.module.body:
        known |= _defined(statement)
    return known


def _defined(node: cst.CSTNode) -> set[str]:
    """Names that a statement of a body makes."""
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return {node.name.value}
    if isinstance(node, cst.ImportAlias):
        alias = node.asname.name if node.asname is not None else None
        return {dotted(alias) if alias is not None else dotted(node.name).split(".")[0]}
    if isinstance(node, cst.AssignTarget | cst.For | cst.NamedExpr | cst.AnnAssign):
        return names(node.target)
    inner: set[str] = set()
    for child in node.children:
        inner |= _defined(child)
    return inner


def _locals(page: Page, node: cst.CSTNode) -> set[str]:
    inner: set[str] = set()
    for each in page.above(node):
        if isinstance(each, cst.FunctionDef):
            inner |= names(each.params) | _defined(each.body)
    return inner - {node.name.value} if isinstance(node, cst.ClassDef) else inner


def _is_guard(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.If) and "__name__" in names(statement.test)


def _is_guarded(page: Page, node: cst.CSTNode) -> bool:
    return any(_is_guard(each) for each in page.above(node))


def _sets_method(page: Page, statement: cst.CSTNode) -> bool:
    return any(dotted(call.func).endswith("set_start_method") for call in page.all(cst.Call, statement))
