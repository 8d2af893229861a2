from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnxscript.onnx_opset import opset18
from torch import Tensor, nn

from anyshape.capture import Split
from anyshape.capture.tape import Fitter, Step, Tape, Value, expanded, functional, merged, record
from anyshape.capture.tape.constants import index_tensor, sizes_tensor
from anyshape.capture.tape.steps import number_of
from anyshape.contract.contract import Contract, Dim
from anyshape.contract.contract import Tensor as TensorOf
from anyshape.dims import Expr, Range, Real, Relation, isqrt, log2, maximum, minimum, parse_expr, parse_shape
from anyshape.errors import LowerFault, SourceLine
from anyshape.lower.operators import TRANSLATIONS
from anyshape.lower.sizes import axis_sources
from anyshape.lower.translate import translate
from anyshape.runtimes.onnx_runtime import OnnxRuntime, to_numpy

aten = torch.ops.aten
Lined = Callable[..., Any]
N, B = Expr.of("n"), Expr.of("b")


def contract_of(*texts: str) -> Contract:
    shapes = [parse_shape(text) for text in texts]
    names = sorted({name for shape in shapes for size in shape for name in size.names})
    return Contract(
        tuple(Dim(name, Range(0), 3) for name in names),
        tuple(TensorOf(f"x{k}", "float32", shape) for k, shape in enumerate(shapes)),
    )


def runner(
    body: Tape | Split, *texts: str, translations: Mapping[Any, Any] = TRANSLATIONS
) -> Callable[..., list[Any]]:
    """The body as a model that takes tensors in order."""
    model = translate(body, contract_of(*texts), translations)
    for number, output in enumerate(model.graph.outputs):
        output.name = f"y{number}"
    runtime = OnnxRuntime.of_model(model)

    def run(*tensors: Tensor) -> list[Any]:
        return runtime.run({f"input_{k}": to_numpy(tensor) for k, tensor in enumerate(tensors)})

    return run


def of_entries(entries: Sequence[Any], dtype: torch.dtype, *texts: str) -> Callable[..., Any]:
    """A model that returns the entries at the sizes of its inputs."""
    inputs = [
        Value(tuple(s if s.constant is None else s.constant for s in parse_shape(text)), torch.float32)
        for text in texts
    ]
    made = Value((len(entries),), dtype)
    step = Step(sizes_tensor, (list(entries), [len(entries)], dtype), {}, (made,))
    return runner(Tape(inputs, {}, [step], [made]), *texts)


# --- Sizes ----------------------------------------------------------------------------------------------

EXPRESSIONS = [
    N,
    N * 3 - 2,
    N * N * B + 1,
    N // 3,
    (N - 5) // 4,
    (5 - N) // 4,
    -N % 7,
    N % 3,
    minimum(N, 9) + maximum(N - 4, 2),
    isqrt(N),
    isqrt(N * N),
    isqrt(N * N - 1),
    log2(N),
    (N + B) // (B + 1),
    N % B,
    Expr.of(0) * N + 4,
]


def test_whole_numbers_are_those_of_python() -> None:
    run = of_entries(EXPRESSIONS, torch.int64, "b, n")
    for b, n in ((2, 1), (3, 7), (1, 8), (5, 63), (5, 64), (7, 65), (2, 1000)):
        expected = [size.evaluate({"b": b, "n": n}) for size in EXPRESSIONS]
        assert run(torch.zeros(b, n))[0].tolist() == expected, (b, n)


def test_roots_and_logarithms_are_exact_up_to_a_million() -> None:
    entries = [isqrt(N), log2(N)]
    run = of_entries(entries, torch.int64, "n")
    for n in (*range(1, 70), 999**2 - 1, 999**2, 2**16 - 1, 2**16, 2**20 - 1, 2**20):
        assert run(torch.empty(n))[0].tolist() == [size.evaluate({"n": n}) for size in entries], n


def test_real_numbers_are_those_of_python() -> None:
    entries = [
        Real("ratio", Expr.of(1), N),
        Real("ratio", N - 1, B, factor=0.3),
        Real("root", Expr.of(1), N),
        Real("root", N, B, -2.0),
        Real("log", N, Expr.of(2)),
        2.5,
    ]
    run = of_entries(entries, torch.float32, "b, n")
    for b, n in ((1, 1), (3, 7), (5, 640)):
        expected = [item.evaluate({"b": b, "n": n}) if isinstance(item, Real) else item for item in entries]
        np.testing.assert_allclose(run(torch.zeros(b, n))[0], expected, rtol=1e-6)


@pytest.mark.parametrize("text", ["n", "4*n", "n + 3", "2*n - 1", "n*n", "(n + 1)**2", "n*n + 1"])
def test_a_dim_is_read_off_the_axis_that_tells_it(text: str) -> None:
    run = of_entries([N], torch.int64, text)
    for n in (1, 2, 3, 10, 31):
        assert run(torch.zeros(parse_expr(text).evaluate({"n": n})))[0].tolist() == [n]


def test_the_most_direct_axis_is_read() -> None:
    inputs = [ir.Value(name=name) for name in "abc"]
    found = axis_sources(contract_of("4*n", "n*m, n", "m + n, 2*m"), inputs)
    assert found["n"] == (inputs[1], 1, N)
    assert found["m"][:2] == (inputs[2], 1)


def test_a_dim_that_no_axis_tells_is_a_fault() -> None:
    with pytest.raises(LowerFault, match="LookupError: no axis tells the size of k"):
        of_entries([Expr.of("k")], torch.int64, "n")


def test_a_size_is_computed_once() -> None:
    made = [Value((3,), torch.int64) for _ in range(2)]
    steps = [Step(sizes_tensor, ([N // 2, N % 2, N], [3], torch.int64), {}, (value,)) for value in made]
    model = translate(Tape([Value((N,), torch.float32)], {}, steps, made), contract_of("n"), TRANSLATIONS)
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("Shape") == 1 and kinds.count("Div") == 1


def test_a_number_that_was_read_out_of_a_tensor_is_a_size() -> None:
    x, number, made = Value((N,), torch.float32), Value((), torch.int64), Value((1,), torch.int64)
    largest, place = Value((), torch.float32), Value((), torch.int64)
    steps = [
        Step(aten.max.default, (x,), {}, (largest,)),
        Step(aten._to_copy.default, (largest,), {"dtype": torch.int64}, (place,)),
        Step(number_of, (place, "_data_u0"), {}, (number,)),
        Step(sizes_tensor, ([Expr.of("_data_u0") * 2 + 1], [1], torch.int64), {}, (made,)),
    ]
    run = runner(Tape([x], {}, steps, [made]), "n")
    assert run(torch.tensor([3.0, 8.0, 5.0]))[0].tolist() == [17]


# --- Tensors of indices ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "dtype", "expected"),
    [
        (N - Expr.of("_i0") - 1, torch.int64, lambda n, i, j: n - i - 1),
        (Expr.of("_i0") * N + Expr.of("_i1"), torch.float32, lambda n, i, j: i * n + j),
        (Real("ratio", Expr.of("_i1"), N), torch.float32, lambda n, i, j: j / n),
        ((Expr.of("_i1") + 1, Expr.of("_i0")), torch.bool, lambda n, i, j: j + 1 <= i),
    ],
)
def test_entries_follow_their_indices(entry: Any, dtype: torch.dtype, expected: Any) -> None:
    made = Value((N, N + 1), dtype)
    step = Step(index_tensor, (entry, [N, N + 1], dtype), {}, (made,))
    run = runner(Tape([Value((N,), torch.float32)], {}, [step], [made]), "n")
    for n in (1, 2, 5):
        (got,) = run(torch.zeros(n))
        np.testing.assert_allclose(got, [[expected(n, i, j) for j in range(n + 1)] for i in range(n)])


# --- Promotion ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.arange(3),
        lambda x: torch.arange(3) * 0.5 + x,
        lambda x: x.double() + x,
        lambda x: (x > 0) + torch.arange(3),
        lambda x: (x > 0).sum(0) * (x > 0),
        lambda x: torch.arange(3) < x,
        lambda x: torch.arange(3) <= 1.5,
        lambda x: (torch.arange(3) == x.double()) | (x != torch.tensor(1)),
        lambda x: torch.cat([x, torch.ones(1, 3, dtype=torch.int64), x.double()]),
        lambda x: torch.where(x > 0, x, torch.arange(3)),
        lambda x: torch.where(x > 0, 1, 0.5) + x.masked_fill(x > 0, 2),
        lambda x: (x > 0).cumsum(1).prod(1, dtype=torch.float32),
        lambda x: (x > 0).float().mean(0, dtype=torch.float64),
        lambda x: torch.arange(3) / 2 + torch.arange(3) // 2,
        lambda x: torch.pow(2, x) + x.sign().to(torch.int32),
        lambda x: torch.clamp(torch.arange(3) - 1, min=0) * x,
    ],
)
def test_types_are_promoted_as_pytorch_does(function: Any) -> None:
    x = torch.tensor([[-1.0, 0.0, 2.0], [1.0, 3.0, 1.5]])
    tape = record(lambda x: [function(x)], [x], {})
    run = runner(expanded(functional(tape).used_only(), TRANSLATIONS).used_only(), "2, 3")
    (got,), expected = run(x), function(x)
    assert got.dtype == to_numpy(expected).dtype
    np.testing.assert_allclose(got, to_numpy(expected), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_size_among_tensors_takes_their_type(dtype: torch.dtype) -> None:
    x, made = Value((N,), dtype), Value((N,), dtype)
    run = runner(Tape([x], {}, [Step(aten.mul.Tensor, (x, N), {}, (made,))], [made]), "n")
    (got,) = run(torch.arange(4).to(dtype))
    assert got.tolist() == [0, 4, 8, 12] and got.dtype == to_numpy(torch.empty(0, dtype=dtype)).dtype


# --- Loops and branches ---------------------------------------------------------------------------------

ROWS = [{"b": b, "n": n} for b, n in ((3, 7), (4, 7), (3, 8), (8, 7), (3, 14), (6, 11), (2, 5))]


def states(x: Tensor) -> tuple[Tensor, Tensor]:
    state, made = x[:, 0] * 0, []
    for item in range(x.shape[1]):
        state = state * 0.5 + x[:, item]
        made.append(state)
    return torch.stack(made, 1), state


def outer_state(x: Tensor) -> Tensor:
    scale, state = x.mean(1), torch.zeros(x.shape[0])
    for item in reversed(range(x.shape[1])):
        state = state * scale + x[:, item] * item
    return state * x.shape[1]


@pytest.mark.parametrize("function", [states, outer_state])
def test_a_loop_is_right_at_any_length(function: Any, lined: Lined) -> None:
    made = lined(function, "b n", *ROWS)
    run = runner(made.merged(), "b, n")
    for b, n in ((2, 1), (1, 2), (3, 9), (1, 30)):
        x = torch.randn(b, n)
        for got, expected in zip(run(x), made.outputs([x]), strict=True):
            np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


def side(function: Any, weight: Tensor) -> Tape:
    """A tape of one side, over ``[n, 3]``, with a weight that both sides share."""
    rows = [{"n": n} for n in (5, 7, 11)]
    tapes = [
        record(lambda x: [function(x)], [torch.randn(row["n"], 3)], {id(weight): "weight"}) for row in rows
    ]
    return merged(tapes, Fitter(rows, ("n",)), [(N, 3)])


@pytest.mark.parametrize(
    ("relation", "text"),
    [
        (Relation(N, "<=", Expr.of(4)), "n <= 4"),
        (Relation(N % 2, "==", Expr.of(1)), "n % 2 == 1"),
        (Relation(N, "!=", Expr.of(3)), "n != 3"),
    ],
)
def test_a_condition_chooses_a_side(relation: Relation, text: str) -> None:
    weight = torch.randn(3, 4)
    then, otherwise, other = (
        (lambda x: x @ weight),
        (lambda x: (x @ weight).sin()),
        (lambda x: x @ weight * 2),
    )
    inner = Split(Relation(N, "<=", Expr.of(9)), None, side(otherwise, weight), side(other, weight))
    body = Split(relation, SourceLine("net.py", 3), side(then, weight), inner)
    run = runner(body, "n, 3")
    for n in (1, 2, 3, 4, 5, 9, 10):
        x = torch.randn(n, 3)
        taken = then if relation.holds({"n": n}) else otherwise if n <= 9 else other
        np.testing.assert_allclose(run(x)[0], taken(x).numpy(), rtol=1e-5, atol=1e-6, err_msg=text)
    model = translate(body, contract_of("n, 3"), TRANSLATIONS)
    assert list(model.graph.initializers) == ["weight"]


def test_names_are_unique_also_within_loops_and_sides(lined: Lined) -> None:
    loop = lined(states, "b n", *ROWS).merged()
    model = translate(
        Split(Relation(N, "<=", Expr.of(4)), None, loop, loop), contract_of("b, n"), TRANSLATIONS
    )
    names = [output.name for node in model.graph.all_nodes() for output in node.outputs]
    assert len(set(names)) == len(names) and all(names)
    nodes = [node.name for node in model.graph.all_nodes()]
    assert len(set(nodes)) == len(nodes) and all(nodes)


def test_weights_keep_their_names() -> None:
    layer = nn.Linear(3, 2)
    names = {id(tensor): name for name, tensor in layer.named_parameters()}
    rows = [{"n": n} for n in (5, 7, 11)]
    tapes = [record(lambda x: [layer(x) + torch.ones(2)], [torch.randn(row["n"], 3)], names) for row in rows]
    tape = merged(tapes, Fitter(rows, ("n",)), [(N, 3)])
    model = translate(tape, contract_of("n, 3"), TRANSLATIONS)
    assert {"weight", "bias"} <= set(model.graph.initializers)
    assert [value.name for value in model.graph.inputs] == ["input_0"]


def test_a_list_of_results_is_taken_apart(lined: Lined) -> None:
    made = lined(
        lambda x: torch.split(x, 2, 0)[1].sin() + x.chunk(2, 0)[0], "4 n", {"n": 5}, {"n": 7}, {"n": 11}
    )
    run = runner(made.merged(), "4, n")
    x = torch.randn(4, 3)
    np.testing.assert_allclose(run(x)[0], made.outputs([x])[0].numpy(), rtol=1e-5)


# --- What has no ONNX form ------------------------------------------------------------------------------


def unary(target: Any, where: SourceLine | None = None) -> Tape:
    x, made = Value((N,), torch.float32), Value((N,), torch.float32)
    return Tape([x], {}, [Step(target, (x,), {}, (made,), where)], [made])


def test_an_operator_without_a_translation_is_a_fault() -> None:
    where = SourceLine("net.py", 3, "torch.special.bessel_j0(x)")
    with pytest.raises(LowerFault) as caught:
        runner(unary(aten.special_bessel_j0.default, where), "n")
    assert caught.value.what == "ONNX has no translation for the operator aten::special_bessel_j0"
    assert caught.value.where == where
    assert caught.value.hint == (
        "Give one with custom_translation_table={torch.ops.aten.special_bessel_j0.default: function}, keep it as a "
        "node that your runtime implements with {torch.ops.aten.special_bessel_j0.default: "
        '"my::special_bessel_j0"}, or write the line without it.'
    )


def test_a_translation_that_fails_is_a_fault_with_the_cause() -> None:
    def fails(x: Any) -> Any:
        try:
            raise ValueError("inside")
        except ValueError as error:
            raise RuntimeError("outside") from error

    where = SourceLine("net.py", 3, "x.sin()")
    with pytest.raises(LowerFault) as caught:
        runner(unary(aten.sin.default, where), "n", translations={aten.sin.default: fails})
    assert caught.value.what == "no ONNX form of aten.sin.default could be made: ValueError: inside"
    assert caught.value.where == where
    assert caught.value.hint == "Give a translation with custom_translation_table={torch.ops....: function}."


def test_a_given_translation_comes_first() -> None:
    run = runner(unary(aten.sin.default), "n", translations={aten.sin.default: opset18.Cos})
    np.testing.assert_allclose(run(torch.zeros(3))[0], [1, 1, 1])
