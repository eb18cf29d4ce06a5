"""What needs no torch does not import it: torch takes seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

SICK = "from torch.utils.data import DataLoader\nDataLoader([], num_workers=2)\n"


@pytest.mark.parametrize("arguments", [["lint", "sick.py"], ["explain", "PS115"], ["explain"], ["--help"]])
def test_torch_is_not_imported(arguments, tmp_path):
    (tmp_path / "sick.py").write_text(SICK)
    code = (
        "import sys\nfrom penstock._cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "sys.exit(3 if {'torch', 'numpy', 'rich'} & set(sys.modules) else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, b"")
