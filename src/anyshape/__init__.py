"""anyshape: a PyTorch model with inputs of varying size as an ONNX model that is right at every size.

>>> import torch, anyshape
>>> export = anyshape.export(torch.nn.Linear(10, 5), torch.randn(3, 10), "linear.onnx")
>>> run = anyshape.load("linear.onnx")
>>> run(torch.randn(64, 10)).shape
torch.Size([64, 5])
"""

__all__ = ["AnyshapeError", "Contract", "Export", "Fault", "InputError", "UsageError", "Verdict", "export", "load"]

__version__ = "0.1.0"

from anyshape.contract import Contract
from anyshape.errors import AnyshapeError, Fault, InputError, UsageError
from anyshape.export import Export, export
from anyshape.load import load
from anyshape.verify import Verdict
