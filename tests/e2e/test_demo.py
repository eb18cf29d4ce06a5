"""`penstock demo` as a user calls it: one example really run, examined and cured."""

from __future__ import annotations

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
    assert " doctor PS802 bad-sample" in text
    assert "penstock one clear error, with the sample: TypeError" in text
    assert "An exception in a worker wrong fails bad-sample ok" in text
