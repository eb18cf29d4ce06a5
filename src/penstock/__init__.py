"""Feed a PyTorch training loop: a DataLoader that neither freezes, dies nor starves the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock._engine.policy import ErrorPolicy
    from penstock._install import install
    from penstock._loader import DataLoader
    from penstock.doctor import diagnose

__all__ = ["DataLoader", "ErrorPolicy", "__version__", "diagnose", "install"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: `penstock --help` and `penstock.errors` must not pay for it.
    if name == "DataLoader":
        from penstock._loader import DataLoader

        return DataLoader
    if name == "ErrorPolicy":
        from penstock._engine.policy import ErrorPolicy

        return ErrorPolicy
    if name == "diagnose":
        from penstock.doctor import diagnose

        return diagnose
    if name == "install":
        from penstock._install import install

        return install
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
