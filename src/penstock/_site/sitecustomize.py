"""First on the path of programs that `penstock run` starts: puts our loader in torch's place.

Python imports it before the program, in every process. The user's own sitecustomize follows.
"""

import importlib.machinery
import json
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as little as can be, at every start
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100


def _install() -> None:
    options = os.environ.get("PENSTOCK_INSTALL")
    if options:
        from penstock._install import when_torch_comes

        when_torch_comes(json.loads(options))


def _follow() -> None:
    """Run the sitecustomize that we stand in front of, if there is one."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(sys.modules[__name__])


_install()
_follow()
