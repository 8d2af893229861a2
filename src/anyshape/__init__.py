"""anyshape: a PyTorch model with inputs of varying size as an ONNX model that is right at every size.

>>> import torch, anyshape
>>> export = anyshape.export(torch.nn.Linear(10, 5), torch.randn(3, 10), "linear.onnx")
>>> run = anyshape.load("linear.onnx")
>>> run(torch.randn(64, 10)).shape
torch.Size([64, 5])
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

__all__ = [
    "AnyshapeError",
    "Contract",
    "Export",
    "Fault",
    "FileError",
    "InputError",
    "InternalError",
    "UsageError",
    "Verdict",
    "explain",
    "export",
    "from_name",
    "load",
]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from anyshape.artifact.load import load
    from anyshape.contract.contract import Contract
    from anyshape.errors import AnyshapeError, Fault, FileError, InputError, InternalError, UsageError
    from anyshape.explain import explain
    from anyshape.export import Export, export
    from anyshape.models.name import from_name
    from anyshape.verify.verdict import Verdict

_HOMES = {
    "AnyshapeError": "errors",
    "Contract": "contract",
    "Export": "export",
    "Fault": "errors",
    "FileError": "errors",
    "InputError": "errors",
    "InternalError": "errors",
    "UsageError": "errors",
    "Verdict": "verify.verdict",
    "explain": "explain",
    "export": "export",
    "from_name": "models.name",
    "load": "artifact.load",
}


class _Package(types.ModuleType):
    """Loads a public name on its first use: ``anyshape --help`` need not wait for PyTorch."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{self.__name__}.{_HOMES[name]}"), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the module anyshape.export must not hide the function anyshape.export.
        if isinstance(value, types.ModuleType) and _HOMES.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _Package
