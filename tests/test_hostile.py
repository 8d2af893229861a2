"""Files that mean harm: each is refused with one clear line, and nothing that it says is run, read or written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import anyshape
from anyshape.artifact.read import CONTRACT_KEY, read_model
from anyshape.cli import app
from anyshape.contract.contract import Contract
from anyshape.dims import parse_expr
from anyshape.errors import FileError, ParseError

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def hostile(two_inputs: SimpleNamespace, tmp_path: Path) -> Callable[[Change | str], Path]:
    """``hostile(change)``: a copy of an exported file with its contract changed, or with another text for it."""

    def make(change: Change | str) -> Path:
        model = onnx.load(two_inputs.path)
        for item in model.metadata_props:
            if item.key == CONTRACT_KEY:
                item.value = change if isinstance(change, str) else changed(item.value, change)
        onnx.save(model, tmp_path / "hostile.onnx")
        return tmp_path / "hostile.onnx"

    return make


def changed(text: str, change: Change) -> str:
    data = json.loads(text)
    change(data)
    return json.dumps(data)


def refusal(path: Path) -> str:
    """The one line in which loading is refused."""
    with pytest.raises(FileError) as info:
        anyshape.load(path)
    assert "\n" not in info.value.what and info.value.what.isprintable()
    return info.value.what


UNREADABLE = "the contract in the file can't be read: "


def put(*keys: Any, value: Any) -> Change:
    """A change: ``value`` at this place."""

    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def nest(levels: int) -> Any:
    value: Any = "tensor"
    for _ in range(levels):
        value = {"kind": "tuple", "children": [value]}
    return value


SYSTEM = {"kind": "namedtuple", "children": [{"constant": "touch x"}], "type": "os:system"}
LONG_NAME = "x" * 501


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            put("output_structure", value={"kind": "tuple", "children": ["tensor", SYSTEM]}),
            "output_structure.children[1]: unknown key \"type\"",
        ),
        (
            put("output_structure", value={"kind": "os.system", "children": ["tensor"]}),
            "output_structure.kind: expected one of 'cache', 'dataclass', 'dict', 'list', 'namedtuple', 'registered', "
            "'tuple', found \"os.system\"",
        ),
        (
            put("output_structure", value={"kind": "namedtuple", "children": ["tensor"], "keys": ["x=print(1)"]}),
            "output_structure.keys: expected at most 256 names of fields: identifiers without an underscore first",
        ),
        (
            put("output_structure", value={"kind": "dataclass", "children": ["tensor"], "keys": ["__del__"]}),
            "output_structure.keys: expected at most 256 names of fields: identifiers without an underscore first",
        ),
        (
            put("output_structure", value={"kind": "dict", "children": ["tensor"], "keys": ["y"], "name": "os:system"}),
            'output_structure.name: "os:system" is no name for a class of the kind dict',
        ),
        (put("output_structure", value=nest(65)), "output_structure" + ".children[0]" * 5),
        (put("output_structure", value=["tensor"]), 'output_structure: expected an object or "tensor", found a list'),
        (
            put("output_structure", value={"kind": "tuple", "children": ["tensor"] * 3}),
            "output_structure: 3 tensors, but 1 are listed",
        ),
        (
            put("output_structure", value={"kind": "tuple", "children": ["tensor"] * 100_001}),
            "output_structure.children: 100001 items, more than 100000",
        ),
        (
            put("input_structure", value={"kind": "tuple", "children": ["tensor", "tensor"]}),
            "input_structure: expected a tuple of a tuple and a dict: the arguments of a call",
        ),
        (put("arguments", value=["tokens"]), "arguments: expected the names of the arguments in input_structure"),
        (put("inputs", 1, "shape", 0, value="batch + hidden"), "inputs[1].shape[0]: hidden is no dim of this contract"),
        (put("inputs", 0, "shape", 1, value=None), "inputs[0].shape[1]: expected a text, found null"),
        (put("inputs", 0, "shape", value=["1"] * 65), "inputs[0].shape: 65 items, more than 64"),
        (put("inputs", 0, "name", value="\x1b]0;owned\x07"), "inputs[0].name: the control character U+001B in a text"),
        (put("inputs", 0, "name", value="a\u202etxt"), "inputs[0].name: the control character U+202E in a text"),
        (put("inputs", 0, "name", value="\ud800"), "inputs[0].name: the control character U+D800 in a text"),
        (put("inputs", 0, "name", value=LONG_NAME), "inputs[0].name: a text of 501 characters, more than 500"),
        (put("inputs", 0, "name", value="mask"), "inputs[1]: mask is there already"),
        (put("inputs", 0, "dtype", value="object"), "inputs[0].dtype: expected one of 'bfloat16', 'bool'"),
        (put("inputs", 0, "values", "seen", value=[1, 2]), 'inputs[0].values: unknown key "seen"'),
        (put("inputs", 0, "values", "low", value=1e300), "inputs[0].values.low: expected a number that int64 has"),
        (put("inputs", 0, "values", "low", value=50), "inputs[0].values: low is 50.0, above high, 49.0"),
        (put("dims", 0, "name", value="_d0"), "dims[0].name: '_d0' is no name for a dim"),
        (put("dims", 0, "name", value="a b"), "dims[0].name: 'a b' is no name for a dim"),
        (put("dims", 0, "example", value=2**53 + 1), "dims[0].example: expected a size between 0 and 9007199254740992"),
        (put("dims", 0, "example", value=-1), "dims[0].example: expected a size between 0 and"),
        (put("dims", 0, "example", value=True), "dims[0].example: expected a whole number, found true"),
        (put("dims", 0, "example", value=2.0), "dims[0].example: expected a whole number, found 2.0"),
        (put("dims", 0, "range", value="9..1"), "dims[0].range: no size is both at least 9 and at most 1"),
        (put("dims", 0, "range", value=f">={'9' * 18}"), "dims[0].range: expected a size between 0 and"),
        (put("dims", 0, "origin", value="guessed"), "dims[0].origin: expected one of 'declared', 'found', found"),
        (put("dims", 0, "evidence", value=None), "dims[0].evidence: expected one of 'proved', 'sampled', found null"),
        (put("dims", 0, "reason", value="\x9b2J"), "dims[0].reason: the control character U+009B in a text"),
        (put("dims", value={}), "dims: expected a list, found an object"),
        (put("dims", value=[{}] * 1001), "dims: 1001 items, more than 1000"),
        (put("relations", value=[["batch", "or", "seq"]]), "relations[0][1]: expected one of '!=', '<', '<=', '=='"),
        (put("relations", value=[["batch", "<="]]), "relations[0]: expected two expressions and what is between"),
        (put("notes", value=["x" * 20_001]), "notes[0]: a text of 20001 characters, more than 20000"),
        (put("constants", value=[["x"]]), "constants[0]: expected a path and a value, found 1 items"),
        (put("output_structure", value={"size": "hidden"}), "output_structure.size: hidden is no dim of this contract"),
        (put("input_structure", value={"size": "batch"}), "input_structure: "),
        (put("rung", value="magic"), "rung: expected one of '', 'differential'"),
        (put("format", value="2"), "format: expected a whole number"),
        (put("more", value=1), 'unknown key "more"'),
        (lambda data: data.pop("notes"), "'notes' is missing"),
    ],
)  # fmt: skip
def test_a_contract_that_is_not_ours(hostile: Callable[..., Path], change: Change, said: str) -> None:
    assert refusal(hostile(change)).startswith(UNREADABLE + said)
    assert not Path("x").exists()  # what os:system would have touched


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "it is nested too deep"),
        ('{"a":' * 100_000, "it is nested too deep"),
        ('{"format": 2, "format": 2}', "the key 'format' stands twice in one object"),
        ('{"format": NaN}', "NaN is no finite number"),
        ('{"format": -Infinity}', "-Infinity is no finite number"),
        ('{"format": 1e999}', "1e999 is no finite number"),
        ('{"format": ' + "9" * 100_000 + "}", "the number 99999999999999999999... is too large"),
        ("[]", "expected an object, found a list"),
        ("{", "it is no JSON: Expecting property name"),
        ("", "it is no JSON: Expecting value"),
        ('"' + "x" * 8_000_000 + '"', "it is longer than 8000000 characters"),
    ],
)
def test_a_text_that_is_no_contract(hostile: Callable[..., Path], text: str, said: str) -> None:
    assert refusal(hostile(text)).startswith(UNREADABLE + said)


def test_a_newer_format_says_so_whatever_else_it_has(hostile: Callable[..., Path]) -> None:
    path = hostile('{"format": 3, "novelty": true}')
    assert refusal(path) == "the contract has format 3, this anyshape reads format 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(" * 41 + "n" + ")" * 41, "nested more than 40 deep"),
        ("max(" * 999, "nested more than 40 deep"),
        ("-" * 20_001, "longer than 20000 characters"),
        ("n**" + "9" * 5000, "at most 19 digits"),
        ("9" * 20, "at most 19 digits"),
        ("n**65", "the power of a dim must be between 0 and 64"),
        ("(n**64)**64", "the expression is too large"),
        ("((n**8//3)**8//3)**8", "the expression is too large"),
        ("(a + b + c + d + e)**64", "the expression is too large"),
        ("(2**64)**64", "the expression is too large"),
        ("*".join(f"({letter} + 1)" for letter in "abcdefghijkl"), "the expression is too large"),
        ("(" * 39 + "n" + "//2 + 1)**2" * 39, "the expression is too large"),
        ("log2(0)", "log2(0) is not defined"),
        ("n // (m - m)", "division by zero"),
    ],
)
def test_an_expression_that_would_never_end(hostile: Callable[..., Path], text: str, said: str) -> None:
    with pytest.raises(ParseError) as info:
        parse_expr(text)
    assert said in info.value.what
    if len(text) <= 20_000:
        line = refusal(hostile(put("outputs", 0, "shape", 0, value=text)))
        assert line.startswith(f"{UNREADABLE}outputs[0].shape[0]: ") and said in line


def test_many_minus_signs_are_no_nesting() -> None:
    assert parse_expr("-" * 10_000 + "n") == parse_expr("n")


def test_a_relation_without_a_value_refuses_the_call_and_no_more(hostile: Callable[..., Path]) -> None:
    run = anyshape.load(hostile(put("relations", value=[["seq//(batch - 2)", "<=", "9"]])))
    with pytest.raises(
        anyshape.InputError, match=r"seq//\(batch - 2\) <= 9 does not hold: batch = 2, seq = 4"
    ):
        run(np.zeros((2, 4), np.int64), np.ones((2, 4), bool))


def test_a_contract_of_another_graph(hostile: Callable[..., Path]) -> None:
    said = refusal(hostile(put("inputs", 0, "name", value="words")))
    assert said.endswith("has the inputs mask, words, the graph has mask, tokens")
    said = refusal(hostile(put("outputs", 0, "name", value="y")))
    assert said.endswith("has the outputs y, the graph has output")


def test_a_contract_that_does_not_say_how_to_call(hostile: Callable[..., Path]) -> None:
    path = hostile(lambda data: data.update(input_structure=None))
    assert "does not say how the model is called" in refusal(path)


def test_two_contracts_in_one_file(two_inputs: SimpleNamespace, tmp_path: Path) -> None:
    model = onnx.load(two_inputs.path)
    model.metadata_props.add(key=CONTRACT_KEY, value="{}")
    onnx.save(model, tmp_path / "two.onnx")
    assert refusal(tmp_path / "two.onnx").endswith("two.onnx can't be used: it carries two contracts")


# --- What a file holds ----------------------------------------------------------------------------------


def test_a_file_holds_no_values_of_the_example(tmp_path: Path) -> None:
    import torch

    example = torch.tensor([[3.0, 1234.5, 7.25, 9.0]])
    anyshape.export(torch.nn.Linear(4, 2), example, tmp_path / "m.onnx")
    text = ir.load(tmp_path / "m.onnx").metadata_props[CONTRACT_KEY]
    assert "7.25" not in text and json.loads(text)["inputs"][0]["values"] == {
        "kind": "spread",
        "low": 3.0,
        "high": 1234.5,
    }


def test_there_is_no_pickle_and_no_import_by_name_in_what_reads_a_file() -> None:
    package = Path(anyshape.__file__).parent
    for path in package.rglob("*.py"):
        assert "pickle" not in path.read_text(), path
    for name in (
        "inputs/structure",
        "contract/reader",
        "contract/contract",
        "artifact/load",
        "artifact/read",
    ):
        text = (package / f"{name}.py").read_text()
        assert not any(word in text for word in ("importlib", "__import__", "eval(", "exec(")), name


# --- Other files ----------------------------------------------------------------------------------------


@pytest.fixture
def apart(two_inputs: SimpleNamespace, tmp_path: Path) -> Path:
    """An exported file with its weights apart, in a folder of its own."""
    (tmp_path / "model").mkdir()
    two_inputs.export.save(tmp_path / "model" / "m.onnx", external_data=True)
    return tmp_path / "model" / "m.onnx"


def relocated(path: Path, **entries: str) -> str:
    """The file with other entries for the place of its first tensor outside it, and how it is refused."""
    model = onnx.load(path, load_external_data=False)
    tensor = next(item for item in model.graph.initializer if item.external_data)
    place = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return refusal(path)


def test_weights_beside_the_file_are_read(apart: Path) -> None:
    assert anyshape.load(apart)(np.zeros((2, 4), np.int64), np.ones((2, 4), bool)).shape == (2, 4, 12)
    (apart.parent.parent / "link.onnx").symlink_to(apart)
    run = anyshape.load(apart.parent.parent / "link.onnx")
    assert run(np.zeros((2, 4), np.int64), np.ones((2, 4), bool)).shape == (2, 4, 12)


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../secret",
        "data/../../secret",
        "..\\secret",
        "C:secret",
        "",
        "a\x00b",
        "*/_ORT_MEM_ADDR_/*",
    ],
)
def test_weights_in_another_folder(apart: Path, location: str) -> None:
    (apart.parent.parent / "secret").write_bytes(b"s" * 100_000)
    said = relocated(apart, location=location)
    assert "has its data in" in said and said.endswith("which is not in the model's folder")


def test_weights_behind_a_link(apart: Path) -> None:
    (apart.parent / "passwd").symlink_to("/etc/passwd")
    assert relocated(apart, location="passwd").endswith("has its data in passwd, which is a symbolic link")
    (apart.parent / "etc").symlink_to("/etc")
    assert relocated(apart, location="etc/passwd").endswith("in etc/passwd, which is a symbolic link")


def test_weights_that_are_no_file(apart: Path) -> None:
    (apart.parent / "folder").mkdir()
    assert relocated(apart, location="folder").endswith("in folder, which is no file")
    os.mkfifo(apart.parent / "pipe")
    assert relocated(apart, location="pipe").endswith("in pipe, which is no file")
    assert relocated(apart, location="gone").endswith("in gone, and there is no such file")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"offset": "99999999"}, "lies beyond the end of"),
        ({"length": "99999999"}, "lies beyond the end of"),
        ({"length": "0", "offset": "100"}, "lies beyond the end of"),
        ({"offset": "-8"}, "'-8' for the place of its data, which is no number of bytes"),
        ({"offset": "9" * 30}, "for the place of its data, which is no number of bytes"),
        ({"offset": "0x10"}, "for the place of its data, which is no number of bytes"),
        ({"prepacked_0": "x"}, "has an entry 'prepacked_0' for its data, which nothing should have"),
    ],
)
def test_weights_beyond_the_end(apart: Path, entries: dict[str, str], said: str) -> None:
    data = apart.parent / "m.onnx.data"
    data.write_bytes(data.read_bytes()[:5000])
    assert said in relocated(apart, **entries)


def tensor_elsewhere() -> TensorProto:
    made = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    made.external_data.add(key="location", value="/etc/passwd")
    return made


def _in_a_constant(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor_elsewhere()))


def _in_a_list_of_tensors(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["c"]))
    model.graph.node[-1].attribute.add(
        name="x", type=onnx.AttributeProto.TENSORS, tensors=[tensor_elsewhere()]
    )


def _in_a_branch(model: onnx.ModelProto) -> None:
    inner = helper.make_graph([], "g", [], [], initializer=[tensor_elsewhere()])
    model.graph.node.append(helper.make_node("If", ["x"], ["c"], then_branch=inner, else_branch=inner))


def _in_a_sparse_tensor(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add(values=tensor_elsewhere(), dims=[2])


def _in_a_function(model: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["c"], value=tensor_elsewhere())
    model.functions.append(helper.make_function("own", "F", [], ["c"], [node], [helper.make_opsetid("", 20)]))


def _in_training(model: onnx.ModelProto) -> None:
    model.training_info.add().algorithm.initializer.append(tensor_elsewhere())


@pytest.mark.parametrize(
    "hide",
    [_in_a_constant, _in_a_list_of_tensors, _in_a_branch, _in_a_sparse_tensor, _in_a_function, _in_training],
)
def test_weights_elsewhere_are_found_wherever_they_hide(
    two_inputs: SimpleNamespace, tmp_path: Path, hide: Callable[[onnx.ModelProto], None]
) -> None:
    model = onnx.load(two_inputs.path)
    hide(model)
    (tmp_path / "h.onnx").write_bytes(model.SerializeToString())
    assert "w has its data in '/etc/passwd'" in refusal(tmp_path / "h.onnx")


# --- Graphs ---------------------------------------------------------------------------------------------


def functions(tmp_path: Path, bodies: dict[str, list[str]]) -> Path:
    """A model of one input whose functions call each other as ``bodies`` says."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    made = []
    for name, called in bodies.items():
        values = ["x", *(f"v{number}" for number in range(len(called) - 1)), "y"]
        nodes = [
            helper.make_node(
                other, [values[number]], [values[number + 1]], domain="own" if other in bodies else ""
            )
            for number, other in enumerate(called)
        ]
        made.append(helper.make_function("own", name, ["x"], ["y"], nodes, opsets))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("a", "b")]
    node = helper.make_node(next(iter(bodies)), ["a"], ["b"], domain="own")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, functions=made, opset_imports=opsets, ir_version=10)
    (tmp_path / "functions.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "functions.onnx"


def test_functions_that_call_themselves(tmp_path: Path) -> None:
    path = functions(tmp_path, {"F": ["G"], "G": ["F"]})
    assert "calls itself" in refusal(path)


def test_functions_that_double_each_time(tmp_path: Path) -> None:
    bodies = {f"F{level}": [f"F{level + 1}"] * 2 for level in range(60)} | {"F60": ["Neg"]}
    assert "with its functions written out it has more than 5000000 nodes" in refusal(
        functions(tmp_path, bodies)
    )


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def test_graphs_within_graphs(tmp_path: Path) -> None:
    graph = b""
    for _ in range(3000):
        for field in (6, 5, 1):  # a graph in an attribute of a node of a graph
            graph = bytes([field << 3 | 2]) + varint(len(graph)) + graph
    (tmp_path / "deep.onnx").write_bytes(bytes([7 << 3 | 2]) + varint(len(graph)) + graph)
    assert "deep.onnx is not a whole ONNX file" in refusal(tmp_path / "deep.onnx")


def test_a_name_that_is_no_text(two_inputs: SimpleNamespace, tmp_path: Path) -> None:
    data = two_inputs.path.read_bytes()
    (tmp_path / "odd.onnx").write_bytes(data.replace(b"batch", b"b\xe1tch"))
    assert "odd.onnx is not a whole ONNX file" in refusal(tmp_path / "odd.onnx")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    assert refusal(tmp_path / "pipe.onnx").endswith("is a device or a pipe, not an ONNX file")
    with (tmp_path / "huge.onnx").open("wb") as out:
        out.truncate(2**31)
    assert refusal(tmp_path / "huge.onnx").endswith("has 2147483648 bytes: an ONNX file has at most 2 GB")


# --- What a person sees ---------------------------------------------------------------------------------


def foreign(tmp_path: Path) -> Path:
    """Another exporter's file, with names that are commands to a terminal."""
    evil = "\x1b]0;owned\x07\x1b[2J"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"n{evil}"])
        for name in (f"x{evil}", "y" * 5000)
    ]
    node = helper.make_node("Neg", [f"x{evil}"], ["y" * 5000])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, producer_name=evil, opset_imports=opsets, ir_version=10)
    onnx.save(model, tmp_path / "foreign.onnx")
    return tmp_path / "foreign.onnx"


def test_show_prints_names_and_no_commands(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["show", str(foreign(tmp_path))])
    assert done.exit_code == 0
    assert (
        "x\\x1b]0;owned\\x07\\x1b[2J" in done.output
        and "\x1b" not in done.output
        and "\x07" not in done.output
    )
    assert max(map(len, done.output.splitlines())) < 1000


def test_verify_prints_no_commands(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\n"
        "def build():\n    return Net(), (torch.ones(3),)\n"
    )
    done = CliRunner().invoke(
        app, ["verify", str(foreign(tmp_path)), "--against", f"{tmp_path}/net.py:build", "-v"]
    )
    assert done.exit_code == 1 and "Wrong at" in done.output
    assert "\x1b" not in done.output and "\x07" not in done.output


def test_a_traceback_prints_no_commands(tmp_path: Path) -> None:
    path = foreign(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"Neg", b"N\x1bg"))
    done = CliRunner().invoke(app, ["show", str(path), "-v"])
    assert done.exit_code == 2 and "Traceback" in done.output and "N\\x1bg" in done.output
    assert "\x1b" not in done.output


def test_a_refusal_prints_no_commands(tmp_path: Path) -> None:
    path = tmp_path / "model\x1b[2J.onnx"
    done = CliRunner().invoke(app, ["show", str(path)])
    assert done.exit_code == 2 and "\x1b" not in done.output


def test_run_refuses_sizes_that_no_memory_holds(hostile: Callable[..., Path]) -> None:
    def huge(data: Any) -> None:
        data["dims"][0]["example"] = 2**52

    done = CliRunner().invoke(app, ["run", str(hostile(huge))])
    assert done.exit_code == 2 and "too many to make up" in done.output


# --- Without PyTorch ------------------------------------------------------------------------------------

BLOCKED = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("there is no torch here")

sys.meta_path.insert(0, NoTorch())
import numpy as np
import anyshape
run = anyshape.load(sys.argv[1])
made = run(np.zeros((3, 4), np.int64), mask=np.ones((3, 4), bool))
assert type(made) is np.ndarray and made.shape == (3, 4, 12), made
assert run(np.zeros((0, 4), np.int64), np.ones((0, 4), bool)).shape == (0, 4, 12)
try:
    run(np.zeros((3, 4), np.int64), np.ones((3, 5), bool))
except anyshape.InputError as error:
    print(error.what)
assert not [name for name in sys.modules if name.partition(".")[0] == "torch" or "torch_bridge" in name]
"""


def test_a_file_is_loaded_and_run_without_torch(two_inputs: SimpleNamespace) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(two_inputs.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "seq is 4 in tokens but 5 in mask"


def test_what_is_read_is_what_was_written(two_inputs: SimpleNamespace) -> None:
    text = read_model(two_inputs.path).metadata_props[CONTRACT_KEY]
    assert Contract.from_json(text).to_json() == text
