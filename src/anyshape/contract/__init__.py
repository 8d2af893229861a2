"""contract: what a file promises: names, ranges and relations of sizes, declared and found together."""

from anyshape.contract.contract import Contract, Dim, Tensor

__all__ = ["Contract", "Dim", "Tensor"]
