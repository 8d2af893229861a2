"""The package as others see it: its names, its types, and which module may import which."""

from __future__ import annotations

import ast
import graphlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import anyshape

PACKAGE = pathlib.Path(anyshape.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: pathlib.Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def module_level(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run on import, also those below a module-level if, try or with."""
    found, pending = [], list(tree.body)
    while pending:
        node = pending.pop(0)
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


def imports_of(name: str) -> set[str]:
    """Every module that a module's import statements name at module level."""
    made: set[str] = set()
    for node in module_level(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            made |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                made.add(inner if inner in MODULES else str(node.module))
    return made


def test_all_equals_reality() -> None:
    for name in anyshape.__all__:
        assert not inspect.ismodule(getattr(anyshape, name)), f"{name} is a module"
    helpers = {"TYPE_CHECKING", "Any", "annotations"}
    public = {
        name
        for name in dir(anyshape)
        if not name.startswith("_") and not inspect.ismodule(getattr(anyshape, name)) and name not in helpers
    }
    assert public == set(anyshape.__all__)
    assert anyshape.__all__ == sorted(anyshape.__all__)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'exports'"):
        anyshape.exports  # noqa: B018


def test_the_public_names_are_few_and_documented() -> None:
    assert len(anyshape.__all__) <= 13
    for name in anyshape.__all__:
        assert (inspect.getdoc(getattr(anyshape, name)) or "").strip(), name
    assert callable(anyshape.export) and callable(anyshape.load)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if not name.endswith("__main__")))
def test_every_module_lists_names_that_it_has(name: str) -> None:
    module = __import__(name, fromlist=["*"])
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), f"{name}.__all__ has {public}"
    assert module.__doc__, f"{name} has no docstring"


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_the_version_is_the_distributions() -> None:
    import importlib.metadata

    assert anyshape.__version__ == importlib.metadata.version("anyshape")


def test_no_import_cycles() -> None:
    graph = {name: (imports_of(name) & MODULES.keys()) - {name, "anyshape"} for name in MODULES}
    list(graphlib.TopologicalSorter(graph).static_order())  # a CycleError names the cycle


def test_only_the_front_imports_the_package_itself() -> None:
    """A station that imports `anyshape` would wait for every other station."""
    for name, path in MODULES.items():
        if name.startswith("anyshape.cli"):
            continue
        for node in module_level(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "anyshape":
                named = {f"anyshape.{alias.name}" for alias in node.names}
                assert named <= MODULES.keys(), f"{name} imports {named - MODULES.keys()} from the front"


def test_dims_are_pure_python() -> None:
    foreign = re.compile(r"^\s*(?:import|from)\s+(torch|onnx\w*|sympy|numpy)\b", re.MULTILINE)
    for path in (PACKAGE / "dims").glob("*.py"):
        assert not foreign.search(path.read_text()), path.name
    for name in (n for n in MODULES if n.startswith("anyshape.dims")):
        own = {n for n in imports_of(name) if n.startswith("anyshape")}
        assert all(n.startswith(("anyshape.dims", "anyshape.errors")) for n in own), name


BRIDGE = PACKAGE / "torch_bridge"
OUTSIDE = [path for path in FILES if BRIDGE not in path.parents]


def own_names() -> set[str]:
    """Every name that the package outside of the bridge gives to something: its own private parts."""
    made: set[str] = set()
    for path in OUTSIDE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                made.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                made.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                made.add(node.attr)
    return made


def foreign_private_parts(source: str, own: set[str]) -> list[str]:
    """What a module touches of the private or version-bound parts of other libraries, as it is written there."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += filter(is_private_module, (alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            found += filter(is_private_module, (f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Attribute) and is_private_part(node, own):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and len(node.args) > 1:  # getattr(target, "_schema", None)
            found += [text for text in texts_of(node.args[1]) if PRIVATE.fullmatch(text) and text not in own]
    return found


PRIVATE = re.compile(r"_(?!_)[a-zA-Z]\w+")


def is_private_module(name: str) -> bool:
    hidden = any(PRIVATE.fullmatch(part) for part in name.split("."))
    return not name.startswith("anyshape") and (hidden or name.startswith("torch.fx.experimental"))


def is_private_part(node: ast.Attribute, own: set[str]) -> bool:
    text = ast.unparse(node)
    if re.match(r"(torch\.ops\.)?aten\.", text) or text == "sys._getframe":
        return False  # an operator's name may start with an underscore; Python's own is no library's
    hidden = PRIVATE.fullmatch(node.attr) and (node.attr not in own or text.startswith("torch."))
    return bool(hidden) or text.endswith(".node.expr") or text.startswith("torch.fx.experimental.")


def texts_of(node: ast.expr) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: module_name(path))
def test_torchs_private_parts_are_touched_at_one_place(path: pathlib.Path, own: set[str]) -> None:
    used = foreign_private_parts(path.read_text(), own)
    assert not used, f"{path.name} uses {used}: that belongs into torch_bridge"


@pytest.fixture(scope="module")
def own() -> set[str]:
    return own_names()


@pytest.mark.parametrize(
    "source",
    [
        "target._schema.name",
        "getattr(target, '_overloadname', '')",
        "tensor._is_view()",
        "size.node.expr",
        "torch._C._get_tracing_state()",
        "torch._ops.OpOverload",
        "torch._VF.lstm",
        "from torch._ops import OpOverload",
        "from torch.utils import _pytree",
        "import torch.utils._pytree as pytree",
        "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
        "from torch.onnx._internal.exporter import _core",
        "from onnx_ir._core import Value",
    ],
)
def test_private_parts_are_found(source: str, own: set[str]) -> None:
    assert foreign_private_parts(source, own)


@pytest.mark.parametrize(
    "source",
    [
        "torch.ops.aten._to_copy.default",
        "torch.__file__",
        "equation.expr",
        "from anyshape.dims import _parse",
        "sys._getframe(1)",
    ],
)
def test_public_parts_are_let_be(source: str, own: set[str]) -> None:
    assert not foreign_private_parts(source, own)


def test_the_worker_needs_nothing_of_the_package() -> None:
    """It is started as a script for inputs that may end its process: importing torch there would take seconds."""
    imported = imports_of("anyshape.runtimes.worker")
    assert not any(name.startswith(("anyshape", "torch")) for name in imported)


def test_a_fresh_import() -> None:
    """The functions are there whoever imported the modules of their names first, and without the command line."""
    code = """
import sys, anyshape.artifact.load, anyshape.explain, anyshape.export, anyshape
print(callable(anyshape.export), callable(anyshape.load), callable(anyshape.explain))
print(sorted({"typer", "rich", "transformers"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "[]"]


def test_the_exceptions_are_one_tree() -> None:
    from anyshape import errors

    codes = {errors.UsageError: 2, errors.Fault: 1, errors.InputError: 2, errors.InternalError: 70}
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, anyshape.AnyshapeError), name
            assert name in (errors.__doc__ or ""), f"{name} is not drawn in the docstring"
            assert kind.exit_code == next((codes[base] for base in kind.__mro__ if base in codes), 1)


def test_export_takes_torchs_arguments() -> None:
    """Code that calls torch.onnx.export must work by changing that one name."""
    ours = inspect.signature(anyshape.export).parameters
    theirs = inspect.signature(torch.onnx.export).parameters
    from anyshape.inputs.options import REFUSED

    handled = {*ours, *REFUSED, "dynamo", "training", "operator_export_type"}
    missing = {name for name in theirs if name not in handled and not name.startswith("deprecated")}
    assert missing == set()
    assert list(ours)[:3] == list(theirs)[:3] == ["model", "args", "f"]
