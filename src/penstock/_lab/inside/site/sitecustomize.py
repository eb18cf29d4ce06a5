"""Begin to observe this Python process, when a plan says so; then make room for the user's own module.

This directory is first on PYTHONPATH in a trial, so `site` imports this file at the start of every Python
process of the examined program. It must be fast, silent and harmless.
"""

# ruff: noqa: PTH100, PTH118, PTH120, SIM105 - pathlib and contextlib would cost every Python process their import

import os
import sys


def _observe() -> None:
    """Load the observer by its place: the program may have another path than we have."""
    if "PENSTOCK_PLAN" not in os.environ:
        return
    import importlib.util

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    if "penstock" not in sys.modules:
        start = os.path.join(package, "__init__.py")
        spec = importlib.util.spec_from_file_location("penstock", start, submodule_search_locations=[package])
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["penstock"] = module
        spec.loader.exec_module(module)
    from penstock._lab.inside import boot

    boot.begin()


def _make_room() -> None:
    """Run the `sitecustomize` that would have been found without us, if there is one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None or os.path.abspath(spec.origin or "") == os.path.abspath(__file__):
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _observe()
except BaseException:  # noqa: BLE001, S110 - whatever is wrong with us is not the program's trouble
    pass
_make_room()
