"""An operator of one's own that stays a node of its own domain, for a runtime that has a kernel for it.

Run as ``python -m examples.custom_node``.
"""

import numpy as np
import torch
from torch import Tensor, nn

import anyshape


@torch.library.custom_op("examples::nearest", mutates_args=())
def nearest(points: Tensor, centres: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The nearest centres of each point, and how far they are."""
    found = torch.cdist(points, centres).topk(count, dim=-1, largest=False)
    return found.indices, found.values


class Model(nn.Module):
    """Points, each as the mean of the centres that are nearest to it."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(16, 3))

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        places, far = nearest(points * 2, self.centres, 3)
        return self.centres[places].mean(1), far.amax(-1)


def with_numpy(points: np.ndarray, centres: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel of the runtime would do: the node's inputs in order, its attributes by name."""
    far = np.sqrt(((points[:, None] - centres[None]) ** 2).sum(-1))
    order = np.argsort(far, axis=-1)[:, :count]
    return order, np.take_along_axis(far, order, -1)


def main() -> None:
    """Export it, and run the file with an implementation."""
    model = Model().eval()
    table = {nearest: "examples.ops::Nearest"}
    export = anyshape.export(model, torch.randn(6, 3), "nearest.onnx", custom_translation_table=table)
    print(*export.contract.notes)
    run = anyshape.load("nearest.onnx", operators={"examples.ops::Nearest": with_numpy})
    points = torch.randn(40, 3)
    with torch.no_grad():
        print(
            "right:",
            all(torch.allclose(a, b, atol=1e-4) for a, b in zip(run(points), model(points), strict=True)),
        )


if __name__ == "__main__":
    main()
