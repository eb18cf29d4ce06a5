"""Patches by name: the whole new text, and None where one cannot be sure."""

from __future__ import annotations

import dataclasses
import textwrap

import pytest

from penstock._clinic.finding import Experiment, Finding, Fix, Prescription
from penstock._clinic.patches import PATCHES, diff, make
from penstock._clinic.prescribing import prescribed
from penstock._clinic.source import Source, SourceFile
from penstock._lab.plan import Change
from penstock._lab.record import Site

FILE = "/somewhere/train.py"


def patched(text, patch, mark, **arguments):
    """The text after a patch at the line that holds `mark`."""
    text = textwrap.dedent(text).lstrip("\n")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if mark in row)
    made = make(Fix(patch, Site(FILE, line), arguments), {FILE: text})
    if made is None:
        return None
    assert made[0] == FILE
    return made[1]


def rows(text):
    return [row for row in text.splitlines() if row.strip()]


LOADER = """
loader = DataLoader(data, batch_size=4, num_workers=args.workers)  # ours
"""


def test_an_option_gets_another_value():
    new = patched(LOADER, "set-option", "DataLoader", option="num_workers", old=8, new=2)
    assert new == "loader = DataLoader(data, batch_size=4, num_workers=2)  # ours\n"


def test_an_option_is_added_with_the_commas_of_its_neighbours():
    text = "loader = DataLoader(\n    data,\n    batch_size=4,\n)\n"
    new = patched(text, "set-option", "DataLoader", persistent_workers=True)
    assert new == "loader = DataLoader(\n    data,\n    batch_size=4,\n    persistent_workers=True,\n)\n"
    assert (
        patched("DataLoader(data)\n", "set-option", "Data", num_workers=2)
        == "DataLoader(data, num_workers=2)\n"
    )


def test_an_option_that_may_come_from_a_dictionary_is_left_alone():
    assert patched("DataLoader(data, **options)\n", "set-option", "DataLoader", num_workers=2) is None


def test_a_lambda_becomes_a_function_of_the_module():
    new = patched(
        "loader = DataLoader(data, collate_fn=lambda rows: len(rows))\n", "lambda-to-function", "lambda"
    )
    assert rows(new) == [
        "def collate_fn_function(rows):" if "def collate_fn_function" in new else "def collate_fn(rows):",
        "    return len(rows)",
        "loader = DataLoader(data, collate_fn=" + new.split("collate_fn=")[1].strip(),
    ]


def test_what_a_lambda_closes_over_is_bound():
    new = patched(
        """
        import torch

        def build(scale):
            return Table(lambda row: torch.abs(row) * scale)
        """,
        "lambda-to-function",
        "lambda",
    )
    assert rows(new) == [
        "import torch",
        "import functools",
        "def function(row, *, scale):",
        "    return torch.abs(row) * scale",
        "def build(scale):",
        "    return Table(functools.partial(function, scale=scale))",
    ]


def test_two_lambdas_on_a_line_are_left_alone():
    assert patched("f = Pair(lambda x: x, lambda y: y)\n", "lambda-to-function", "lambda") is None


def test_the_loop_goes_behind_the_guard():
    new = patched("import torch\nx = 1\nfor batch in loader:\n    step(batch)\n", "main-guard", "for batch")
    assert new == (
        'import torch\nx = 1\n\n\nif __name__ == "__main__":\n    for batch in loader:\n        step(batch)\n'
    )


def test_the_choice_of_a_start_method_goes_behind_the_guard_too():
    new = patched("mp.set_start_method('spawn')\nx = 1\nfor b in loader:\n    f(b)\n", "main-guard", "for b")
    assert rows(new)[0] == 'if __name__ == "__main__":'


@pytest.mark.parametrize(
    "text",
    [
        'if __name__ == "__main__":\n    main()\nfor b in loader:\n    f(b)\n',
        "for b in loader:\n    f(b)\ndef f(b):\n    pass\n",
        'for b in loader:\n    f(b, """two\nlines""")\n',
    ],
    ids=["guarded", "definitions follow", "text of several lines"],
)
def test_a_guard_that_would_change_more_is_not_made(text):
    assert patched(text, "main-guard", "for b") is None


CLASS_INSIDE = """
def build(width):
    class Rows(Dataset):
        def __len__(self):
            return {length}

    return Rows()
"""


def test_a_class_moves_to_the_module():
    new = patched(CLASS_INSIDE.format(length=4), "move-class", "class Rows", name="Rows")
    assert rows(new) == [
        "class Rows(Dataset):",
        "    def __len__(self):",
        "        return 4",
        "def build(width):",
        "    return Rows()",
    ]


def test_a_class_that_reads_names_of_its_function_stays():
    assert patched(CLASS_INSIDE.format(length="width"), "move-class", "class Rows", name="Rows") is None


HANDLE = """
import os

class Records(Dataset):
    def __init__(self, path, mode="rb"):
        self.file = open(path, mode=mode)

    def __getitem__(self, i):
        return self.file.read(i)
"""


def test_a_handle_is_opened_by_each_process():
    new = patched(HANDLE, "lazy-open", "class Records", path="dataset.file")
    assert new == textwrap.dedent("""
        import os

        class Records(Dataset):
            def __init__(self, path, mode="rb"):
                self._file_mode = mode
                self._file_path = path
                self._file = self._file_owner = None

            @property
            def file(self):
                if self._file_owner != os.getpid():  # each process opens its own
                    self._file, self._file_owner = open(self._file_path, mode=self._file_mode), os.getpid()
                return self._file

            def __getstate__(self):
                return {**self.__dict__, "_file": None, "_file_owner": None}

            def __getitem__(self, i):
                return self.file.read(i)
    """).lstrip("\n")


def test_a_handle_that_was_opened_elsewhere_is_left_alone():
    text = HANDLE.replace("open(path, mode=mode)", "path")
    assert patched(text, "lazy-open", "class Records", path="dataset.file") is None


def test_a_handle_made_from_local_names_is_left_alone():
    text = HANDLE.replace("self.file = open(path", "name = path + '.bin'\n        self.file = open(name")
    assert patched(text, "lazy-open", "class Records", path="dataset.file") is None


@pytest.mark.parametrize(
    ("stored", "copied"),
    [
        ("torch.zeros(4, 2)", "self.rows[i].clone()"),
        ("np.zeros((4, 2))", "self.rows[i].copy()"),
        ("[[1], [2]]", "copy.deepcopy(self.rows[i])"),
    ],
)
def test_a_stored_sample_is_copied_as_its_kind_is(stored, copied):
    text = f"""
    class Rows(Dataset):
        def __init__(self):
            self.rows = {stored}

        def __getitem__(self, i):
            row = self.rows[i]
            row += self.shift[i]
            return row
    """
    new = patched(text, "clone-sample", "class Rows")
    assert f"row = {copied}" in new
    assert "row += self.shift[i]\n" in new
    assert ("import copy" in new) == ("deepcopy" in copied)


def test_what_is_known_to_change_is_copied_before_it_is_handed_on_and_nothing_else_is():
    text = """
    class Rows(Dataset):
        def __init__(self):
            self.rows = torch.zeros(4, 2)

        def __getitem__(self, i):
            return {"row": self.transform(self.rows[i]), "size": len(self.rows[i]), "label": self.labels[i]}
    """
    new = patched(text, "clone-sample", "class Rows", attribute="rows")
    assert (
        '"row": self.transform(self.rows[i].clone()), "size": len(self.rows[i]), "label": self.labels[i]'
        in new
    )


@pytest.mark.parametrize(
    ("body", "new_body"),
    [
        ("for x in self.items:\n    yield x", "for x in itertools.islice(self.items, first, None, step):"),
        ("return iter(self.items)", "return itertools.islice(self.items, first, None, step)"),
    ],
)
def test_a_stream_is_divided(body, new_body):
    text = "class Stream(IterableDataset):\n    def __iter__(self):\n" + textwrap.indent(body, " " * 8) + "\n"
    new = patched(text, "shard", "class Stream")
    assert new_body in new
    assert "first, step = (info.id, info.num_workers) if info is not None else (0, 1)" in new
    assert "from torch.utils.data import get_worker_info" in new


def test_a_stream_of_two_loops_is_left_alone():
    text = "class S(IterableDataset):\n    def __iter__(self):\n        for a in x:\n            yield a\n"
    assert patched(text + "        for b in y:\n            yield b\n", "shard", "class S") is None


@pytest.mark.parametrize(
    ("made", "again"),
    [
        ("np.random.default_rng(0)", "np.random.default_rng(info.seed)"),
        ("np.random.RandomState(3)", "np.random.RandomState(info.seed % 2**32)"),
        ("random.Random(1)", "random.Random(info.seed)"),
        ("torch.Generator().manual_seed(5)", "torch.Generator().manual_seed(info.seed)"),
    ],
)
def test_a_generator_is_made_anew_in_each_worker(made, again):
    text = f"""
    class Noisy(Dataset):
        def __init__(self):
            self.rng = {made}

    loader = DataLoader(Noisy(), num_workers=2)
    """
    new = patched(text, "reseed-in-worker", "DataLoader(", path="dataset.rng")
    assert f"    info.dataset.rng = {again}\n" in new
    assert "loader = DataLoader(Noisy(), num_workers=2, worker_init_fn=seed_worker)" in new


def test_a_loader_with_a_function_of_its_own_keeps_it():
    text = "class N(Dataset):\n    def __init__(self):\n        self.rng = random.Random(1)\n"
    text += "loader = DataLoader(N(), num_workers=2, worker_init_fn=mine)\n"
    assert patched(text, "reseed-in-worker", "DataLoader(", path="dataset.rng") is None


def test_a_lock_is_left_out():
    text = "def f(self, i):\n    # guarded\n    with self.lock:\n        x = read(i)\n    return x\n"
    new = patched(text, "remove-lock", "with self.lock", path="dataset.lock")
    assert new == "def f(self, i):\n    # guarded\n    x = read(i)\n    return x\n"


def test_an_iterator_is_made_once_before_the_loop():
    text = (
        "def main():\n    for step in range(9):\n        batch = next(iter(loader))\n        train(batch)\n"
    )
    new = patched(text, "hoist-iterator", "for step", loader="loader")
    assert rows(new)[-4:] == [
        "    batches = endless(loader)",
        "    for step in range(9):",
        "        batch = next(batches)",
        "        train(batch)",
    ]


def test_a_read_gets_a_time_out():
    text = "def load(u):\n    return requests.get(u).content\n"
    assert "requests.get(u, timeout=30).content" in patched(text, "socket-timeout", "requests.get")
    assert (
        patched("def load(u):\n    return requests.get(u, timeout=1)\n", "socket-timeout", "requests") is None
    )


def test_threads_are_set_to_one():
    text = "def item(i):\n    torch.set_num_threads(4)\n    return work(i)\n"
    assert "torch.set_num_threads(1)" in patched(text, "one-thread", "work(i)")


@pytest.mark.parametrize("name", sorted(PATCHES))
@pytest.mark.parametrize("text", ["", "x = (\n", "pass\n", "lambda: 0\n", "class A:\n    pass\n"])
def test_a_place_that_is_not_as_expected_is_left_alone(name, text):
    fix = Fix(name, Site(FILE, 1), {"path": "dataset.x", "name": "B"})
    can_be = (name, text) in {("lambda-to-function", "lambda: 0\n"), ("main-guard", "pass\n")}
    assert (make(fix, {FILE: text}) is not None) == (can_be or (name, text) == ("main-guard", "lambda: 0\n"))


def test_a_fix_without_patch_or_file_has_none():
    assert make(Fix("pack-list", Site(FILE, 1)), {FILE: "x = 1\n"}) is None
    assert make(Fix("set-option"), {FILE: "x = 1\n"}) is None
    assert make(Fix("set-option", Site("other.py", 1)), {FILE: "x = 1\n"}) is None


def test_a_site_may_name_the_end_of_a_path():
    assert make(Fix("set-option", Site("train.py", 1), {"num_workers": 0}), {FILE: "DataLoader(d)\n"}) == (
        FILE,
        "DataLoader(d, num_workers=0)\n",
    )


def test_a_diff_says_where_a_file_has_no_last_newline():
    assert diff("a.py", "x = 1", "x = 2\n") == (
        "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x = 1\n\\ No newline at end of file\n+x = 2\n"
    )


def finding(fix, **options):
    gone = Experiment("another", Change(settings={"num_workers": 0}))
    return Finding(
        "PS102",
        "missing-main-guard",
        "error",
        "x",
        Prescription("a", "b", fix=fix),
        experiments=(gone,),
        **options,
    )


SOURCE = Source((SourceFile(FILE, "x = 1\nfor b in loader:\n    f(b)\n", None),))


def test_a_prescription_gets_its_patch_and_the_trial_of_it():
    done = prescribed(finding(Fix("main-guard", Site(FILE, 2))), SOURCE)
    assert done.prescription.patch.startswith(f"--- {FILE}\n+++ {FILE}\n@@ -1,3 +1,6 @@\n")
    assert list(done.remedy.change.patched) == [FILE]


def test_a_patch_is_tried_in_the_frame_in_which_the_ill_shows():
    frame = Experiment(
        "t", Change(mends=("copy-samples",)), base=Change(settings={"num_workers": 0}), epochs=2
    )
    ill = dataclasses.replace(finding(Fix("main-guard", Site(FILE, 2))), experiments=(frame,))
    remedy = prescribed(ill, SOURCE).remedy
    assert (remedy.base, remedy.epochs, remedy.drive) == (frame.base, 2, frame.drive)
    assert not remedy.change.mends


def test_an_option_is_tried_without_its_patch():
    source = Source((SourceFile(FILE, "DataLoader(d)\n", None),))
    done = prescribed(finding(Fix("set-option", Site(FILE, 1), {"num_workers": 0})), source)
    assert done.prescription.patch is not None
    assert done.remedy is None


def test_without_a_patch_a_finding_stays_as_it_is():
    plain = finding(None)
    assert prescribed(plain, SOURCE) is plain
    assert prescribed(finding(Fix("pack-list", Site(FILE, 1))), SOURCE).prescription.patch is None
