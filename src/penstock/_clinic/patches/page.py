"""A source file that is to be changed: its tree, where things are in it, what may be added to it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

Node = TypeVar("Node", bound=cst.CSTNode)


class PatchImpossible(Exception):  # noqa: N818 - a turn of the road, seen by no user
    """The place is not as the patch needs it."""


class Page:
    """One file; every change returns the whole new text."""

    def __init__(self, text: str) -> None:
        try:
            wrapper = MetadataWrapper(cst.parse_module(text))
        except (cst.ParserSyntaxError, RecursionError) as error:
            raise PatchImpossible(str(error)) from None
        self.module = wrapper.module
        self._places: Any = wrapper.resolve(PositionProvider)
        self._parents = {child: node for node in self._walk(self.module) for child in node.children}

    def _walk(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        yield node
        for child in node.children:
            yield from self._walk(child)

    # ---- where things are -----------------------------------------------------------------------

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of a node, 1-based."""
        place = self._places[node]
        return place.start.line, place.end.line

    def all(self, kind: type[Node], within: cst.CSTNode | None = None) -> list[Node]:
        """Every node of a kind, in the order of the text."""
        return [node for node in self._walk(within or self.module) if isinstance(node, kind)]

    def at(self, kind: type[Node], line: int, is_it: Callable[[Node], bool] = lambda _: True) -> Node:
        """The smallest node of a kind that reaches over a line. Raises PatchImpossible."""
        found = []
        for node in self.all(kind):
            first, last = self.lines(node)
            if first <= line <= last and is_it(node):
                found.append((last - first, node))
        if not found:
            raise PatchImpossible(f"line {line} has no {kind.__name__}")
        return min(found, key=lambda each: each[0])[1]

    def function_at(self, line: int) -> cst.FunctionDef:
        """The innermost function that holds a line."""
        return self.at(cst.FunctionDef, line)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, the nearest first."""
        parent = self._parents.get(node)
        while parent is not None:
            yield parent
            parent = self._parents.get(parent)

    def around(self, node: cst.CSTNode, kind: type[Node]) -> Node | None:
        """The nearest node of a kind around a node."""
        return next((each for each in self.above(node) if isinstance(each, kind)), None)

    def siblings(self, node: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """The statements of the block that a node stands in, itself included."""
        block = self._parents[node]
        return block.children if isinstance(block, cst.Module) else list(getattr(block, "body", ()))

    def method(self, line: int, name: str) -> cst.FunctionDef:
        """The method of that name in the class at a line."""
        owner = self.at(cst.ClassDef, line)
        for each in owner.body.body:
            if isinstance(each, cst.FunctionDef) and each.name.value == name:
                return each
        raise PatchImpossible(f"{owner.name.value} has no {name}")

    # ---- changes --------------------------------------------------------------------------------

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        return self.module.code_for_node(node)

    def replaced(self, *pairs: tuple[cst.CSTNode, Any]) -> cst.Module:
        """The module with some nodes replaced."""
        return replaced(self.module, *pairs)

    def top_of(self, node: cst.CSTNode) -> int:
        """The place among the module's statements of the one that holds a node."""
        held = {id(each) for each in (node, *self.above(node))}
        for place, statement in enumerate(self.module.body):
            if id(statement) in held:
                return place
        raise PatchImpossible("it stands outside of the module")


class _Replacer(cst.CSTTransformer):
    def __init__(self, pairs: dict[cst.CSTNode, Any]) -> None:
        super().__init__()
        self._pairs = pairs

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        """The new node for an old one."""
        return self._pairs.get(original_node, updated_node)


def replaced(within: Node, *pairs: tuple[cst.CSTNode, Any]) -> Node:
    """A piece of code with some of its nodes replaced."""
    changed = within.visit(_Replacer(dict(pairs)))
    assert isinstance(changed, type(within))
    return changed


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` as text; nothing for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr.value}" if before else ""
    return ""


def names(node: cst.CSTNode) -> set[str]:
    """The names that a piece of code reads: not attributes, not keywords."""
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, cst.Attribute):
        return names(node.value)
    if isinstance(node, cst.Arg):
        return names(node.value)
    return set().union(*map(names, node.children)) if node.children else set()


def statements(text: str) -> list[cst.BaseStatement]:
    """Lines of source as statements."""
    parsed = cst.parse_module(text)
    first, *rest = parsed.body
    blank = [*parsed.header, *first.leading_lines]  # libcst counts blank lines at the top as the module's own
    return [first.with_changes(leading_lines=blank), *rest]


def tidy(module: cst.Module) -> str:
    """The text, with no more than two blank lines anywhere."""
    text = module.code
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


def insert(module: cst.Module, place: int, added: Sequence[cst.BaseStatement]) -> cst.Module:
    """The module with statements in front of the one at a place."""
    body = list(module.body)
    return module.with_changes(body=[*body[:place], *added, *body[place:]])


def with_imports(module: cst.Module, *lines: str) -> cst.Module:
    """The module with these import lines, those that it does not have, behind its own."""
    text = {line.strip() for line in module.code.splitlines()}
    missing = [line for line in lines if line not in text]
    place = 0
    for number, statement in enumerate(module.body):
        is_import = isinstance(statement, cst.SimpleStatementLine) and isinstance(
            statement.body[0], cst.Import | cst.ImportFrom
        )
        if is_import or (number == 0 and is_docstring(statement)):
            place = number + 1
        elif place:
            break
    return insert(module, place, statements("".join(f"{line}\n" for line in missing))) if missing else module


def is_docstring(statement: cst.CSTNode) -> bool:
    """Whether a statement is nothing but a text."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    return isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString | cst.ConcatenatedString)
