"""What stands around a model or in it: torch.func's transforms, torch.compile, parametrisations, hooks, TorchScript."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo  # what compiles: not while sizes are watched
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, hessian, jvp, stack_module_state, vjp
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

import anyshape
from anyshape.inputs.read import COMPILED
from anyshape.runtimes.choose import runtime_of
from anyshape.runtimes.onnx_runtime import to_numpy, to_torch

# What PyTorch's compiler imports when it is first used says so of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning"),
]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.linear(x).relu() * scale


class Model(nn.Module):
    """A function of a module and a tensor, with a matrix, a row and a layer at hand."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.matrix = nn.Parameter(torch.linspace(-1, 1, 16).reshape(4, 4).contiguous())
        self.row = nn.Parameter(torch.linspace(-1, 1, 4))
        for name, part in {"layer": Layer(), **parts}.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


# --- torch.func -----------------------------------------------------------------------------------------


def gradient(self: Any, x: Tensor) -> Tensor:
    return grad(lambda x: (x.tanh() @ self.matrix).pow(2).sum() * 0.5)(x)


def gradient_of_a_weight(self: Any, x: Tensor) -> Tensor:
    return x - grad(lambda weight: ((x @ weight) + torch.ones(4)).pow(2).mean())(self.matrix).sum()


def gradient_and_value(self: Any, x: Tensor) -> Any:
    return grad_and_value(lambda x: (x.sin() * torch.arange(x.shape[1]).unsqueeze(-1)).sum())(x)


def forwards(self: Any, x: Tensor) -> Any:
    return jvp(lambda x: x.sin() @ self.matrix, (x,), (x * 2,))


def backwards(self: Any, x: Tensor) -> Any:
    value, pull = vjp(lambda x: x.sin() * self.row, x)
    return pull(value.cos())[0], value


def second_derivatives(self: Any, x: Tensor) -> Tensor:
    return torch.vmap(hessian(lambda row: (row * self.row).sin().sum()))(x.sum(1))


def one_step_of_learning(self: Any, x: Tensor) -> Tensor:
    weights = {"linear.weight": self.matrix, "linear.bias": self.row}
    slopes = grad(lambda weights: functional_call(self.layer, weights, (x,)).pow(2).mean())(weights)
    learned = {name: weight - 0.1 * slopes[name] for name, weight in weights.items()}
    return functional_call(self.layer, learned, (x,))


def called_with_other_weights(self: Any, x: Tensor) -> Tensor:
    return functional_call(
        self.layer, {"linear.weight": self.matrix * x.mean(), "linear.bias": self.row}, (x,)
    )


def ensemble(self: Any, x: Tensor) -> Tensor:
    weights, buffers = stack_module_state([self.layer, self.other])

    def one(weights: Any, buffers: Any, x: Tensor) -> Tensor:
        return functional_call(self.layer, (weights, buffers), (x,))

    return torch.vmap(one, in_dims=(0, 0, None))(weights, buffers, x)


def mapped_along_other_axes(self: Any, x: Tensor) -> Tensor:
    return torch.vmap(lambda row, other: row * other.sum(), in_dims=(1, None), out_dims=1)(x, self.row)


def mapped_twice(self: Any, x: Tensor) -> Tensor:
    return torch.vmap(torch.vmap(lambda a, b: a @ b, (None, 0)), (0, None))(x.sum(1), self.matrix)


def mapped_in_pieces(self: Any, x: Tensor) -> Tensor:
    return torch.vmap(lambda rows: rows.cumsum(0) * self.row, chunk_size=2)(x)


def autograd(self: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x * self.row).sin().sum(), x)[0]


# --- modes, checkpoints, TorchScript, compiled parts ----------------------------------------------------


def under_modes(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        doubled = x * 2
    with torch.inference_mode():
        moved = doubled + self.row
    with torch.enable_grad():
        return moved * doubled


def in_half_precision(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ self.matrix


def checkpointed(self: Any, x: Tensor) -> Tensor:
    one = checkpoint(lambda x: (x @ self.matrix).relu(), x, use_reentrant=True)
    return checkpoint(lambda x: x * self.row + x.shape[1], one, use_reentrant=False)


class Scripted(nn.Module):
    """Compiled by TorchScript it still decides by a size."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(1) > 8:
            return self.linear(x)
        return self.linear(x).relu()


def with_a_part(self: Any, x: Tensor) -> Tensor:
    return self.part(x) + self.row


@functools.partial(torch.compile, backend="eager")
def compiled_function(x: Tensor) -> Tensor:
    return x.sin() * x.shape[1] if x.shape[1] > 7 else x.cos()


def with_compiled_functions(self: Any, x: Tensor) -> Tensor:
    return torch.compile(lambda x: x * self.row, backend="eager")(compiled_function(x))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return Model(with_a_part, part=torch.jit.script(Scripted()))


def traced() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return Model(with_a_part, part=torch.jit.trace(Layer().eval(), torch.randn(3, 6, 4)))


# --- modules that are not what they seem ----------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


def parametrised() -> nn.Module:
    layer = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(nn.Linear(4, 5))


def hooked() -> nn.Module:
    model = Model(lambda self, x: self.layer(x, scale=2.0))

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        return (args[0] + 1,), {"scale": kwargs["scale"] * 3}

    def after(module: Any, args: Any, kwargs: Any, result: Tensor) -> Tensor:
        return result * kwargs["scale"] + args[0].shape[1]

    model.layer.register_forward_pre_hook(before, with_kwargs=True)
    model.layer.register_forward_hook(after, with_kwargs=True)
    model.register_forward_hook(lambda module, args, result: (result, result.sum(1)))
    return model


def with_a_lambda() -> nn.Module:
    layer = Layer()
    layer.forward = lambda x: layer.linear(x).sigmoid() * x.shape[1]  # type: ignore[method-assign,assignment]
    return layer


def with_a_partial() -> nn.Module:
    layer = Layer()
    layer.forward = functools.partial(layer.forward, scale=3.0)  # type: ignore[method-assign]
    return layer


class Overridden(Layer):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x + 1) * x.shape[1]


def compiled_by_itself() -> nn.Module:
    layer = Layer()
    layer.compile(backend="eager")
    return layer


FUNCTIONS = [
    gradient,
    gradient_of_a_weight,
    gradient_and_value,
    forwards,
    backwards,
    second_derivatives,
    one_step_of_learning,
    called_with_other_weights,
    mapped_along_other_axes,
    mapped_twice,
    mapped_in_pieces,
    autograd,
    under_modes,
    in_half_precision,
    checkpointed,
    with_compiled_functions,
]
MODULES: dict[str, Callable[[], nn.Module]] = {
    **{function.__name__: functools.partial(Model, function) for function in FUNCTIONS},
    "ensemble": lambda: Model(ensemble, other=Layer()),
    "scripted": scripted,
    "traced": traced,
    "parametrised": parametrised,
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)),
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)),
    "old_weight_norm": old_weight_norm,
    "old_spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 5)),
    "hooked": hooked,
    "fx": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())),
    "data_parallel": lambda: nn.DataParallel(Layer()),
    "lambda": with_a_lambda,
    "partial": with_a_partial,
    "overridden": Overridden,
    "compiled": lambda: torch.compile(Layer(), backend="eager"),
    "compiled_by_itself": compiled_by_itself,
    "compiled_part": lambda: Model(with_a_part, part=torch.compile(Scripted(), backend="eager")),
}
COMPILED_MODULES = ("compiled", "compiled_by_itself", "compiled_part")
TRIED = ((2, 9, 1.0, 0.0), (5, 2, -3.0, 2.0), (1, 11, 1.0, -2.0), (4, 7, 0.1, 5.0))


@pytest.mark.parametrize("name", MODULES)
def test_a_file_is_right_at_other_sizes_and_values(name: str) -> None:
    model = MODULES[name]().eval()
    made = anyshape.export(model, (torch.randn(3, 6, 4),), dims={"seq": "1..", "batch": "1.."})
    assert [note for note in made.contract.notes if "left out" in note] == [COMPILED] * (
        name in COMPILED_MODULES
    )
    runtime = runtime_of(made.model)
    half = 200 if name == "in_half_precision" else 1
    for batch, seq, scale, shift in TRIED:
        x = torch.randn(batch, seq, 4) * scale + shift
        with torch.no_grad():
            wanted = _pytree.tree_leaves(model(x))
        got = [to_torch(array) for array in runtime.run({runtime.input_names[0]: to_numpy(x)})]
        torch.testing.assert_close(got, wanted, rtol=1e-4 * half, atol=2e-4 * half)


def test_a_compiled_model_is_called_as_what_is_inside() -> None:
    """Its weights and its arguments have their own names, and it is compiled again afterwards."""
    layer = Layer()
    layer.compile(backend="eager")
    model = torch.compile(layer, backend="eager")
    made = anyshape.export(model, torch.randn(3, 6, 4))
    assert [item.name for item in made.contract.inputs] == ["x"]
    assert "linear.bias" in made.model.graph.initializers
    assert layer._compiled_call_impl is not None
