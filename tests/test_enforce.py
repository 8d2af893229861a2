from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.dims import Expr, Relation, parse_expr
from anyshape.lower.enforce import enforce
from anyshape.lower.optimize import optimize
from anyshape.runtimes.onnx_runtime import OnnxRuntime, RuntimeFailure


class Joined(nn.Module):
    """Sizes a, 2*b and c + 1, none of them bound to another."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2, x.unflatten(1, (-1, 2)), y[1:] + 1


@pytest.fixture(scope="module")
def joined(lowered: Callable[..., Any]) -> Any:
    made = lowered(Joined(), (torch.randn(4, 6), torch.randn(9)), shapes={"x": "a, 2*b", "y": "n"})
    c = Expr.of("c")
    contract = dataclasses.replace(
        made.contract,
        dims=(*made.contract.dims[:-1], dataclasses.replace(made.contract.dims[-1], name="c")),
        inputs=(made.contract.inputs[0], dataclasses.replace(made.contract.inputs[1], shape=(c + 1,))),
    )
    return dataclasses.replace(made, contract=contract)


def accepts(model: Any, a: int, b: int, c: int) -> bool:
    feed = {"x": np.ones((a, 2 * b), np.float32), "y": np.ones(c + 1, np.float32)}
    try:
        x, _, y = OnnxRuntime.of_model(model).run(feed)
    except RuntimeFailure:
        return False
    assert (x == 2).all() and (y == 2).all()
    return True


@pytest.mark.parametrize(
    ("left", "op", "right"),
    [
        ("a", "<=", "4"),
        ("2", "<", "b"),
        ("a", "==", "b"),
        ("a", "!=", "c"),
        ("a + b", "<=", "c"),
        ("a*b", "<", "3*c + 1"),
        ("c % 3", "==", "0"),
        ("b // 2", "<=", "1"),
        ("(c - 5) // 2", "<=", "-1"),
        ("a", "<=", "max(b, c)"),
        ("min(a, b)", "<", "c"),
        ("b**2", "<=", "9"),
    ],
)
def test_the_model_runs_exactly_where_the_relation_holds(joined: Any, left: str, op: str, right: str) -> None:
    relation = Relation(parse_expr(left), op, parse_expr(right))
    model = joined.model.clone()
    enforce(model, joined.contract, [relation])
    points = [(a, b, c) for a in (1, 4, 5) for b in (1, 3, 4) for c in (2, 3, 5)]
    seen = {
        accepts(model, *point) == relation.holds(dict(zip("abc", point, strict=True))) for point in points
    }
    assert seen == {True}


def test_several_relations_on_an_optimized_model(joined: Any) -> None:
    model = optimize(joined.model.clone())
    relations = [Relation(Expr.of("a"), "<=", Expr.of(4)), Relation(Expr.of(2), "<=", Expr.of("c"))]
    enforce(model, joined.contract, relations)
    assert accepts(model, 4, 1, 2)
    assert not accepts(model, 5, 1, 2) and not accepts(model, 4, 1, 1)


def test_the_node_says_what_it_requires(joined: Any) -> None:
    model = joined.model.clone()
    enforce(model, joined.contract, [Relation(Expr.of("a"), "<=", Expr.of(4))])
    assert "requires a <= 4" in {node.name for node in model.graph}


def test_nothing_to_enforce_changes_nothing(joined: Any) -> None:
    model = joined.model.clone()
    enforce(model, joined.contract, [])
    assert [node.name for node in model.graph] == [node.name for node in joined.model.graph]


def test_a_dim_that_no_axis_tells(joined: Any) -> None:
    with pytest.raises(LookupError, match="no axis tells the size of nowhere"):
        enforce(joined.model.clone(), joined.contract, [Relation(Expr.of("nowhere"), "<=", Expr.of(4))])


def test_an_output_that_is_the_input_is_checked_too(lowered: Callable[..., Any]) -> None:
    class Same(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    made = lowered(Same(), (torch.randn(4),), shapes={"x": "n"})
    enforce(made.model, made.contract, [Relation(Expr.of("n"), "<=", Expr.of(4))])
    runtime = OnnxRuntime.of_model(made.model)
    assert runtime.run({"x": np.ones(4, np.float32)})[0].shape == (4,)
    with pytest.raises(RuntimeFailure):
        runtime.run({"x": np.ones(5, np.float32)})


class Halved(nn.Module):
    """PyTorch takes 3 rows of 4 as well: 12 numbers in 1 row of 12."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1] // 2, -1)


def test_a_remainder_is_refused_by_the_file_itself() -> None:
    module = Halved()
    made = anyshape.export(module, torch.randn(2, 6, 4), shapes={"x": "b, n, 4"})
    assert str(made.contract).count("n % 2 == 0") == 1
    session = onnxruntime.InferenceSession(made.model_proto.SerializeToString())
    for n in (2, 4, 10):
        x = torch.randn(3, n, 4)
        np.testing.assert_array_equal(session.run(None, {"x": x.numpy()})[0], module(x).numpy())
    assert module(torch.randn(2, 3, 4)).shape == (2, 1, 12)
    with pytest.raises(Exception, match=r"requires n % 2 == 0"):
        session.run(None, {"x": np.ones((2, 3, 4), np.float32)})


class Tokens(nn.Module):
    """One row of x for each cell of a grid whose side is read off the row itself, and one more."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("left", "op", "right"), [("side", "<=", "4"), ("3", "<", "side"), ("isqrt(side + 2)", "==", "2")]
)
def test_a_side_is_read_off_its_square(lowered: Callable[..., Any], left: str, op: str, right: str) -> None:
    relation = Relation(parse_expr(left), op, parse_expr(right))
    made = lowered(Tokens(), torch.randn(10, 2), shapes={"x": "n, 2"})
    (tokens,), side = made.contract.inputs, Expr.of("side")
    shape = ((2 * side - 1) ** 2 + 1, tokens.shape[1])
    contract = dataclasses.replace(made.contract, inputs=(dataclasses.replace(tokens, shape=shape),))
    enforce(made.model, contract, [relation])
    runtime = OnnxRuntime.of_model(made.model)
    for size in range(1, 8):
        feed = {"x": np.ones(((2 * size - 1) ** 2 + 1, 2), np.float32)}
        if relation.holds({"side": size}):
            assert (runtime.run(feed)[0] == 2).all()
        else:
            with pytest.raises(RuntimeFailure):
                runtime.run(feed)
