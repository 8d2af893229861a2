#!/usr/bin/env python3
"""Read thousands of damaged contracts and ONNX files: each must be refused with a `FileError`, or work.

    python benchmarks/robustness.py                       # 20,000 contracts and 5,000 files
    python benchmarks/robustness.py --contracts 500 --files 200 --seed 7

Files are read and run in a process of their own, so that a library which brings its process down is seen and counted.
Exits with 1 if anything else came out than a `FileError` or a file that works.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

CONTRACT_KEY = "anyshape.contract"
MOST_SECONDS = 30.0  # for one file
MOST_MEMORY = 6 << 30  # of the process that reads files, in bytes
MOST_ELEMENTS = 1 << 20  # of an input that is made to call a file

REFUSED, WORKS = "FileError", "works"

# --- Damaged JSON ---------------------------------------------------------------------------------------

BOMBS = (
    *("9" * 5000, "n**64**64", "(" * 500 + "n" + ")" * 500, "-" * 5000 + "n", "((n**64//3)**64//3)**64"),
    *("n//0", "log2(0)", "seq//(seq - 1)", "isqrt(1 - seq)"),
)
NAMES = (
    *("", "\x1b[2J", "\u202etxt", "a\nb", "x" * 3000, "_d0", "class", "__init__", "os:system", "\ud800"),
    *("batch", "n"),
)
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**53, 2**53 + 1, 2**64, -(2**63), 10**400),
    *(0.5, -0.0, 1e308, float("inf"), float("nan")),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"a": []}, "tensor", {"constant": 1})
VALUES = (*BOMBS, *NAMES, *NUMBERS, *OTHERS)
KEYS = (
    *("name", "kind", "children", "keys", "type", "constant", "format", "range", "seen", "shape", "values"),
    *("", "\x1b"),
)

Place = tuple[Any, Any]  # a container and a key or an index in it


def places(value: Any) -> Iterator[Place]:
    """Every place in a JSON value."""
    keys: Sequence[Any] = (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from places(value[key])


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))  # deepcopy is recursive in Python, and some values are deep


def _another_value(at: Place, others: list[Place], chance: random.Random) -> None:
    at[0][at[1]] = _copy(chance.choice(VALUES))


def _value_from_elsewhere(at: Place, others: list[Place], chance: random.Random) -> None:
    container, key = chance.choice(others)
    at[0][at[1]] = _copy(container[key])


def _gone(at: Place, others: list[Place], chance: random.Random) -> None:
    del at[0][at[1]]


def _renamed_or_repeated(at: Place, others: list[Place], chance: random.Random) -> None:
    container, key = at
    if isinstance(container, dict):
        container[chance.choice(KEYS)] = container.pop(key)
    else:
        container.insert(key, _copy(container[key]))


def _added(at: Place, others: list[Place], chance: random.Random) -> None:
    container, _ = at
    value = _copy(chance.choice(VALUES))
    if isinstance(container, dict):
        container[chance.choice(KEYS)] = value
    else:
        container.insert(chance.randrange(len(container) + 1), value)


def _nested(at: Place, others: list[Place], chance: random.Random) -> None:
    value = at[0][at[1]]
    for _ in range(chance.choice((1, 2, 70))):
        value = chance.choice(([value], {"kind": "tuple", "children": [value]}))
    at[0][at[1]] = value


def _another_letter(at: Place, others: list[Place], chance: random.Random) -> None:
    value = at[0][at[1]]
    if isinstance(value, str):
        cut = chance.randrange(len(value) + 1)
        at[0][at[1]] = (
            value[:cut]
            + chance.choice(("\x1b", "*", "(", "-", "9", "n", "é", " ", "\x00", "//", ""))
            + value[cut + 1 :]
        )
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        at[0][at[1]] = value + chance.choice((-1, 1, 1 << 60))


CHANGES: tuple[Callable[[Place, list[Place], random.Random], None], ...] = (
    _another_value,
    _value_from_elsewhere,
    _gone,
    _renamed_or_repeated,
    _added,
    _nested,
    _another_letter,
    _another_letter,
)


def mutated_contract(text: str, chance: random.Random) -> str:
    """The JSON text of a contract with one or a few things in it changed."""
    root = [json.loads(text)]
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        found = list(places(root))
        if found:
            chance.choice(CHANGES)(chance.choice(found), found, chance)
    made = json.dumps(root[0] if root else None)
    if chance.random() < 0.2:
        cut = chance.randrange(len(made) + 1)
        added = chance.choice(
            ("", "1e999", "NaN", '"name": 1,', "{" * 100_000, "[" * 3000, "9" * 6000, "\\ud800", ",")
        )
        made = made[:cut] + added + (made[cut + chance.choice((0, 1, 5)) :] if chance.random() < 0.7 else "")
    return made


# --- Damaged files --------------------------------------------------------------------------------------


def mutated_file(data: bytes, chance: random.Random) -> bytes:
    """An ONNX file with bits flipped or bytes lost, with fields of its messages changed, or with another contract."""
    how = chance.random()
    if how < 0.25:
        return _mutated_bytes(data, chance)
    import onnx

    model = onnx.ModelProto.FromString(data)
    if how < 0.4:
        for item in model.metadata_props:
            if item.key == CONTRACT_KEY:
                item.value = mutated_contract(item.value, chance).encode("utf-8", "replace").decode()
        return bytes(model.SerializeToString())
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        messages = list(_messages(model))
        _change_field(chance.choice(messages), messages, chance)
    return bytes(model.SerializeToString())


def _mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    if chance.random() < 0.1:
        return bytes(made[: chance.randrange(len(made))])
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(made))
        how = chance.randrange(4)
        if how == 0:
            made[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            made[at] = chance.choice((0, 1, 127, 128, 255))
        elif how == 2 and len(made) > 40:
            del made[at : at + chance.randrange(1, 20)]
        else:
            start = chance.randrange(len(made))
            made[at:at] = made[start : start + chance.randrange(1, 20)]
        made = made or bytearray(b"\x00")
    return bytes(made)


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if _is_repeated(field) else (value,):
                yield from _messages(part)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _change_field(message: Any, others: Sequence[Any], chance: random.Random) -> None:
    """One field of a message: cleared, repeated, put in another order, or with a value of another message's."""
    field = chance.choice(list(message.DESCRIPTOR.fields))
    held = getattr(message, field.name)
    how = chance.randrange(5)
    if how == 0:
        message.ClearField(field.name)
    elif field.message_type is not None:
        alike = [other for other in others if other.DESCRIPTOR is field.message_type]
        if not alike:
            return
        other = copy.deepcopy(chance.choice(alike))  # a message that holds itself would grow without end
        (held.add() if _is_repeated(field) else held).CopyFrom(other)
    elif _is_repeated(field):
        values = [
            *held,
            *(held[:1] if how == 1 else ()),
            *([_scalar(field, others, chance)] if how == 2 else ()),
        ]
        chance.shuffle(values)
        message.ClearField(field.name)
        getattr(message, field.name).extend(values)
    else:
        setattr(message, field.name, _scalar(field, others, chance))


def _scalar(field: Any, others: Sequence[Any], chance: random.Random) -> Any:
    """A value that the field can have: one of another message, or an extreme one."""
    if field.enum_type is not None:
        return chance.choice(field.enum_type.values).number
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 4, 8, 40))))
        fields = [value for other in others for _, value in other.ListFields()]
        texts = [value for value in fields if isinstance(value, str) and len(value) < 99]
        return chance.choice((*texts, "", "\x1b[2J", "/etc/passwd", "../x", "Loop", "If", "x" * 3000))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if field.cpp_type == field.CPPTYPE_BOOL:
        return chance.random() < 0.5
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    signed = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32)
    top = (1 << (63 if wide else 31)) - 1
    return chance.choice((0, 1, 2, 3, 7, 16, 1000, 1 << 20, top, *((-1, -2, -top - 1) if signed else ())))


# --- What comes of them ---------------------------------------------------------------------------------


def outcome_of_contract(text: str) -> str:
    """What a contract's text comes to: read and used, refused in one line, or neither."""
    from anyshape.contract import Contract
    from anyshape.errors import FileError, InputError

    try:
        contract = Contract.from_json(text)
    except FileError as error:
        return (
            REFUSED
            if "\n" not in error.what and error.what.isprintable()
            else f"not one line: {error.what!r}"
        )
    except Exception as error:  # that is what is looked for
        return f"{type(error).__name__}: {error}"
    try:
        str(contract)
        contract.bind([tuple(3 for _ in item.shape) for item in contract.inputs])
        same = Contract.from_json(contract.to_json()) == contract or "nan" in text.lower()
    except InputError:
        return WORKS
    except Exception as error:
        return f"{type(error).__name__} in use: {error}"
    return WORKS if same else "another contract when it is written and read again"


def outcome_of_file(path: str) -> str:
    """What a file comes to: loaded and called, refused, or neither."""
    import anyshape
    from anyshape.errors import FileError, InputError

    try:
        run = anyshape.load(path)
    except FileError as error:
        return (
            REFUSED
            if "\n" not in error.what and error.what.isprintable()
            else f"not one line: {error.what!r}"
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        args, kwargs = _arguments(run.contract)
        run(*args, **kwargs)
    except InputError:
        return WORKS
    except Exception as error:
        return f"{type(error).__name__} in use: {error}"
    return WORKS


def _arguments(contract: Any) -> Any:
    """Arrays at the example's sizes, or with every size 1 where these are none, or too large."""
    import math

    import ml_dtypes
    import numpy

    from anyshape.inputs.structure import structure_from_json

    try:
        shapes = contract.shapes(contract.example)
    except (ValueError, ZeroDivisionError):
        shapes = tuple((1,) * len(item.shape) for item in contract.inputs)
    arrays = []
    for item, shape in zip(contract.inputs, shapes, strict=True):
        fits = all(size >= 0 for size in shape) and math.prod(shape) <= MOST_ELEMENTS
        dtype = getattr(ml_dtypes, item.dtype, None) or numpy.dtype(item.dtype)
        arrays.append(numpy.ones(shape if fits else (1,) * len(shape), dtype))
    return structure_from_json(contract.input_structure).rebuild(arrays)


# --- A process for files --------------------------------------------------------------------------------


class Reader:
    """A process that loads and calls files, one after another; when it ends, or hangs, the next file gets a new one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def outcome(self, path: Path) -> str:
        """What the file comes to, in another process; what its process dies of is an outcome too."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--read"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already: there will be no answer either
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], MOST_SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            return str(json.loads(line))
        self.close()
        return (
            f"its process dies (exit code {process.returncode})"
            if ready
            else f"no answer in {MOST_SECONDS:.0f} s"
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def read_files() -> None:
    """The process for files: a path on each line of standard input, an outcome on each line of standard output."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    answers = os.fdopen(os.dup(1), "w")  # what libraries print must not get among the answers
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(outcome_of_file(line.rstrip("\n"))) + "\n")
        answers.flush()


# --- The run --------------------------------------------------------------------------------------------


def examples(folder: Path) -> list[Path]:
    """Valid files, of small models that between them use most of what a contract and a graph can hold."""
    import torch
    from torch import nn

    import anyshape

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(50, 4), nn.Embedding(128, 4)

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (self.words(tokens) + self.places(torch.arange(tokens.shape[1]))) * mask.unsqueeze(-1)

    class Image(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.memory = nn.Conv2d(3, 4, 3, stride=2), nn.LSTM(4, 3, batch_first=True)

        def forward(self, image: torch.Tensor, *, scale: float = 1.0) -> dict[str, Any]:
            made = torch.relu(self.layer(image)) * scale
            states, _ = self.memory(made.flatten(2).transpose(1, 2))
            return {"states": states, "pooled": [made.amax((2, 3)), "text"]}

    class Steps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(x.shape[0])
            for step in range(x.shape[1]):
                total = torch.tanh(total + x[:, step])
            return total

    torch.manual_seed(0)
    cases: list[tuple[nn.Module, Any, dict[str, Any]]] = [
        (nn.Linear(10, 5), torch.randn(3, 10), {}),
        (Text(), (torch.randint(0, 50, (2, 6)), torch.ones(2, 6, dtype=torch.bool)), {}),
        (Image(), torch.randn(2, 3, 9, 11), {"scale": 2.0}),
        (Steps(), torch.randn(3, 6), {}),
    ]
    made = [folder / f"{type(module).__name__.lower()}.onnx" for module, _, _ in cases]
    for (module, args, kwargs), path in zip(cases, made, strict=True):
        anyshape.export(module, args, path, kwargs=kwargs)
    return made


def contract_text(path: Path) -> str:
    """The text of the contract in a file."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return str(next(item.value for item in model.metadata_props if item.key == CONTRACT_KEY))


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged contracts and files: each is refused, or works.")
    parser.add_argument("--contracts", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_files()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        valid = examples(Path(folder))
        wrong = _run_contracts([contract_text(path) for path in valid], options.contracts, options.seed)
        wrong += _run_files([path.read_bytes() for path in valid], options.files, options.seed, Path(folder))
    return 1 if wrong else 0


def _run_contracts(texts: Sequence[str], count: int, seed: int) -> int:
    chance, counts, start = random.Random(seed), Counter[str](), time.perf_counter()
    for number in range(count):
        counts[_told(number, outcome_of_contract(mutated_contract(chance.choice(texts), chance)))] += 1
    return _report("contracts", counts, start)


def _run_files(valid: Sequence[bytes], count: int, seed: int, folder: Path) -> int:
    chance, counts, start = random.Random(seed), Counter[str](), time.perf_counter()
    reader, path = Reader(), folder / "mutated.onnx"
    for number in range(count):
        data = mutated_file(chance.choice(valid), chance)
        path.write_bytes(data)
        outcome = _told(number, reader.outcome(path))
        counts[outcome] += 1
        if outcome == "other":
            kept = Path(tempfile.gettempdir()) / f"robustness-{seed}-{number}.onnx"
            kept.write_bytes(data)
            print(f"  kept as {kept}")
    reader.close()
    return _report("files", counts, start)


def _told(number: int, outcome: str) -> str:
    if outcome in (REFUSED, WORKS):
        return outcome
    print(f"  {number}: {outcome[:300]}", flush=True)
    return "other"


def _report(what: str, counts: Counter[str], start: float) -> int:
    print(
        f"{counts.total()} mutated {what}: {counts[REFUSED]} FileError, {counts[WORKS]} work, "
        f"{counts['other']} other, {time.perf_counter() - start:.1f} s",
        flush=True,
    )
    return counts["other"]


if __name__ == "__main__":
    sys.exit(main())
