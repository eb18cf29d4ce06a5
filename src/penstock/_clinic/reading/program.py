"""All files of a program together: its datasets, its loaders, who gets which, and how workers start. Pure."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from penstock._clinic.reading.classes import ClassRead, Place
from penstock._clinic.reading.module import FUNCTIONS, Module
from penstock._clinic.reading.patterns import FETCHING
from penstock._clinic.reading.values import Value, Values
from penstock._clinic.source import Source
from penstock._lab.site import Site

# Classes that are torch's DataLoader, or inherit from it with its options.
LOADERS = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "penstock.DataLoader",
        "torchdata.stateful_dataloader.StatefulDataLoader",
        "monai.data.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
    }
)
# Options that torch takes by place.
PLACES = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
# Datasets made of others.
WRAPPERS = frozenset({"Subset", "random_split", "ConcatDataset", "ChainDataset", "StackDataset"})
WRAPPED = 4  # calls around a loader, with itself: zip(enumerate(tqdm(loader)))
MOST_OBJECTS = 200  # that one dataset is followed through
SHIPPING = frozenset({"spawn", "forkserver"})
FORKING = frozenset({"fork", "default"})


@dataclass(frozen=True, eq=False)
class LoaderMade:
    """A call that makes a loader."""

    node: ast.Call
    module: Module
    options: dict[str, Value]
    is_open: bool  # there may be more options than can be seen
    datasets: tuple[ClassRead, ...]  # those of its classes that the program defines
    workers: int | None  # None: not known
    start: str  # "fork", "spawn", "forkserver", "default", "unknown"

    @property
    def may_work(self) -> bool:
        """Whether it has workers, or may have."""
        return self.workers is None or self.workers > 0

    def lacks(self, option: str) -> bool:
        """Whether an option is certainly not given, or given as None."""
        value = self.options.get(option)
        if value is None:
            return not self.is_open
        return isinstance(value.node, ast.Constant) and value.node.value is None


class Program:
    """Every file, and what they make together."""

    def __init__(self, source: Source) -> None:
        self.modules = tuple(Module(file) for file in source.files)
        self.values = Values(self.modules)
        self._classes: dict[int, ClassRead] = {}
        self._held: dict[ClassRead, list[tuple[ClassRead, tuple[str, ...]]]] = {}

    # ---- classes -------------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> tuple[ClassRead, ...]:
        """Every class of the program."""
        return tuple(self.class_read(node, module) for module in self.modules for node in module.classes)

    @cached_property
    def datasets(self) -> tuple[ClassRead, ...]:
        """Every class that is a dataset, by what it inherits or because a loader gets it."""
        given = {id(each) for loader in self.loaders for each in loader.datasets}
        return tuple(each for each in self.classes if _kind(each) or (id(each) in given and _is_duck(each)))

    @property
    def map_datasets(self) -> Iterator[ClassRead]:
        """Datasets that give a sample for an index."""
        yield from (
            each for each in self.datasets if _kind(each) != "iterable" and "__getitem__" in each.methods
        )

    @property
    def iterable_datasets(self) -> Iterator[ClassRead]:
        """Datasets that yield samples in their own order."""
        yield from (
            each for each in self.datasets if _kind(each) == "iterable" and "__iter__" in each.methods
        )

    def held(self, dataset: ClassRead) -> list[tuple[ClassRead, tuple[str, ...]]]:
        """A dataset and the objects of the program that it keeps, with the methods that samples need.

        A store or a reader in an attribute goes to the workers as the dataset does.
        """
        if dataset not in self._held:
            self._held[dataset] = [(dataset, FETCHING), *self._parts(dataset)]
        return self._held[dataset]

    def _parts(self, dataset: ClassRead) -> Iterator[tuple[ClassRead, tuple[str, ...]]]:
        fetching = dataset.reach(*FETCHING)
        for each in dataset.made():
            uses = list(dataset.uses(each.attribute, fetching))
            used = {name for node, place in uses for name in _used(node, place)}
            if not used:
                continue
            for part in self.classes_of(each.value, each.module):
                if part is not dataset and not _kind(part):
                    yield part, tuple(sorted(used))

    def classes_of(self, node: ast.AST | None, module: Module) -> list[ClassRead]:
        """The classes of the program that an object may be of; then the datasets that it is made of."""
        found: dict[ClassRead, None] = {}
        # By identity, each once: a large program leads to the same object on thousands of ways.
        seen: set[int] = set()
        ahead: deque[tuple[Value, bool]] = deque()

        def follow(part: ast.AST | None, module: Module, *, is_inner: bool) -> None:
            for each in self.values.of(part, module):
                if id(each.node) not in seen:
                    seen.add(id(each.node))
                    ahead.append((each, is_inner))

        follow(node, module, is_inner=False)
        left = MOST_OBJECTS
        while ahead and left:
            left -= 1
            value, is_inner = ahead.popleft()
            own = self._made_by(value)
            if own is not None and (not is_inner or _kind(own)):
                found[own] = None
            for part in self._made_of(value, own):
                follow(part, value.module, is_inner=is_inner or isinstance(value.node, ast.Call))
        return list(found)

    def _made_by(self, value: Value) -> ClassRead | None:
        """The class of the program that a call makes an object of."""
        node = value.node
        return self.definition(node.func, value.module) if isinstance(node, ast.Call) else None

    def _made_of(self, value: Value, own: ClassRead | None) -> list[ast.expr]:
        """The parts of a list, and what a dataset is made with."""
        node = value.node
        if isinstance(node, (ast.List, ast.Tuple)):
            return node.elts
        if isinstance(node, ast.Subscript):
            return [node.value]
        if not isinstance(node, ast.Call):
            return []
        if own is None and value.module.dotted(node.func).rpartition(".")[2] not in WRAPPERS:
            return []
        return [*node.args, *(keyword.value for keyword in node.keywords)]

    def definition(self, node: ast.AST, module: Module) -> ClassRead | None:
        """The class of the program that a name stands for."""
        value = self.values.definition(node, module)
        if value is None or not isinstance(value.node, ast.ClassDef):
            return None
        return self.class_read(value.node, value.module)

    def class_read(self, node: ast.ClassDef, module: Module) -> ClassRead:
        """A class of the program, by its definition."""
        if id(node) not in self._classes:
            # Put in first without parents: a class that inherits from its own name ends here.
            self._classes[id(node)] = ClassRead(node, module, (), self.values)
            parents = [self.definition(base, module) for base in node.bases]
            own = tuple(each for each in parents if each is not None and each.node is not node)
            self._classes[id(node)] = ClassRead(node, module, own, self.values)
        return self._classes[id(node)]

    # ---- loaders -------------------------------------------------------------------------------------

    @cached_property
    def loaders(self) -> tuple[LoaderMade, ...]:
        """Every call that makes a loader."""
        return tuple(
            self._loader(call, module)
            for module in self.modules
            for call in module.calls
            if self._makes_loader(call, module)
        )

    def loaders_of(self, node: ast.AST | None, module: Module) -> list[LoaderMade]:
        """The loaders that an expression may stand for, also inside `enumerate(…)`, `tqdm(…)` and so on."""
        found: dict[int, LoaderMade] = {}
        seen: set[int] = set()
        ahead = [(node, module)]
        for _ in range(WRAPPED):
            values = [value for part, where in ahead for value in self.values.of(part, where)]
            ahead = []
            for value in values:
                if id(value.node) in seen:
                    continue
                seen.add(id(value.node))
                if id(value.node) in self._by_node:
                    found[id(value.node)] = self._by_node[id(value.node)]
                elif isinstance(value.node, ast.Call):
                    ahead += [(arg, value.module) for arg in value.node.args]
        return list(found.values())

    @cached_property
    def _by_node(self) -> dict[int, LoaderMade]:
        return {id(loader.node): loader for loader in self.loaders}

    def loaders_for(self, dataset: ClassRead) -> list[LoaderMade]:
        """The loaders that get a dataset; where none is seen to, those near it whose dataset is not known."""
        certain = [loader for loader in self.loaders if dataset in loader.datasets]
        if certain:
            return certain
        near = self.users(dataset.module)
        return [loader for loader in self.loaders if not loader.datasets and loader.module in near]

    def users(self, module: Module) -> set[Module]:
        """A file, and those that import it, directly or through others."""
        found: set[Module] = set()
        waiting = [module]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self._importers.get(each, ())
        return found

    @cached_property
    def _importers(self) -> dict[Module, set[Module]]:
        found: dict[Module, set[Module]] = {}
        for module in self.modules:
            for other in self.values.imports(module):
                found.setdefault(other, set()).add(module)
        return found

    def may_work(self, dataset: ClassRead, least: int = 1) -> bool:
        """Whether some loader gives it to workers, or may; a dataset without any loader is for all."""
        loaders = self.loaders_for(dataset)
        return not loaders or any(each.workers is None or each.workers >= least for each in loaders)

    def forks(self, dataset: ClassRead) -> list[LoaderMade] | None:
        """The loaders that give it, or may, to forked workers; [] when none is seen; None for none at all."""
        loaders = self.loaders_for(dataset)
        if not loaders:
            return [] if self.start(dataset.module) in FORKING else None
        return [each for each in loaders if each.may_work and each.start in FORKING] or None

    def ships(self, dataset: ClassRead) -> list[LoaderMade]:
        """The loaders that certainly send it to fresh processes."""
        return [
            each
            for each in self.loaders
            if dataset in each.datasets and each.may_work and each.start in SHIPPING
        ]

    def start(self, module: Module) -> str:
        """The start method that a program with this file sets for all; "default" where it sets none.

        A file that several programs use has one only where all of them set the same.
        """
        if module in self._starts:
            return self._starts[module]
        roots = [each for each in self.users(module) if not self._importers.get(each)]
        methods = {self._starts.get(root, "default") for root in roots}
        return methods.pop() if len(methods) == 1 else "default"

    @cached_property
    def _starts(self) -> dict[Module, str]:
        return {
            module: "unknown" if module.is_conditional(call) else self._method(call.args[0], module)
            for module in self.modules
            for call in module.calls
            if call.args and module.dotted(call.func).rpartition(".")[2] == "set_start_method"
        }

    def _method(self, node: ast.AST, module: Module, *, seen: frozenset[ast.AST] = frozenset()) -> str:
        for value in self.values.of(node, module):
            given = value.node
            if isinstance(given, ast.Constant) and given.value is None:
                return self.start(value.module)
            if isinstance(given, ast.Constant) and given.value in {"fork", "spawn", "forkserver"}:
                return str(given.value)
            # `context = get_context(context)` leads back to itself.
            if isinstance(given, ast.Call) and given not in seen and _is_context(given, value.module):
                method = self._method(given.args[0], value.module, seen=seen | {given})
                if method != "unknown":
                    return method
        return "unknown"

    @cached_property
    def _loader_classes(self) -> frozenset[int]:
        own = (each for each in self.classes if any(base in LOADERS for base in each.bases))
        return frozenset(id(each.node) for each in own)

    def _makes_loader(self, call: ast.Call, module: Module) -> bool:
        name = module.dotted(call.func)
        if name in LOADERS:
            return True
        if name == "DataLoader":  # from torch.utils.data import *
            return not module.bound("DataLoader", call) and "torch.utils.data" in module.imports.get("*", "")
        if not name or not self._loader_classes:
            return False
        own = self.definition(call.func, module)
        return own is not None and id(own.node) in self._loader_classes

    def _loader(self, call: ast.Call, module: Module) -> LoaderMade:
        options, is_open = self._options(call, module)
        dataset = options.get("dataset")
        given = options.get("num_workers")
        workers = None if is_open else 0
        if given is not None:
            workers = self.values.integer(given.node, given.module)
        context = options.get("multiprocessing_context")
        start = self.start(module) if context is None else self._method(context.node or call, context.module)
        return LoaderMade(
            node=call,
            module=module,
            options=options,
            is_open=is_open,
            datasets=tuple(self.classes_of(dataset.node, dataset.module)) if dataset else (),
            workers=workers,
            start="unknown" if is_open and context is None and start == "default" else start,
        )

    def _options(self, call: ast.Call, module: Module) -> tuple[dict[str, Value], bool]:
        is_torch = module.dotted(call.func) in LOADERS or module.dotted(call.func) == "DataLoader"
        is_open = not is_torch or any(isinstance(arg, ast.Starred) for arg in call.args)
        places = PLACES if is_torch else PLACES[:1]
        found = {name: Value(arg, module) for name, arg in zip(places, call.args, strict=False)}
        for keyword in call.keywords:
            if keyword.arg is not None:
                found[keyword.arg] = Value(keyword.value, module)
                continue
            more = self._unpacked(keyword.value, module)
            is_open = is_open or more is None
            found.update(more or {})
        return found, is_open

    def _unpacked(self, node: ast.expr, module: Module) -> dict[str, Value] | None:
        """The options in `**node`; None where they cannot be seen."""
        found: dict[str, Value] = {}
        for value in self.values.of(node, module):
            items = _items(value)
            if items is None:
                return None
            found.update(items)
        if isinstance(node, ast.Name):
            for name, more in _added(node.id, module):
                if name is None:
                    inner = self._unpacked(more, module)
                    if inner is None:
                        return None
                    found.update(inner)
                else:
                    found[name] = Value(more, module)
        return found


_LAST: list[tuple[Source, Program]] = []


def program(source: Source) -> Program:
    """The program of some source; asked by every rule, so the last answer is kept."""
    if not _LAST or _LAST[0][0] is not source:
        _LAST[:] = [(source, Program(source))]
    return _LAST[0][1]


def site(module: Module, node: ast.AST, symbol: str = "") -> Site:
    """The place of a node, for a finding."""
    line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", -1)
    text = module.lines[line - 1] if 0 < line <= len(module.lines) else ""
    # Syntax trees count bytes, and people characters.
    column = offset if text.isascii() else len(text.encode()[: max(0, offset)].decode(errors="ignore"))
    return Site(module.file.path, line, symbol or symbol_of(module, node), column + 1)


def symbol_of(module: Module, node: ast.AST) -> str:
    """The function or class in which a node is: `Images.__getitem__`."""
    names = [
        each.name for each in (node, *module.above(node)) if isinstance(each, (*FUNCTIONS, ast.ClassDef))
    ]
    return ".".join(reversed(names))


def _used(node: ast.Attribute, place: Place) -> Iterator[str]:
    """The methods that a use of `self.part` calls: `self.part.read(…)`, `self.part[…]`, `self.part(…)`."""
    parent = place.module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        yield parent.attr
    elif isinstance(parent, ast.Subscript) and parent.value is node:
        yield "__getitem__"
    elif isinstance(parent, ast.Call) and parent.func is node:
        yield "__call__"


def _kind(dataset: ClassRead) -> str:
    """What a class is by what it inherits: "map", "iterable" or ""."""
    names = [base.rpartition(".")[2] for base in dataset.bases]
    if any(name.endswith("IterableDataset") or name == "IterDataPipe" for name in names):
        return "iterable"
    if any(base.startswith("torchvision.datasets.") for base in dataset.bases):
        return "map"
    return "map" if any(name.endswith("Dataset") for name in names) else ""


def _is_duck(dataset: ClassRead) -> bool:
    return {"__getitem__", "__len__"} <= dataset.methods.keys()


def _is_context(call: ast.Call, module: Module) -> bool:
    """Whether it is `multiprocessing.get_context("spawn")`, in whatever words."""
    return bool(call.args) and module.dotted(call.func).rpartition(".")[2] == "get_context"


def _items(value: Value) -> dict[str, Value] | None:
    node, module = value.node, value.module
    if isinstance(node, ast.Dict):
        if not all(isinstance(key, ast.Constant) for key in node.keys):
            return None
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): Value(item, module) for key, item in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Call) and module.dotted(node.func) == "dict" and not node.args:
        if any(keyword.arg is None for keyword in node.keywords):
            return None
        return {str(keyword.arg): Value(keyword.value, module) for keyword in node.keywords}
    return None


def _added(name: str, module: Module) -> Iterator[tuple[str | None, ast.expr]]:
    """What is put into a dictionary later: `name["key"] = value`, `name.update(more)`."""
    for call in module.calls:
        is_update = isinstance(call.func, ast.Attribute) and call.func.attr == "update" and bool(call.args)
        if is_update and isinstance(call.func, ast.Attribute) and _is_name(call.func.value, name):
            yield None, call.args[0]
    for node in module.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Subscript):
            continue
        if _is_name(target.value, name) and isinstance(target.slice, ast.Constant):
            yield str(target.slice.value), node.value


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
