"""One source file, indexed once: parents, imports, bindings, calls, classes, functions. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeAlias

from penstock._clinic.source import SourceFile

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Module:
    """One file, and where everything in it is."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.tree = file.tree
        self.lines = file.text.splitlines()
        self.nodes: list[ast.AST] = []  # from the outside inwards
        self.parents: dict[ast.AST, ast.AST] = {}
        self.imports: dict[str, str] = {}  # name in this file: dotted name of what it is
        self.calls: list[ast.Call] = []
        self.classes: list[ast.ClassDef] = []
        self.functions: list[Function] = []
        # By scope and name: what is bound there. None: something that syntax does not tell.
        self.bindings: dict[ast.AST, dict[str, list[ast.AST | None]]] = {}
        self._bodies: dict[ast.AST, tuple[ast.AST, ...]] = {}
        self._index()

    def body(self, function: ast.AST) -> tuple[ast.AST, ...]:
        """The nodes of a function, without those of functions and classes defined in it."""
        if function not in self._bodies:
            self._bodies[function] = tuple(inside(function))
        return self._bodies[function]

    # ---- where a node is ---------------------------------------------------------------------------

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module in which a node is."""
        return next((each for each in self.above(node) if isinstance(each, SCOPES)), self.tree)

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function in which a node is."""
        return next((each for each in self.above(node) if isinstance(each, FUNCTIONS)), None)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class in whose body, or in whose methods, a node is."""
        return next((each for each in self.above(node) if isinstance(each, ast.ClassDef)), None)

    def loops(self, node: ast.AST) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
        """The loops around a node in its own function, innermost first; not that whose head it is in."""
        child: ast.AST = node
        for each in self.above(node):
            if isinstance(each, SCOPES):
                return
            is_head = isinstance(each, (ast.For, ast.AsyncFor)) and child is each.iter
            if isinstance(each, LOOPS) and not is_head:
                yield each
            child = each

    def is_guarded(self, node: ast.AST) -> bool:
        """Whether it stands under `if __name__ == "__main__":`."""
        return any(isinstance(each, ast.If) and is_guard(each.test) for each in self.above(node))

    def is_conditional(self, node: ast.AST) -> bool:
        """Whether it runs only under a condition, other than the guard's, in its own function."""
        for each in self.above(node):
            if isinstance(each, SCOPES):
                return False
            if isinstance(each, (ast.If, ast.IfExp)) and not is_guard(each.test):
                return True
        return False

    # ---- names -------------------------------------------------------------------------------------

    def dotted(self, node: ast.AST) -> str:
        """The full name of `a.b.c` as imports tell it; "" where it is no such chain.

        A name bound in this file stands for itself; `self.x` is "self.x".
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def bound(self, name: str, node: ast.AST) -> list[ast.AST | None]:
        """What a name may stand for at a node: by the innermost scope that binds it."""
        scope = self.scope(node)
        while True:
            found = self.bindings.get(scope, {}).get(name)
            if found is not None:
                return found
            if scope is self.tree:
                return []
            scope = self._outer(scope)

    def _outer(self, scope: ast.AST) -> ast.AST:
        """The next scope in which names are looked up: methods do not see their class."""
        outer = self.scope(scope)
        while isinstance(outer, ast.ClassDef):
            outer = self.scope(outer)
        return outer

    # ---- indexing ----------------------------------------------------------------------------------

    def _index(self) -> None:
        # As ast.walk, but every node's children are listed once: this is most of the time of a lint.
        self.nodes.append(self.tree)
        for node in self.nodes:
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, (ast.expr_context, ast.operator, ast.cmpop)):  # shared, and no place
                    self.parents[child] = node
                    self.nodes.append(child)
            visit = self._VISITS.get(type(node))
            if visit is not None:
                visit(self, node)

    def _bind(self, scope: ast.AST, name: str, value: ast.AST | None) -> None:
        self.bindings.setdefault(scope, {}).setdefault(name, []).append(value)

    def _bind_target(self, target: ast.AST, value: ast.AST | None) -> None:
        if isinstance(target, ast.Name):
            self._bind(self.scope(target), target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for place, each in enumerate(target.elts):
                self.parents.setdefault(each, target)
                self._bind_target(each, self._part(value, place))
        elif isinstance(target, ast.Starred):
            self.parents.setdefault(target.value, target)
            self._bind_target(target.value, None)

    def _part(self, value: ast.AST | None, place: int) -> ast.AST | None:
        """The part of a value that goes to one of several targets."""
        if isinstance(value, (ast.Tuple, ast.List)):
            return value.elts[place] if place < len(value.elts) else None
        if not isinstance(value, ast.expr):
            return None
        part = ast.Subscript(value=value, slice=ast.Constant(value=place), ctx=ast.Load())
        ast.copy_location(part, value)
        self.parents[part] = self.parents.get(value, self.tree)
        return part

    def _see_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.imports[name] = alias.name if alias.asname else name

    def _see_import_from(self, node: ast.ImportFrom) -> None:
        base = "." * node.level + (node.module or "")
        for alias in node.names:
            joint = "." if node.module else ""
            self.imports[alias.asname or alias.name] = f"{base}{joint}{alias.name}"

    def _see_function(self, node: Function) -> None:
        self.functions.append(node)
        self._bind(self.scope(node), node.name, node)
        self._see_arguments(node)

    def _see_arguments(self, node: Function | ast.Lambda) -> None:
        given = node.args
        for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            self._bind(node, arg.arg, arg)
        for rest in (given.vararg, given.kwarg):
            if rest is not None:
                self._bind(node, rest.arg, None)

    def _see_class(self, node: ast.ClassDef) -> None:
        self.classes.append(node)
        self._bind(self.scope(node), node.name, node)

    def _see_call(self, node: ast.Call) -> None:
        self.calls.append(node)

    def _see_assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.parents.setdefault(target, node)
            self._bind_target(target, node.value)

    def _see_annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind_target(node.target, node.value)

    def _see_named(self, node: ast.NamedExpr) -> None:
        self._bind_target(node.target, node.value)

    def _see_augmented(self, node: ast.AugAssign) -> None:
        self._bind_target(node.target, None)

    def _see_for(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        self._bind_target(node.target, None)

    def _see_with(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind_target(node.optional_vars, node.context_expr)

    _VISITS: ClassVar[dict[type[ast.AST], Callable[..., None]]] = {
        ast.Import: _see_import,
        ast.ImportFrom: _see_import_from,
        ast.FunctionDef: _see_function,
        ast.AsyncFunctionDef: _see_function,
        ast.Lambda: _see_arguments,
        ast.ClassDef: _see_class,
        ast.Call: _see_call,
        ast.Assign: _see_assign,
        ast.AnnAssign: _see_annotated,
        ast.NamedExpr: _see_named,
        ast.AugAssign: _see_augmented,
        ast.For: _see_for,
        ast.AsyncFor: _see_for,
        ast.comprehension: _see_for,
        ast.withitem: _see_with,
    }


def inside(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes defined in it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def is_guard(test: ast.AST) -> bool:
    """Whether a condition asks if this file is the program: `__name__ == "__main__"`, also among others."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {side.id for side in sides if isinstance(side, ast.Name)}
            texts = {side.value for side in sides if isinstance(side, ast.Constant)}
            if "__name__" in names and "__main__" in texts:
                return True
    return False
