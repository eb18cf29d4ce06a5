"""`penstock run` and `penstock.install()`: our class in torch's place, and nothing else changed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

class Own(DataLoader):
    pass

if __name__ == "__main__":
    print(sys.argv[1:], __file__, sys.path[0], DataLoader.__module__)
    for kind in DataLoader, Own:
        loader = kind(TensorDataset(torch.arange(4)), batch_size=2, num_workers=1)
        options = [getattr(loader, name, None) for name in ("cure", "on_error")]
        print([each.__module__ for each in kind.__mro__[:2]], *options, [b[0].tolist() for b in loader])
    {end}
"""


def call(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, **options
    )


def run(tmp_path, *options, end="", arguments=(), env=None, python=False):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.replace("{end}", end))
    before = [] if python else ["-m", "penstock", "run", *options]
    return call(*before, str(script), *arguments, cwd=tmp_path, env={**os.environ, **(env or {})})


def test_an_unmodified_script_gets_our_loader_cured(tmp_path):
    done = run(tmp_path, arguments=["--lr", "0.1", "-h"])
    script = tmp_path / "train.py"
    assert done.stdout.splitlines() == [
        f"['--lr', '0.1', '-h'] {script} {tmp_path} penstock",
        "['penstock', 'torch.utils.data.dataloader'] True raise [[0, 1], [2, 3]]",
        "['__main__', 'penstock'] True raise [[0, 1], [2, 3]]",
    ], done
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_library_that_only_asks_for_torch_does_not_stand_in_the_way(tmp_path):
    script = tmp_path / "train.py"
    asks = "import importlib.util\nassert importlib.util.find_spec('torch') is not None\n"
    script.write_text(asks + PROGRAM.replace("{end}", ""))
    done = call("-m", "penstock", "run", str(script), cwd=tmp_path)
    assert "['penstock', 'torch.utils.data.dataloader']" in done.stdout, done


def test_options_become_the_loaders_defaults(tmp_path):
    done = run(tmp_path, "--no-cure", "--on-error", "skip")
    assert " False skip [[0, 1], [2, 3]]" in done.stdout


@pytest.mark.parametrize("end", ["raise ValueError('boom')", "sys.exit(7)", "sys.exit('words')"])
def test_tracebacks_and_exit_status_are_those_of_plain_python(tmp_path, end):
    ours, plain = run(tmp_path, end=end), run(tmp_path, end=end, python=True)
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)
    assert ours.returncode != 0


def test_a_module_is_run_by_name(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text(PROGRAM.replace("{end}", ""))
    done = call("-m", "penstock", "run", "-m", "package.train", "--", "x", cwd=tmp_path)
    assert done.stdout.startswith("['x'] "), done
    assert "[[0, 1], [2, 3]]" in done.stdout


def test_the_users_own_sitecustomize_still_runs(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("print('mine')\n")
    done = run(tmp_path, env={"PYTHONPATH": str(folder)})
    assert done.stdout.startswith("mine\n"), done
    assert "[[0, 1], [2, 3]]" in done.stdout


def test_a_script_that_is_not_there_is_refused_with_the_nearest(tmp_path):
    (tmp_path / "train.py").write_text("")
    done = call("-m", "penstock", "run", "trian.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no file 'trian.py'. Did you mean 'train.py'?" in done.stderr


INSIDE = """
from torch.utils.data import DataLoader
import torch.utils.data as data
import penstock
stock = DataLoader
penstock.install(on_error="skip")
penstock.install()
assert DataLoader is penstock.DataLoader is data.DataLoader is data.dataloader.DataLoader
assert DataLoader([1]).on_error == "skip"
try:
    penstock.install(on_eror="skip")
except TypeError as error:
    print(error)
from penstock._install import uninstall
uninstall()
assert data.DataLoader is stock is data.dataloader.DataLoader
assert penstock.DataLoader([1]).on_error == "raise"
"""


def test_install_from_inside_reaches_names_that_were_imported_before():
    done = call("-c", INSIDE)
    assert done.stdout == "install() got options that penstock.DataLoader does not have: on_eror\n", done
    assert done.returncode == 0
