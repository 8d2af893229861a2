"""Named dims: exact expressions, what is true of them at all sizes, reading, solving, fitting, choosing sizes.

Pure Python: nothing here knows torch or ONNX.
"""

from __future__ import annotations

__all__ = [
    "Expr",
    "InputText",
    "Mismatch",
    "Range",
    "Real",
    "Relation",
    "Space",
    "bind",
    "bounds",
    "ceildiv",
    "choose",
    "equal",
    "fit",
    "fit_real",
    "generic",
    "isqrt",
    "less",
    "less_equal",
    "log2",
    "maximum",
    "minimum",
    "not_equal",
    "parse_expr",
    "parse_input",
    "parse_range",
    "parse_shape",
    "solvable",
]

from anyshape.dims.bounds import Range, Relation, bounds, equal, less, less_equal, not_equal
from anyshape.dims.expr import Expr, ceildiv, isqrt, log2, maximum, minimum
from anyshape.dims.fit import Real, fit, fit_real
from anyshape.dims.parse import InputText, parse_expr, parse_input, parse_range, parse_shape
from anyshape.dims.sample import Space, choose, generic
from anyshape.dims.solve import Mismatch, bind, solvable
