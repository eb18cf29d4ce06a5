"""What an expression may stand for, followed through the program. Pure.

Followed: assignments, both sides of a condition, `self.x`, parameters (what callers pass, else the default),
returns of the program's own functions, parts of tuples, names imported from other files of the program, and
options (`args.workers` to the default that argparse, absl or a settings class gives it).

The answer is a list of `Value`s: where the trail ends. A trail that ends at a name, an attribute or a
parameter was lost there, and the value is unknown.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic.reading.module import FUNCTIONS, Function, Module, inside

DEEPEST = 16  # steps of a trail; longer ones are rare
FARTHEST = 6  # folders above a file in which its imports are looked for
MOST_STEPS = 2000  # for one expression, all its branches together

OPTION_HOLDERS = ("arg", "opt", "cfg", "conf", "param", "flag", "setting")

# What these return is at least this; the machine is not known.
CPU_COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "torch.multiprocessing.cpu_count"})
CPUS = 2


@dataclass(frozen=True)
class Value:
    """Where a trail ends: a piece of syntax, and the file in which it stands."""

    node: ast.AST | None
    module: Module

    @property
    def is_known(self) -> bool:
        """Whether the trail led to a value and not into the dark."""
        return self.node is not None and not isinstance(
            self.node, (ast.Name, ast.Attribute, ast.arg, ast.Subscript)
        )


class Values:
    """Follows expressions through all files of a program."""

    def __init__(self, modules: tuple[Module, ...]) -> None:
        self.modules = modules
        self._places = {_place(module.file.path): module for module in modules}
        self._calls: dict[str, list[tuple[ast.Call, Module]]] = {}
        self._options: dict[str, list[Value]] = {}
        self._known: dict[int, list[Value]] = {}  # syntax lives as long as its file, so an id is a name
        self._attributes: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}
        self._trail: list[int] = []
        self._left = 0
        for module in modules:
            for call in module.calls:
                self._calls.setdefault(_last(call.func), []).append((call, module))
            for name, node in _options(module):
                self._options.setdefault(name, []).append(Value(node, module))

    def of(self, node: ast.AST | None, module: Module) -> list[Value]:
        """Everything that an expression may stand for."""
        if node is None:
            return [Value(None, module)]
        if not self._trail:
            self._left = MOST_STEPS
            if id(node) not in self._known:
                self._known[id(node)] = self._followed(node, module)
            return self._known[id(node)]
        if id(node) in self._trail or len(self._trail) > DEEPEST or self._left <= 0:
            return [Value(None, module)]
        return self._followed(node, module)

    def _followed(self, node: ast.AST, module: Module) -> list[Value]:
        self._left -= 1
        self._trail.append(id(node))
        try:
            steps = self._steps(node, module)
            if steps is None:
                return [Value(node, module)]
            return [value for step in steps for value in self.of(step.node, step.module)]
        finally:
            self._trail.pop()

    def integer(
        self, node: ast.AST | None, module: Module, *, seen: frozenset[ast.AST] = frozenset()
    ) -> int | None:
        """The largest number that an expression may stand for, as far as known.

        None where nothing is known, and where what is known is 0 but there is more that is not.
        """
        numbers = [self._number(value, seen) for value in self.of(node, module) if value.node not in seen]
        known = max((number for number in numbers if number is not None), default=None)
        return None if known == 0 and None in numbers else known

    def texts(self, node: ast.AST | None, module: Module) -> set[str]:
        """The strings that an expression may stand for, as far as known."""
        values = (value.node for value in self.of(node, module))
        return {
            node.value for node in values if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    def is_true(self, node: ast.AST | None, module: Module) -> bool:
        """Whether an expression is known to be true, or may be by a condition."""
        values = (value.node for value in self.of(node, module))
        return any(isinstance(node, ast.Constant) and node.value is True for node in values)

    def definition(self, node: ast.AST, module: Module) -> Value | None:
        """The function, class or lambda of the program that a name stands for."""
        for value in self.of(node, module):
            if isinstance(value.node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
                return value
        return None

    # ---- one step ----------------------------------------------------------------------------------

    def _steps(self, node: ast.AST, module: Module) -> list[Value] | None:
        """Where a trail goes on from here; None at its end."""
        follow = self._FOLLOW.get(type(node))
        return None if follow is None else follow(self, node, module)

    def _from_name(self, node: ast.Name, module: Module) -> list[Value] | None:
        bound = module.bound(node.id, node)
        if bound:
            return [Value(each, module) for each in bound]
        return self._imported(module.imports.get(node.id, ""), module)

    def _imported(self, dotted: str, module: Module, *, depth: int = 0) -> list[Value] | None:
        """A name that another file of the program binds at its top level."""
        base, _, name = dotted.rpartition(".")
        if dotted.startswith(".") and not base.strip("."):
            base = dotted[: len(dotted) - len(dotted.lstrip("."))]
        other = self.module_of(base, module)
        if other is None or other is module or depth > FARTHEST:  # files may import a name in a circle
            return None
        bound = other.bindings.get(other.tree, {}).get(name)
        if bound:
            return [Value(each, other) for each in bound]
        again = other.imports.get(name, "")  # a package that imports it from a file of its own
        return self._imported(again, other, depth=depth + 1) if again else None

    def module_of(self, dotted: str, importer: Module) -> Module | None:
        """The file of the program that an import means: beside the importer, or in a folder above it."""
        dots = len(dotted) - len(dotted.lstrip("."))
        parts = [part for part in dotted.split(".") if part]
        if not parts and not dots:
            return None
        folder = os.path.dirname(os.path.abspath(importer.file.path))  # noqa: PTH100, PTH120 - no file is asked
        for level in range(FARTHEST):
            if not dots or level == dots - 1:
                found = self._places.get(os.path.join(folder, *parts))  # noqa: PTH118
                if found is not None:
                    return found
            folder = os.path.dirname(folder)  # noqa: PTH120
        return None

    def imports(self, module: Module) -> Iterator[Module]:
        """The other files of the program that one imports."""
        for dotted in set(module.imports.values()):
            for name in (dotted, dotted.rpartition(".")[0]):
                other = self.module_of(name, module)
                if other is not None and other is not module:
                    yield other

    def _from_attribute(self, node: ast.Attribute, module: Module) -> list[Value] | None:
        if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            owner = module.owner(node)
            assigned = self._assigned(owner).get(node.attr) if owner else None
            if assigned:
                return [Value(each, module) for each in assigned]
        head = module.dotted(node)
        if head and isinstance(node.value, ast.Name) and node.value.id in module.imports:
            return self._imported(head, module)
        return self._options.get(node.attr) if _holds_options(node.value) else None

    def _assigned(self, owner: ast.ClassDef) -> dict[str, list[ast.expr]]:
        if owner not in self._attributes:
            found = self._attributes.setdefault(owner, {})
            for name, value in assignments(owner):
                found.setdefault(name, []).append(value)
        return self._attributes[owner]

    def _from_parameter(self, node: ast.arg, module: Module) -> list[Value] | None:
        function = module.parents.get(module.parents.get(node, node))
        if not isinstance(function, FUNCTIONS):
            return None
        default = _default(function, node)
        found = [Value(default, module)] if default is not None else []
        for call, where in self._calls.get(_called(function, module), ()):
            given = passed(call, function, node, is_method=isinstance(module.parents[function], ast.ClassDef))
            if given is not None:
                found.append(Value(given, where))
        return found or None

    def _from_part(self, node: ast.Subscript, module: Module) -> list[Value] | None:
        if not isinstance(node.slice, ast.Constant):
            return None
        key = node.slice.value
        if isinstance(key, str):
            return self._options.get(key) if _holds_options(node.value) else None
        wholes = [value for value in self.of(node.value, module) if value.node is not node.value]
        parts = [
            Value(value.node.elts[key], value.module)
            for value in wholes
            if isinstance(value.node, (ast.Tuple, ast.List))
            and isinstance(key, int)
            and -len(value.node.elts) <= key < len(value.node.elts)
        ]
        return parts or None

    def _from_call(self, node: ast.Call, module: Module) -> list[Value] | None:
        """A function of the program stands for what it returns."""
        if isinstance(node.func, ast.Name):
            made = [value.node for value in self.of(node.func, module)]
        elif isinstance(node.func, ast.Attribute):
            made = list(self._methods(node.func, module))
        else:
            return None
        where = {id(each.node): each.module for each in self.of(node.func, module)}
        found = [
            Value(returned, where.get(id(function), module))
            for function in made
            if isinstance(function, FUNCTIONS)
            for returned in returns(function)
        ]
        return found or None

    def _methods(self, func: ast.Attribute, module: Module) -> Iterator[ast.AST | None]:
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            owner = module.owner(func)
            if owner is not None:
                yield from (
                    each for each in owner.body if isinstance(each, FUNCTIONS) and each.name == func.attr
                )

    def _from_choice(self, node: ast.IfExp | ast.BoolOp, module: Module) -> list[Value]:
        sides = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
        return [Value(each, module) for each in sides]

    _FOLLOW: ClassVar[dict[type[ast.AST], Callable[..., list[Value] | None]]] = {
        ast.Name: _from_name,
        ast.Attribute: _from_attribute,
        ast.arg: _from_parameter,
        ast.IfExp: _from_choice,
        ast.BoolOp: _from_choice,
        ast.Subscript: _from_part,
        ast.Call: _from_call,
    }

    def _number(self, value: Value, seen: frozenset[ast.AST]) -> int | None:
        node, module = value.node, value.module
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return None if isinstance(node.value, bool) else node.value
        if isinstance(node, ast.Call):
            name = module.dotted(node.func)
            if name in CPU_COUNTS:
                return CPUS
            if name == "int" and node.args:  # `workers = int(workers)` leads back to itself
                return self.integer(node.args[0], module, seen=seen | {node})
        return None


# ---- syntax ---------------------------------------------------------------------------------------


def assignments(owner: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """What a class assigns to attributes of `self` anywhere in its methods, and to names in its own body."""
    for node in ast.walk(owner):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and _last(target.value) == "self":
                    yield target.attr, node.value
                elif isinstance(target, ast.Name) and node in owner.body:
                    yield target.id, node.value


def returns(function: Function) -> Iterator[ast.expr]:
    """What a function returns, apart from functions inside it."""
    for node in inside(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def passed(call: ast.Call, function: Function, parameter: ast.arg, *, is_method: bool) -> ast.expr | None:
    """What a call passes for a parameter; None where that is not to be seen."""
    for keyword in call.keywords:
        if keyword.arg == parameter.arg:
            return keyword.value
    places = [*function.args.posonlyargs, *function.args.args]
    if parameter not in places or any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    place = places.index(parameter) - (1 if is_method else 0)
    return call.args[place] if 0 <= place < len(call.args) else None


def _called(function: Function, module: Module) -> str:
    """The name by which a function is called: a class's for its __init__."""
    owner = module.parents.get(function)
    return owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name


def _default(function: Function, parameter: ast.arg) -> ast.expr | None:
    given = function.args
    places = [*given.posonlyargs, *given.args]
    if parameter in places:
        from_end = len(places) - places.index(parameter)
        return given.defaults[-from_end] if from_end <= len(given.defaults) else None
    if parameter in given.kwonlyargs:
        return given.kw_defaults[given.kwonlyargs.index(parameter)]
    return None


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _holds_options(node: ast.AST) -> bool:
    """Whether an object is called like one that holds options: `args`, `self.cfg`, `FLAGS`."""
    name = _last(node).lower()
    return name in {"c", "hp", "p"} or any(word in name for word in OPTION_HOLDERS)


def _place(path: str) -> str:
    """Where a module lies, without the end of its name; a package is its folder."""
    return os.path.abspath(path).removesuffix(".py").removesuffix("/__init__")  # noqa: PTH100 - no file is asked


def _options(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Names of options and their defaults, wherever a program commonly keeps them."""
    for call in module.calls:
        yield from _declared(call)
    for node in module.classes:
        for each in node.body:
            if (
                isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and each.value is not None
            ):
                yield each.target.id, each.value
            elif isinstance(each, ast.Assign):
                yield from ((one.id, each.value) for one in each.targets if isinstance(one, ast.Name))
    everything = [value for bound in module.bindings.get(module.tree, {}).values() for value in bound]
    for value in everything:
        if isinstance(value, ast.Dict):
            yield from _items(value)


def _items(node: ast.Dict) -> Iterator[tuple[str, ast.AST]]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, value


def _declared(call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = _last(call.func)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if name in {"add_argument", "option"}:
        option = _option_name(call, keywords)
        if option and "default" in keywords:
            yield option, keywords["default"]
    elif name.startswith("DEFINE_") and len(call.args) > 1:
        if isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value), call.args[1]
    elif name in {"Namespace", "SimpleNamespace", "set_defaults", "EasyDict"}:
        yield from ((key, value) for key, value in keywords.items() if key)


def _option_name(call: ast.Call, keywords: dict[str, ast.expr]) -> str:
    dest = keywords.get("dest")
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    names = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
    long = [name for name in names if name.startswith("--")] or names
    return long[0].lstrip("-").replace("-", "_") if long else ""
