"""A graph network: any number of nodes, and any number of edges between them.

anyshape export examples/graph.py:build -o graph.onnx
"""

import torch
from torch import Tensor, nn

import anyshape


class Messages(nn.Module):
    """Each node gets the mean of what its neighbours send."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.send, self.keep = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        start, end = edges
        sent = self.send(nodes)[start]
        total = torch.zeros(nodes.shape[0], sent.shape[1]).index_add(0, end, sent)
        count = torch.zeros(nodes.shape[0]).index_add(0, end, torch.ones(edges.shape[1]))
        return self.keep(nodes) + total / count.clamp(min=1).unsqueeze(1)


class Graph(nn.Module):
    """Two rounds of messages, then a score for each node."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Messages(6, 16), Messages(16, 3)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        return self.second(self.first(nodes, edges).relu(), edges)


def build() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The model, seven nodes, and twelve edges from one node to another."""
    torch.manual_seed(0)
    return Graph(), (torch.randn(7, 6), torch.randint(0, 7, (2, 12)))


def main() -> None:
    model, args = build()
    print(anyshape.export(model, args, "graph.onnx").contract)
    nodes, edges = torch.randn(30, 6), torch.randint(0, 30, (2, 100))
    scores = anyshape.load("graph.onnx")(nodes, edges)
    with torch.no_grad():
        expected = model(nodes, edges)
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-4)
    print("right at 30 nodes, 100 edges")


if __name__ == "__main__":
    main()
