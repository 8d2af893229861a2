"""What a run changes in a module is put back; a model whose result depends on it is refused by name."""

from __future__ import annotations

import collections
import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.errors import HistoryFault, ModelFault
from anyshape.inputs import state
from anyshape.inputs.case import Case, Outputs, Refusal
from anyshape.inputs.read import check_history, read

x = torch.randn(2, 5, 4)
SIZES = ((2, 5, 4), (2, 9, 4), (3, 5, 4), (1, 40, 4), (2, 3, 4), (2, 64, 4))


class Net(nn.Module):
    """A module whose forward, with attributes, is given by the test."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        kind = type("Net", (nn.Module,), {"forward": forward, "__module__": __name__})
        self.__class__ = kind


def run_at_many_sizes(model: nn.Module) -> Case:
    """The case of a model that was run at several sizes; each result is that of a module which saw nothing else."""
    case = read(model, x)
    for shape in SIZES:
        case.run([torch.randn(shape)])
    return case


def picture(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """Everything that an object holds, by identity and by value."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return id(value)
    seen[id(value)] = value
    if isinstance(value, Tensor):
        return id(value), value.data_ptr(), tuple(value.shape), repr(value.detach().flatten().tolist())
    if isinstance(value, dict):
        return id(value), [(key, picture(item, seen)) for key, item in value.items()]
    if isinstance(value, (list, tuple, set, collections.deque)):
        return id(value), [picture(item, seen) for item in value]
    if isinstance(value, np.ndarray):
        return id(value), value.tolist()
    if isinstance(value, torch.Generator):
        return id(value), value.get_state().tolist()
    if isinstance(value, random.Random):
        return id(value), value.getstate()
    if isinstance(value, (nn.Module, SimpleNamespace, Memo, Slotted)):
        slots = {name: getattr(value, name) for name in getattr(value, "__slots__", ())}
        return id(value), picture(slots or vars(value), seen)[1]
    return value if isinstance(value, (int, float, str, type(None))) else id(value)


@dataclass
class Memo:
    steps: int = 0
    kept: list[Tensor] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    steps: int = 0


# --- Caches that only save time, and what is kept but not used: fine, and put back ------------------------------


def grid_made_anew(self: Any, a: Tensor) -> Any:
    if self.grid is None or self.grid.shape[0] != a.shape[1]:
        self.grid = torch.arange(a.shape[1], dtype=a.dtype)
    return a + self.grid[:, None]


def table_that_grows(self: Any, a: Tensor) -> Any:
    if a.shape[1] > self.table.shape[0]:
        self.table = torch.arange(a.shape[1])[:, None] * torch.ones(4)
    return a + self.table[: a.shape[1]]


def memo_by_size(self: Any, a: Tensor) -> Any:
    n = a.shape[1]
    if n not in self.memo:
        self.memo[n] = torch.arange(n).sin()[:, None]
    return a * self.memo[n]


def counter_that_is_not_used(self: Any, a: Tensor) -> Any:
    self.steps += 1
    return a * 2


def list_that_is_not_used(self: Any, a: Tensor) -> Any:
    self.seen.append(a.mean())
    return a * 2


def buffer_registered_in_forward(self: Any, a: Tensor) -> Any:
    self.register_buffer("ramp", torch.arange(a.shape[1]).float(), persistent=False)
    return a + self.ramp[:, None]


def attribute_deleted(self: Any, a: Tensor) -> Any:
    if hasattr(self, "extra"):
        del self.extra
    return a + 1


def workspace_written_in_place(self: Any, a: Tensor) -> Any:
    self.work.fill_(2)
    self.work.data.add_(a.mean())
    return a * 2


def workspace_returned(self: Any, a: Tensor) -> Any:
    self.work.copy_(a.mean((0, 1)))
    return self.work


def module_assigned_in_forward(self: Any, a: Tensor) -> Any:
    self.part = nn.ReLU()
    return self.part(a)


def norm_in_training_mode(self: Any, a: Tensor) -> Any:
    self.norm.train()
    return self.norm(a.transpose(1, 2))


def deque_of_the_last(self: Any, a: Tensor) -> Any:
    self.last.append(a.shape)
    return a * 2


def notes_on_objects(self: Any, a: Tensor) -> Any:
    self.memo.steps += 1
    self.memo.kept.append(a)
    self.space.more = a
    self.slots.steps += 1
    self.names.add("seen")
    self.array[0] += 1
    return a * 2


def draws_of_its_own(self: Any, a: Tensor) -> Any:
    torch.rand(3, generator=self.generator)
    self.random.random()
    return a * 2


def weight_clipped_in_place(self: Any, a: Tensor) -> Any:
    self.weight.data.clamp_(-0.5, 0.5)
    return a * self.weight


def weight_replaced(self: Any, a: Tensor) -> Any:
    self.weight.data = nn.functional.normalize(self.weight.data, dim=0)
    return a * self.weight


def hook_added(self: Any, a: Tensor) -> Any:
    self.part.register_forward_hook(lambda *_: None)
    return self.part(a)


def cleared(self: Any, a: Tensor) -> Any:
    self.table.clear()
    self.ordered.clear()
    self.rows.reverse()
    return a * 2


FINE: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    "grid": (grid_made_anew, lambda: {"grid": None}),
    "table": (table_that_grows, lambda: {"table": torch.arange(6)[:, None] * torch.ones(4)}),
    "memo": (memo_by_size, lambda: {"memo": {}}),
    "steps": (counter_that_is_not_used, lambda: {"steps": 0}),
    "list": (list_that_is_not_used, lambda: {"seen": []}),
    "registered": (buffer_registered_in_forward, dict),
    "deleted": (attribute_deleted, lambda: {"extra": torch.ones(2)}),
    "in place": (workspace_written_in_place, lambda: {"work": torch.full((4,), torch.nan)}),
    "returned": (workspace_returned, lambda: {"work": torch.zeros(4)}),
    "module": (module_assigned_in_forward, lambda: {"part": nn.Tanh()}),
    "norm": (norm_in_training_mode, lambda: {"norm": nn.BatchNorm1d(4)}),
    "deque": (deque_of_the_last, lambda: {"last": collections.deque([1, 2], maxlen=2)}),
    "objects": (
        notes_on_objects,
        lambda: {
            "memo": Memo(),
            "space": SimpleNamespace(less=1),
            "slots": Slotted(),
            "names": {"new"},
            "array": np.zeros(2),
        },
    ),
    "draws": (
        draws_of_its_own,
        lambda: {"generator": torch.Generator().manual_seed(3), "random": random.Random(3)},
    ),
    "clipped": (weight_clipped_in_place, lambda: {"weight": nn.Parameter(torch.linspace(-1, 1, 4))}),
    "replaced": (weight_replaced, lambda: {"weight": nn.Parameter(torch.linspace(-1, 1, 4))}),
    "hook": (hook_added, lambda: {"part": nn.Tanh()}),
    "cleared": (
        cleared,
        lambda: {"table": {"a": 1}, "ordered": collections.OrderedDict(b=2, a=1), "rows": [1, 2]},
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_a_run_leaves_the_module_as_it_was(name: str) -> None:
    forward, parts = FINE[name]
    model = Net(forward, **parts()).eval()
    before = picture(model)
    case = run_at_many_sizes(model)
    assert picture(model) == before
    fresh = Net(forward, **parts()).eval()
    answer = case.run([x])
    assert isinstance(answer, Outputs)
    torch.testing.assert_close(answer.tensors[0], fresh(x.clone()))


@pytest.mark.parametrize("name", ["grid", "memo", "steps", "registered", "returned"])
def test_such_a_model_is_exported_and_is_as_it_was(name: str) -> None:
    forward, parts = FINE[name]
    model = Net(forward, **parts()).eval()
    before = picture(model)
    export = anyshape.export(model, x)
    assert picture(model) == before
    assert export.verdict.right


def test_an_attribute_that_a_run_adds_is_gone_again() -> None:
    model = Net(buffer_registered_in_forward)
    names = list(vars(model))
    run_at_many_sizes(model)
    assert list(vars(model)) == names and not dict(model.named_buffers())


def raises_half_way(self: Any, a: Tensor) -> Any:
    self.size = a.shape[1]
    self.sizes.append(a.shape[1])
    if a.shape[1] > 8:
        raise ValueError("too long")
    return a * 2


def test_a_run_that_raises_leaves_nothing_behind() -> None:
    model: Any = Net(raises_half_way, size=3, sizes=[])
    case = read(model, x)
    assert isinstance(case.run([torch.randn(2, 9, 4)]), Refusal)
    assert (model.size, model.sizes) == (3, [])


def interrupted(self: Any, a: Tensor) -> Any:
    self.sizes.append(a.shape[1])
    self.count += 1
    if a.shape[1] > 8:
        raise KeyboardInterrupt
    return a * 2


def test_an_interrupted_run_leaves_nothing_behind() -> None:
    model: Any = Net(interrupted, count=torch.zeros(()), sizes=[])
    case = read(model, x)
    with pytest.raises(KeyboardInterrupt):
        case.run([torch.randn(2, 9, 4)])
    assert model.count == 0 and model.sizes == []


def test_what_is_shared_by_a_class_is_put_back() -> None:
    class Shares(nn.Module):
        memo: dict[int, Tensor] = {}  # noqa: RUF012
        calls = 0

        def forward(self, a: Tensor) -> Tensor:
            type(self).calls += 1
            if a.shape[1] not in self.memo:
                self.memo[a.shape[1]] = torch.arange(a.shape[1])[:, None]
            return a + self.memo[a.shape[1]]

    run_at_many_sizes(Shares())
    assert Shares.memo == {} and Shares.calls == 0


def test_a_method_that_remembers_its_answers() -> None:
    class Remembers(nn.Module):
        @functools.lru_cache  # noqa: B019
        def grid(self, n: int) -> Tensor:
            return torch.arange(n).sin()[:, None]

        def forward(self, a: Tensor) -> Tensor:
            return a + self.grid(a.shape[1])

    model = Remembers()
    run_at_many_sizes(model)
    assert Remembers.grid.cache_info().currsize == 0
    assert anyshape.export(model, x).verdict.right


def test_hooks_that_come_and_go_between_runs_stay() -> None:
    model = nn.Linear(4, 4)
    case, calls = read(model, x), []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    case.run([x])
    case.run([x])
    handle.remove()
    case.run([x])
    assert len(calls) == 2


def test_lazy_weights_are_made_once() -> None:
    model = nn.LazyLinear(3)
    case = read(model, x)
    first = model.weight.clone()
    case.run([x])
    assert torch.equal(model.weight, first) and model.in_features == 4


def test_an_object_among_the_inputs_is_put_back() -> None:
    class Notebook:
        def __init__(self) -> None:
            self.sizes: list[int] = []

    def noting(self: Any, a: Tensor, notebook: Any) -> Any:
        notebook.sizes.append(a.shape[1])
        return a * 2

    notebook = Notebook()
    read(Net(noting), (x, notebook)).run([torch.randn(2, 9, 4)])
    assert notebook.sizes == []


def test_weights_without_values_have_a_state() -> None:
    model = nn.Linear(4, 4, device="meta")
    assert not read(model, x).state.changed()


def test_what_a_trace_changes_is_put_back() -> None:
    model = Net(grid_made_anew, grid=None, part=nn.Linear(4, 4))
    anyshape.export(model, x)
    assert model.grid is None


# --- What a later result depends on: refused by name --------------------------------------------------------------


def running_mean(self: Any, a: Tensor) -> Any:
    self.mean.mul_(0.9).add_(0.1 * a.mean())
    return a - self.mean


def cache_of_inputs(self: Any, a: Tensor) -> Any:
    self.cache.append(a.sum())
    return a + torch.stack(self.cache).sum()


def counter_that_is_used(self: Any, a: Tensor) -> Any:
    self.steps += 1
    return a * self.steps


def grows_with_the_longest(self: Any, a: Tensor) -> Any:
    if a.shape[1] > self.longest:
        self.base, self.longest = 1.0 * a.shape[1], a.shape[1]
    return a * self.base


def grid_of_the_first(self: Any, a: Tensor) -> Any:
    if self.grid is None:
        self.grid = torch.arange(a.shape[1])[:, None]
    return a + self.grid


def table_of_the_first(self: Any, a: Tensor) -> Any:
    if self.grid is None:
        self.grid = torch.arange(a.shape[1])[:, None]
    return a + self.grid[: a.shape[1]]


def scale_of_the_first(self: Any, a: Tensor) -> Any:
    if not self.ready:
        self.scale.data.copy_(a.std((0, 1)))
        self.ready = True
    return a / self.scale


def beyond_a_limit_the_longest(self: Any, a: Tensor) -> Any:
    """As dynamic scaling of positions does: short inputs are themselves, long ones depend on the longest."""
    if a.shape[1] <= 8:
        self.factor = 1.0
    elif a.shape[1] > self.factor:
        self.factor = 1.0 * a.shape[1]
    return a * self.factor


def queue_of_the_last(self: Any, a: Tensor) -> Any:
    self.last.append(a.mean())
    return a + sum(self.last)


def memo_of_the_wrong_key(self: Any, a: Tensor) -> Any:
    if a.shape[1] not in self.memo:
        self.memo[a.shape[1]] = torch.ones(a.shape[0], a.shape[1], 1)
    return a + self.memo[a.shape[1]]


def draws_from_its_own(self: Any, a: Tensor) -> Any:
    return a + torch.rand(4, generator=self.generator)


def notes_in_an_object(self: Any, a: Tensor) -> Any:
    self.memo.steps += 1
    return a * self.memo.steps


def state_of_the_last(self: Any, a: Tensor) -> Any:
    self.hidden = a.mean((0, 1)) + self.hidden
    return a + self.hidden


class Counts(nn.Module):
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, a: Tensor) -> Tensor:
        self.steps += 1
        return a + self.steps


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]], str, str]] = {
    "mean": (running_mean, lambda: {"mean": torch.zeros(())}, "`mean` of Net", "self.mean.mul_"),
    "cache": (cache_of_inputs, lambda: {"cache": []}, "`cache` of Net", "self.cache.append"),
    "steps": (counter_that_is_used, lambda: {"steps": 0}, "`steps` of Net", "self.steps += 1"),
    "longest": (
        grows_with_the_longest,
        lambda: {"longest": 32, "base": 1.0},
        "`base` of Net",
        "self.base, self.longest",
    ),
    "grid": (grid_of_the_first, lambda: {"grid": None}, "`grid` of Net", "self.grid = torch"),
    "short table": (table_of_the_first, lambda: {"grid": None}, "`grid` of Net", "self.grid = torch"),
    "first scale": (
        scale_of_the_first,
        lambda: {"ready": False, "scale": nn.Parameter(torch.ones(4))},
        "`ready` of Net",
        "self.ready = True",
    ),
    "limit": (beyond_a_limit_the_longest, lambda: {"factor": 1.0}, "`factor` of Net", "self.factor = 1.0"),
    "queue": (
        queue_of_the_last,
        lambda: {"last": collections.deque([torch.zeros(())], maxlen=3)},
        "`last` of Net",
        "self.last.append",
    ),
    "memo": (memo_of_the_wrong_key, lambda: {"memo": {}}, "`memo` of Net", "self.memo[a.shape[1]] ="),
    "generator": (
        draws_from_its_own,
        lambda: {"generator": torch.Generator().manual_seed(3)},
        "`generator` of Net",
        "generator=self.generator",
    ),
    "object": (notes_in_an_object, lambda: {"memo": Memo()}, "`memo` of Net", "self.memo.steps += 1"),
    "hidden": (state_of_the_last, lambda: {"hidden": 0.0}, "`hidden` of Net", "self.hidden = a.mean"),
    "submodule": (
        lambda self, a: self.part(a),
        lambda: {"part": Counts()},
        "`steps` of Counts (part)",
        "self.steps += 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_whose_result_depends_on_what_it_has_seen(name: str) -> None:
    forward, parts, attribute, line = REFUSED[name]
    model = Net(forward, **parts()).eval()
    before = picture(model)
    with pytest.raises(HistoryFault) as caught:
        run_at_many_sizes(model)
    text = str(caught.value)
    assert f"depends on what it has seen before: attribute {attribute};" in text
    assert "test_state.py" in text and line in text and "return it as an output" in text
    assert picture(model) == before


def test_an_export_is_refused_by_name() -> None:
    forward, parts, _, _ = REFUSED["longest"]
    with pytest.raises(HistoryFault, match=r"at a \[2, 5, 4\] it gives another result after a run at a \["):
        anyshape.export(Net(forward, **parts()), x)


def test_a_later_run_that_raises_is_told() -> None:
    forward, parts, _, _ = REFUSED["grid"]
    with pytest.raises(HistoryFault, match=r"it raises RuntimeError: The size of tensor a \(5\) must"):
        run_at_many_sizes(Net(forward, **parts()))


def many_at_once(self: Any, a: Tensor) -> Any:
    for name in ("one", "two", "three", "four", "five"):
        setattr(self, name, getattr(self, name) + 1)
    return a * (self.one + self.two + self.three + self.four + self.five)


def test_many_attributes_are_counted() -> None:
    parts = dict.fromkeys(("one", "two", "three", "four", "five"), 0)
    told = r"attributes `five` of Net, `four` of Net, `one` of Net and 2 more;"
    with pytest.raises(HistoryFault, match=told):
        read(Net(many_at_once, **parts), x)


def test_what_is_kept_in_a_global_is_found_at_the_end() -> None:
    longest = [8]

    def forward(self: Any, a: Tensor) -> Any:
        longest[0] = max(longest[0], a.shape[1])
        return a * longest[0]

    case = read(Net(forward), x)
    check_history(case)
    case.run([torch.randn(2, 40, 4)])
    with pytest.raises(
        HistoryFault, match="keeps outside its attributes: at its example it is another after"
    ):
        check_history(case)


def test_weights_that_are_written_and_too_large_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, a: Tensor) -> Any:
        self.weight.clamp_(-0.5, 0.5)
        return a * self.weight

    monkeypatch.setattr(state, "MOST_COPIED", 3)
    with pytest.raises(
        HistoryFault, match=r"writes to its own weights, which are too large .* `weight` of Net"
    ):
        read(Net(forward, weight=nn.Parameter(torch.linspace(-1, 1, 4))), x)


def test_large_weights_are_copied_for_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_KEPT", 3)
    model: Any = Net(weight_clipped_in_place, weight=nn.Parameter(torch.linspace(-1, 1, 4)))
    run_at_many_sizes(model)
    assert model.weight.max() == 1
    read(nn.Linear(4, 4), x).run([x])


# --- Neither random nor history ------------------------------------------------------------------------------------


def writes_to_its_input(self: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    b = a.view(-1)
    a.mul_(2)
    return a, b, a[:, :1]


def test_a_model_that_writes_to_its_input_is_not_random() -> None:
    given = x.clone()
    case = read(Net(writes_to_its_input), given)
    assert torch.equal(given, x)
    for output, wanted in zip(case.outputs.tensors, (2 * x, 2 * x.view(-1), 2 * x[:, :1]), strict=True):
        assert torch.equal(output, wanted)


def test_its_file_gives_what_the_model_returns() -> None:
    export = anyshape.export(Net(writes_to_its_input), x)
    assert export.verdict.right


def numpys_random(self: Any, a: Tensor) -> Any:
    return a + float(np.random.default_rng().random())


def closure(self: Any, a: Tensor) -> Any:
    return a + next(COUNTER)


COUNTER = itertools.count()


@pytest.mark.parametrize("forward", [numpys_random, closure])
def test_what_differs_though_the_module_is_the_same(forward: Callable[..., Any]) -> None:
    with pytest.raises(ModelFault, match="not PyTorch's, or keeps what it has seen outside its attributes"):
        read(Net(forward), x)


def random_and_counting(self: Any, a: Tensor) -> Any:
    self.steps += 1
    return a + torch.rand(())


def test_a_random_model_that_counts_is_random() -> None:
    with pytest.raises(ModelFault, match="the model is random"):
        read(Net(random_and_counting, steps=0), x)


# --- Cost ----------------------------------------------------------------------------------------------------------


def test_a_model_that_keeps_nothing_runs_once() -> None:
    calls = []

    def forward(self: Any, a: Tensor) -> Any:
        calls.append(1)
        return a * 2

    case = read(Net(forward), x)
    before = len(calls)
    case.run([x])
    assert len(calls) == before + 1


def test_a_change_is_looked_at_a_few_times_only() -> None:
    calls = itertools.count()

    def forward(self: Any, a: Tensor) -> Any:
        next(calls)
        self.size = a.shape[1]
        return a * 2

    case = read(Net(forward, size=-1), x)
    for n in range(1, 60):
        case.run([torch.randn(2, n, 4)])
    assert next(calls) < 140


def test_the_work_of_a_look_is_not_counted() -> None:
    from anyshape.torch_bridge.work import nominal_seconds

    def forward(self: Any, a: Tensor) -> Any:
        self.size = a.shape[1]
        return a * 2

    case = read(Net(forward, size=-1), x)
    given = [torch.randn(2, 7, 4)]
    assert nominal_seconds(lambda: case.run(given)) <= 1.01 * nominal_seconds(lambda: case.run(given)) + 2e-5
