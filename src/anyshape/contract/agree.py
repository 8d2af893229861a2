"""agree: what the user declared and what probe found become one `Contract`; what contradicts is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anyshape.contract.contract import Contract, Dim, Origin, Tensor
from anyshape.contract.declare import FOUND, FREE, STATIC, UNLISTED, Declaration, Size
from anyshape.contract.naming import name_dims
from anyshape.dims import Expr, Mismatch, Range, Relation, Space, bind, isqrt, names
from anyshape.dims import generic as generic_rows
from anyshape.errors import ContractFault, DeclarationError
from anyshape.inputs.case import Case
from anyshape.inputs.structure import shown
from anyshape.inputs.values import Rule
from anyshape.probe import Evidence, FoundDim

__all__ = ["CHANGES_ITSELF", "Agreed", "agree"]

CHANGES_ITSELF = "the model changes itself"


@dataclass(frozen=True, slots=True)
class Agreed:
    """The contract, and what later stations need beside it: value rules and sizes free of coincidences."""

    contract: Contract
    rules: tuple[Rule, ...]
    generic: Mapping[str, int]
    explicit: frozenset[str] = frozenset()  # dims whose range the user declared


@dataclass
class _Union:
    """The found dims in terms of the user's names, as far as they are known."""

    meaning: dict[str, Expr] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    labels: bool = False
    renamed: dict[str, Expr] = field(default_factory=dict)
    said: dict[Expr, Expr] = field(default_factory=dict)  # found sizes in the user's words
    free: set[str] = field(default_factory=set)  # found dims that were declared dynamic, without a name

    def resolved(self, found: Expr) -> Expr:
        return found.substitute(self.meaning)

    def written(self, declared: Size, found: Expr) -> Expr:
        """A size in the user's own words where there are any: ``height``, with a relation, not ``8*(height // 8)``."""
        if isinstance(declared, Expr) and declared.names:
            return declared.substitute(self.renamed)
        return self.resolved(found)

    def learn(self, place: str, declared: Expr, found: Expr) -> None:
        """``declared`` and ``found`` are one size: what does that say of the found dims?"""
        if found in self.said:
            self._compare(place, declared, self.said[found].substitute(self.renamed))
            return
        self.said[found] = declared
        known = self.resolved(found)
        unknown = sorted(name for name in known.names if names.is_found(name))
        affine, square = known.affine(), known.squared()
        if unknown and square is not None:
            root, offset = square
            side = isqrt(declared - offset)
            if side**2 + offset != declared:
                self.relations.append(Relation(side**2 + offset, "==", declared))
            self.learn(place, side, root)
            return
        if not unknown or affine is None:
            self._compare(place, declared, known)
            return
        name = unknown[0]
        rate = affine[0][name]
        rest = declared - (known - Expr.of(name) * rate)
        quotient = rest // rate
        self.meaning = {key: value.substitute({name: quotient}) for key, value in self.meaning.items()}
        self.meaning[name] = quotient
        if quotient * rate != rest:
            self.relations.append(Relation(rest % rate, "==", Expr.of(0)))

    def _compare(self, place: str, declared: Expr, known: Expr) -> None:
        if declared == known:
            return
        if known.constant is not None:
            raise DeclarationError(
                f"{place} is declared {declared}, but PyTorch accepts only {known} there",
                hint=f"Declare {known} at that axis, or give an example that shows another size.",
            )
        if self.labels and declared.name is not None and known.name is not None:
            self.notes.append(f"{declared} is always {known}: they are one dim")
            self._rename(declared.name, known)
            return
        raise DeclarationError(
            f"{place} is declared {declared}, but PyTorch accepts only {known} there",
            hint=f"Declare {known} at that axis.",
        )

    def _rename(self, name: str, to: Expr) -> None:
        self.meaning = {key: value.substitute({name: to}) for key, value in self.meaning.items()}
        self.renamed = {key: value.substitute({name: to}) for key, value in self.renamed.items()} | {name: to}


def agree(case: Case, declaration: Declaration, evidence: Evidence, notes: Sequence[str] = ()) -> Agreed:
    """The contract of declared and found together, never narrower than what was declared."""
    union = _Union(labels=declaration.labels, notes=list(notes))
    for number, item in enumerate(case.inputs):
        for axis, size in enumerate(declaration.sizes[number]):
            found = evidence.shapes[number][axis]
            place = f"{item.path} axis {axis}"
            if isinstance(size, Expr) and size.names:
                _check_varies(place, str(size), evidence, number, axis, item.shape[axis])
                union.learn(place, size, found)
            elif size is FREE:
                _check_varies(place, "dynamic", evidence, number, axis, item.shape[axis])
                union.free |= found.names
    _pin_static(case, declaration, evidence, union)
    _name_the_rest(case, declaration, evidence, union)
    _take_relations(evidence, union)
    return _agreed(case, declaration, evidence, union)


def _check_varies(place: str, declared: str, evidence: Evidence, number: int, axis: int, size: int) -> None:
    if evidence.shapes[number][axis].constant is None:
        return
    objection = evidence.objections.get((number, axis))
    said = f": {objection.text}" if objection is not None else ""
    reason = "" if evidence.complete else " (probing was cut short by its budget)"
    raise ContractFault(
        f"{place} is declared {declared}, but PyTorch runs only at {size} there{reason}{said}",
        where=None if objection is None else objection.where,
        hint="A size may be written into the model: make it depend on the input's shape, or declare the axis static.",
    )


def _pin_static(case: Case, declaration: Declaration, evidence: Evidence, union: _Union) -> None:
    """Axes declared static hold their dims at the example; unlisted ones do so unless a listed axis moves them."""
    for wanted in (STATIC, UNLISTED):
        for number, item in enumerate(case.inputs):
            for axis, size in enumerate(declaration.sizes[number]):
                constant = isinstance(size, Expr) and size.constant is not None
                if size is wanted or (constant and wanted is STATIC):
                    place, found = f"{item.path} axis {axis}", evidence.shapes[number][axis]
                    _pin(union, evidence, place, found, wanted is STATIC)


def _pin(union: _Union, evidence: Evidence, place: str, found: Expr, strict: bool) -> None:
    known = union.resolved(found)
    for name in sorted(known.names):
        if names.is_found(name) and name not in union.free:
            union.meaning[name] = Expr.of(evidence.dim(name).example)
        elif strict:
            raise DeclarationError(
                f"{place} is declared static, but it moves with an axis that is declared {_words(name)}",
                hint="Declare them alike, or this axis not at all.",
            )


def _words(name: str) -> str:
    return "dynamic" if names.is_found(name) else name


def _name_the_rest(case: Case, declaration: Declaration, evidence: Evidence, union: _Union) -> None:
    left = [dim.name for dim in evidence.dims if dim.name not in union.meaning]
    # Names are chosen from how the shapes read with what is known already filled in.
    shapes = [tuple(union.resolved(size) for size in shape) for shape in evidence.shapes]
    rules = [r if r.limit is None else replace(r, limit=union.resolved(r.limit)) for r in evidence.rules]
    for provisional, name in name_dims(case, left, shapes, rules, declaration.names).items():
        union.meaning[provisional] = Expr.of(name)


def _take_relations(evidence: Evidence, union: _Union) -> None:
    """What was found of sizes together, in terms of the names; what the names say already is left out."""
    for relation in evidence.relations:
        named = Relation(union.resolved(relation.left), relation.op, union.resolved(relation.right))
        if named.names:
            union.relations.append(named)


def _agreed(case: Case, declaration: Declaration, evidence: Evidence, union: _Union) -> Agreed:
    shapes = [
        tuple(union.written(size, found) for size, found in zip(sizes, shape, strict=True))
        for sizes, shape in zip(declaration.sizes, evidence.shapes, strict=True)
    ]
    rules = tuple(r if r.limit is None else replace(r, limit=union.resolved(r.limit)) for r in evidence.rules)
    sizes = [size for shape in shapes for size in shape]
    names = list(dict.fromkeys(name for size in sizes for name in sorted(size.names, key=str(size).find)))
    unknown = [name for name in declaration.ranges if name not in names]
    if unknown:
        raise DeclarationError(
            f"dims has {unknown[0]}, which is no dim of this model",
            hint="The dims are: " + ", ".join(names) + ".",
        )
    example = _inverse(evidence, union, {d.name: d.example for d in evidence.dims})
    example |= _example(case, shapes, declaration)
    generic = {**example, **_inverse(evidence, union, {d.name: d.generic for d in evidence.dims})}
    dims = []
    for name in names:
        found, source = _found_range(evidence, union, name)
        declared = declaration.ranges.get(name)
        range_ = _checked_range(name, declared, found, source)
        origin: Origin = "declared" if name in declaration.names else "found"
        reason = _reason(range_, found, source)
        limit = None if source is None else _in_sizes(union, source, source.tried, most=True)
        dims.append(Dim(name, range_, example[name], origin, "sampled", reason, limit))
    inputs = tuple(
        Tensor(item.path, str(item.example.dtype).removeprefix("torch."), shape, rule.to_json())
        for item, shape, rule in zip(case.inputs, shapes, rules, strict=True)
    )
    contract = Contract(
        tuple(dims),
        inputs,
        relations=tuple(dict.fromkeys(union.relations)),
        constants=tuple((path, shown(value)) for path, value in case.constants),
        notes=(*case.notes, *union.notes, *_fixed(case, declaration, evidence), *_notes(evidence)),
        arguments=case.argument_names,
        input_structure=case.structure.to_json(),
    )
    clipped = {dim.name: _clipped(generic[dim.name], dim.range, dim.example) for dim in dims}
    if not contract.allows(clipped):
        space = Space(contract.ranges, contract.relations, typical=clipped)
        clipped = next(iter(generic_rows(space, case.weight_sizes())), clipped)
    return Agreed(contract, rules, clipped, frozenset(declaration.ranges))


def _fixed(case: Case, declaration: Declaration, evidence: Evidence) -> list[str]:
    """Why sizes can't vary that no weight has and nobody declared fixed: PyTorch's own words, and the line."""
    places: dict[str, list[str]] = {}
    weights = case.weight_sizes()
    for (number, axis), objection in sorted(evidence.objections.items()):
        item, size = case.inputs[number], case.shapes[number][axis]
        if size in weights or declaration.sizes[number][axis] is not FOUND:
            continue
        where = f" ({objection.where.file}:{objection.where.line})" if objection.where else ""
        places.setdefault(f"{objection.text}{where}", []).append(f"{item.path} axis {axis} at {size}")
    return [f"fixed: {' and '.join(axes)}: {said}" for said, axes in places.items()]


def _notes(evidence: Evidence) -> list[str]:
    made = []
    if not evidence.complete:
        made.append("probing was cut short by its budget: a fixed size may be able to vary")
    if evidence.fake:
        made.append("probed on fake tensors: limits that depend on values were not seen")
    return made


def _clipped(size: int, range_: Range, example: int) -> int:
    return size if range_.contains(size) else example if range_.contains(example) else range_.minimum


def _example(case: Case, shapes: Sequence[tuple[Expr, ...]], declaration: Declaration) -> dict[str, int]:
    """The sizes of the named dims at the example, as far as its shapes tell them."""
    try:
        return bind([(item.path, shape, item.shape) for item, shape in zip(case.inputs, shapes, strict=True)])
    except Mismatch as mismatch:
        if not declaration.names:
            return {}
        raise DeclarationError(
            f"the example does not fit what is declared: {mismatch}",
            hint="Give an example of the declared shape.",
        ) from mismatch


def _inverse(evidence: Evidence, union: _Union, provisional: Mapping[str, int]) -> dict[str, int]:
    """Named sizes read off where a found dim means one name: those that make it ``provisional``, or a little more."""
    sizes: dict[str, int] = {}
    for dim in evidence.dims:
        meaning = union.meaning[dim.name]
        size = _in_sizes(union, dim, provisional[dim.name])
        if len(meaning.names) == 1 and size is not None:
            (name,) = meaning.names
            sizes[name] = size
    return sizes


def _fits(union: _Union, sizes: Mapping[str, int]) -> bool:
    try:
        return all(relation.holds(sizes) for relation in union.relations if relation.names <= sizes.keys())
    except ValueError:  # isqrt(n - 1) is not defined at 0
        return False


def _found_range(evidence: Evidence, union: _Union, name: str) -> tuple[Range, FoundDim | None]:
    """The range of a named dim as PyTorch has it, through the found dim that means it."""
    for dim in evidence.dims:
        meaning = union.meaning[dim.name]
        if meaning.names == {name}:
            low = _in_sizes(union, dim, dim.range.minimum)
            high = None if dim.range.maximum is None else _in_sizes(union, dim, dim.range.maximum, most=True)
            return Range(low if low is not None else 0, high), dim
    return Range(0, None), None


def _in_sizes(union: _Union, dim: FoundDim, value: int, *, most: bool = False) -> int | None:
    """The least size of the named dim at which the found dim has at least ``value``; the ``most`` with at most that."""
    meaning = union.meaning[dim.name]
    if len(meaning.names) != 1 or meaning.name is not None:
        return value
    (name,) = meaning.names
    last = None
    for size in range(1 << 16):
        if not _fits(union, {name: size}):
            continue
        here = meaning.evaluate({name: size})
        if most and here > value:
            break
        if not most and here >= value:
            return size
        last = size
    return last if most else None


def _checked_range(name: str, declared: Range | None, found: Range, source: FoundDim | None) -> Range:
    if declared is None:
        return found
    where = None if source is None else source.above
    if found.maximum is not None and declared.minimum > found.maximum:
        raise ContractFault(
            f"no size satisfies the contract: {name} is declared {declared.text()}, "
            f"but PyTorch accepts only {found.text()}",
            where=where,
        )
    if declared.maximum is not None and declared.maximum < found.minimum:
        raise ContractFault(
            f"no size satisfies the contract: {name} is declared {declared.text()}, "
            f"but PyTorch accepts only {found.text()}",
            where=None if source is None else source.below,
        )
    if found.maximum is not None and declared.maximum is not None and declared.maximum > found.maximum:
        error = f" ({source.above_error})" if source is not None and source.above_error else ""
        raise ContractFault(
            f"{name} is declared up to {declared.maximum}, but PyTorch fails at {name} = {found.maximum + 1}{error}",
            where=where,
            hint=f"Declare {name} as {max(declared.minimum, found.minimum)}..{found.maximum}.",
        )
    if 0 < declared.minimum < found.minimum:
        raise ContractFault(
            f"{name} is declared from {declared.minimum}, but PyTorch accepts it only from {found.minimum}",
            where=None if source is None else source.below,
            hint=f"Declare {name} as >={found.minimum}.",
        )
    met = declared.intersect(found)
    assert met is not None
    return met


def _reason(range_: Range, found: Range, source: FoundDim | None) -> str:
    """Why the range ends where it does, if PyTorch ended it."""
    if (
        source is not None
        and source.changes_itself
        and source.below is not None
        and range_.minimum == found.minimum
    ):
        return f"{CHANGES_ITSELF} below, {source.below.file}:{source.below.line}"
    if source is None or source.above is None or range_.maximum is None or range_.maximum != found.maximum:
        return ""
    return f"{source.above_error.partition(':')[0]} above, {source.above.file}:{source.above.line}"
