"""An operator of one's own, written into the file by a translation into ONNX's operators: right at every size.

Run as ``python -m examples.custom_translation``.
"""

import torch
from onnxscript import opset18 as op
from torch import Tensor, nn

import anyshape


@torch.library.custom_op("examples::smooth", mutates_args=())
def smooth(x: Tensor, strength: float) -> Tensor:
    """Each row drawn towards its own mean."""
    return x + (x.mean(-1, keepdim=True) - x) * strength


def smooth_in_onnx(x, strength):
    """The same of ONNX's operators: the tensors of the graph come in, plain numbers come as they are."""
    apart = op.Sub(op.ReduceMean(x, op.Constant(value_ints=[-1]), keepdims=1), x)
    return op.Add(x, op.Mul(apart, op.CastLike(strength, x)))


class Model(nn.Module):
    """A layer, smoothed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(smooth(self.layer(x), 0.25))


def main() -> None:
    """Export it, and run the file at another size."""
    model = Model().eval()
    table = {smooth: smooth_in_onnx}
    export = anyshape.export(model, torch.randn(2, 6, 8), "smooth.onnx", custom_translation_table=table)
    print(export.contract)
    x = torch.randn(5, 31, 8)
    print("right:", torch.allclose(anyshape.load("smooth.onnx")(x), model(x), atol=1e-5))


if __name__ == "__main__":
    main()
