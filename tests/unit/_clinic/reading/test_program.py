"""What is read from a program: names, values, loaders, datasets, start methods."""

# ruff: noqa: E501 - programs on one line

from __future__ import annotations

import ast
import textwrap

import pytest

from penstock._clinic import source
from penstock._clinic.reading.program import Program, program, site


def read(text, **files):
    """A program of one text, or of several files in one folder."""
    parts = [source.read_text(textwrap.dedent(each), f"/p/{name}.py") for name, each in files.items()]
    first = source.read_text(textwrap.dedent(text), "/p/train.py")
    made = source.Source((*first.files, *(file for part in parts for file in part.files)))
    assert len(made.files) == 1 + len(files)
    return Program(made)


def loader(text, **files):
    (made,) = read(text, **files).loaders
    return made


@pytest.mark.parametrize(
    "text",
    [
        "from torch.utils.data import DataLoader\nDataLoader([])",
        "from torch.utils.data import DataLoader as Feed\nFeed([])",
        "from torch.utils.data import *\nDataLoader([])",
        "import torch\ntorch.utils.data.DataLoader([])",
        "import torch.utils.data as data\ndata.DataLoader([])",
        "from torch.utils import data as d\nd.DataLoader([])",
        "import penstock\npenstock.DataLoader([])",
        "from penstock import DataLoader\nDataLoader([])",
        "from torch_geometric.loader import DataLoader\nDataLoader([])",
        "from torch.utils.data import DataLoader\nclass Mine(DataLoader):\n    pass\nMine([])",
    ],
)
def test_a_loader_is_known_by_any_name(text):
    assert len(read(text).loaders) == 1


@pytest.mark.parametrize(
    "text",
    [
        "DataLoader([])",
        "from tensorflow import DataLoader\nDataLoader([])",
        "def DataLoader(x): pass\nDataLoader([])",
    ],
)
def test_what_is_only_called_so_is_no_loader(text):
    assert read(text).loaders == ()


IMPORT = "from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, random_split\n"


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ("DataLoader([])", 0),
        ("DataLoader([], num_workers=4)", 4),
        ("DataLoader([], 8, True, None, None, 3)", 3),
        ("n = 2\nDataLoader([], num_workers=n)", 2),
        ("n = 0 if DEBUG else 4\nDataLoader([], num_workers=n)", 4),
        ("import os\nDataLoader([], num_workers=os.cpu_count())", 2),
        ("options = {'num_workers': 5}\nDataLoader([], **options)", 5),
        ("options = dict(num_workers=5)\nDataLoader([], **options)", 5),
        ("options = {}\noptions['num_workers'] = 6\nDataLoader([], **options)", 6),
        ("options = {}\nmore = {'num_workers': 7}\noptions.update(more)\nDataLoader([], **options)", 7),
        ("def make(n=3):\n    return DataLoader([], num_workers=n)", 3),
        ("def make(n=0):\n    return DataLoader([], num_workers=n)\nmake(n=9)", 9),
        ("def make(n=0):\n    return DataLoader([], num_workers=n)\nmake(unknown)", None),
        ("def make(**options):\n    return DataLoader([], **options)", None),
        ("def make(n):\n    return DataLoader([], num_workers=n)", None),
        ("p.add_argument('--num-workers', '-j', default=4)\nDataLoader([], num_workers=args.num_workers)", 4),
        ("p.add_argument('-j', dest='jobs', default=2)\nDataLoader([], num_workers=args.jobs)", 2),
        ("p.add_argument('--workers', type=int)\nDataLoader([], num_workers=args.workers)", None),
        ("flags.DEFINE_integer('workers', 4, 'many')\nDataLoader([], num_workers=FLAGS.workers)", 4),
        ("class Config:\n    workers: int = 4\nDataLoader([], num_workers=Config().workers)", None),
        ("class Config:\n    workers: int = 4\nDataLoader([], num_workers=cfg.workers)", 4),
        ("CONFIG = {'workers': 4}\nDataLoader([], num_workers=CONFIG['workers'])", 4),
        ("class M:\n    def __init__(self):\n        self.n = 4\n    def f(self):\n        DataLoader([], num_workers=self.n)", 4),
        ("def make(n=3):\n    n = int(n)\n    DataLoader([], num_workers=n)", 3),
        ("x = x[0]\nDataLoader([], num_workers=x)", None),
        ("a = b\nb = a\nDataLoader([], num_workers=a)", None),
    ],
)  # fmt: skip
def test_the_number_of_workers_is_followed_to_its_source(text, workers):
    assert loader(IMPORT + text).workers == workers


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("DataLoader([])", "default"),
        ("DataLoader([], multiprocessing_context='spawn')", "spawn"),
        ("import torch.multiprocessing as mp\nDataLoader([], multiprocessing_context=mp.get_context('fork'))", "fork"),
        ("DataLoader([], multiprocessing_context=None)", "default"),
        ("DataLoader([], multiprocessing_context=context)", "unknown"),
        ("import multiprocessing\nmultiprocessing.set_start_method('forkserver')\nDataLoader([])", "forkserver"),
        ("import multiprocessing as mp\ndef feed(c='spawn'):\n    c = mp.get_context(c)\n    DataLoader([], multiprocessing_context=c)", "spawn"),
        ("kw = {}\nkw['multiprocessing_context'] = getattr(args, 'context', 'fork')\nDataLoader([], **kw)", "unknown"),
        ("from torch.multiprocessing import set_start_method\nset_start_method('spawn', force=True)\nDataLoader([])", "spawn"),
        ("import multiprocessing as mp\nif WINDOWS:\n    mp.set_start_method('spawn')\nDataLoader([])", "unknown"),
        ("import multiprocessing as mp\nif __name__ == '__main__':\n    mp.set_start_method('spawn')\nDataLoader([])", "spawn"),
    ],
)  # fmt: skip
def test_the_start_method_in_force_is_known(text, start):
    assert loader(IMPORT + text).start == start


def test_the_script_sets_the_start_method_for_the_modules_it_imports():
    script = "import multiprocessing as mp\nimport feeding\nmp.set_start_method('spawn')\n"
    feeding = IMPORT + "DataLoader([])"
    assert loader(script, feeding=feeding).start == "spawn"


def test_a_module_of_two_programs_is_not_bound_by_one_of_them():
    script = "import multiprocessing as mp\nimport feeding\nmp.set_start_method('spawn')\n"
    assert loader(script, feeding=IMPORT + "DataLoader([])", other="import feeding").start == "default"


IMAGES = (
    IMPORT
    + "class Images(Dataset):\n    def __getitem__(self, i): return i\n    def __len__(self): return 1\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "DataLoader(Images())",
        "DataLoader(dataset=Images())",
        "images = Images()\nDataLoader(images)",
        "DataLoader(Subset(Images(), [1]))",
        "train, val = random_split(Images(), [1, 2])\nDataLoader(train)",
        "def make():\n    return Images()\nDataLoader(make())",
        "def make():\n    return Images(), None\na, b = make()\nDataLoader(a)",
        "def feed(data):\n    return DataLoader(data)\nfeed(Images())",
        "class M:\n    def setup(self):\n        self.d = Images()\n    def loader(self):\n        return DataLoader(self.d)",
        "images = Images() if x else Images()\nDataLoader(images)",
    ],
)  # fmt: skip
def test_the_dataset_of_a_loader_is_followed_to_its_class(text):
    assert [each.name for each in loader(IMAGES + text).datasets] == ["Images"]


def test_a_dataset_of_another_file_is_found():
    made = loader(IMPORT + "from images import Images\nDataLoader(Images())", images=IMAGES)
    assert [each.name for each in made.datasets] == ["Images"]


def test_files_that_import_each_other_in_a_circle_are_no_trouble():
    made = read("from other import x\nprint(x)", other="from train import x\nprint(x)")
    assert made.loaders == ()


def test_datasets_are_known_by_what_they_inherit_or_by_who_gets_them():
    made = read(
        IMPORT
        + """
class Map(Dataset):
    def __getitem__(self, i): ...
class Child(Map): ...
class Stream(IterableDataset):
    def __iter__(self): ...
class Duck:
    def __getitem__(self, i): ...
    def __len__(self): ...
class Other:
    def __getitem__(self, i): ...
    def __len__(self): ...
DataLoader(Duck())
"""
    )
    assert [each.name for each in made.map_datasets] == ["Map", "Child", "Duck"]
    assert [each.name for each in made.iterable_datasets] == ["Stream"]


def test_a_class_that_inherits_from_its_own_name_is_no_trouble():
    assert [each.name for each in read("class A(A):\n    pass").classes] == ["A"]


def test_a_program_is_read_once():
    one = source.read_text("x = 1")
    assert program(one) is program(one)
    assert program(one) is not program(source.read_text("x = 1"))


def test_columns_count_characters():
    made = read(IMPORT + "größe = 1; loader = DataLoader([])")
    (found,) = made.loaders
    assert site(found.module, found.node).column == len("größe = 1; loader = ") + 1


def test_a_dataset_that_is_wrapped_again_and_again_is_followed_once():
    layers = "".join(f"d{n + 1} = Images(d{n}, d{n}, d{n}, d{n})\n" for n in range(30))
    made = loader(f"{IMAGES}d0 = Images()\n{layers}DataLoader(d30)")
    assert [each.name for each in made.datasets] == ["Images"]


def test_each_object_is_followed_once_however_many_ways_lead_to_it(monkeypatch):
    wide = "\n".join(f"x{level + 1} = f({', '.join([f'x{level}'] * 20)})" for level in range(3))
    made = read(
        f"from torch.utils.data import DataLoader\nx0 = DataLoader([])\n{wide}\nfor batch in x3: pass"
    )
    (loop,) = [node for node in ast.walk(made.modules[0].file.tree) if isinstance(node, ast.For)]
    asked = []
    plain = made.values.of
    monkeypatch.setattr(made.values, "of", lambda *args: asked.append(args) or plain(*args))

    assert made.loaders_of(loop.iter, made.modules[0]) == list(made.loaders)
    assert len(asked) < 1_000  # of 8,000 ways
