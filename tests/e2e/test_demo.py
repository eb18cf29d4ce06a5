"""`penstock demo` as a user calls it: one example really run, examined and cured."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.timeout(170)
def test_an_example_is_really_run_with_torch_at_the_doctors_and_with_ours():
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "demo", "--only", "5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "torch as printed: failed: TypeError: default_collate: batch must contain tensors" in text
    assert "the claim wrong: the loader stops at once" in text
    assert re.search(r" doctor (PS\d{3}|healthy|could not run)", text)  # what it says is tested elsewhere
    assert "penstock one clear error, with the sample: TypeError" in text
    assert re.search(r"An exception in a worker wrong fails [a-z-]+ ok", text)
