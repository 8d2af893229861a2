"""The grammar: a rule is a statement with holes, which its slots fill. A rule that does not run is not written.

Every group is something that people do with sizes. A program takes a few groups, so that one statement which no
exporter can follow does not hide all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuzzing.slots import Slots

__all__ = ["GROUPS", "PLAIN", "Rule"]

Rule = Callable[[Slots], str]


def _block(head: str, *lines: str) -> str:
    return "\n".join([head, *(f"    {line}" for line in lines)])


# --- What models are made of ----------------------------------------------------------------------------

LAYERS: tuple[Rule, ...] = (
    lambda s: f"{s.feat} = {s.part(f'nn.Linear({s.width}, {s.out})')}({s.feat})",
    lambda s: f"{s.feat} = F.relu({s.part(f'nn.Linear({s.width}, {s.width})')}({s.feat})) + {s.feat}",
    lambda s: f"{s.feat} = {s.part(f'nn.LayerNorm({s.width})')}({s.feat})",
    lambda s: f"{s.seq} = {s.part(f'nn.GRU({s.columns(s.seq)}, {s.out}, batch_first=True)')}({s.seq})[0]",
    lambda s: (
        f"{s.seq} = {s.part(f'nn.LSTM({s.columns(s.seq)}, 4, batch_first=True, bidirectional=True)')}({s.seq})[0]"
    ),
    lambda s: (
        f"{s.seq} = {s.part(f'nn.Conv1d({s.columns(s.seq)}, 6, 3, padding=1)')}({s.seq}.transpose(1, 2))"
    ),
    lambda s: (
        f"{s.signal} = {s.part(f'nn.Conv1d({s.channels(s.signal)}, 4, 3, stride=2, padding=1)')}({s.signal})"
    ),
    lambda s: f"{s.signal} = F.max_pool1d({s.signal}, 2, ceil_mode={s.chance.random() < 0.5})",
    lambda s: f"{s.signal} = F.adaptive_avg_pool1d({s.signal}, {s.k})",
    lambda s: f"{s.signal} = F.interpolate({s.signal}, scale_factor={s.chance.choice((2, 0.5, 1.5))})",
    lambda s: f"{s.signal} = {s.signal}.transpose(1, 2)",
    lambda s: (
        f"{s.image} = F.relu({s.part(f'nn.Conv2d({s.channels(s.image)}, 4, 3, padding=1)')}({s.image}))"
    ),
    lambda s: f"{s.image} = {s.part(f'nn.Conv2d({s.channels(s.image)}, 3, 2, stride=2)')}({s.image})",
    lambda s: f"{s.image} = F.avg_pool2d({s.image}, {s.chance.choice((2, 3))})",
    lambda s: f"{s.image} = F.adaptive_avg_pool2d({s.image}, ({s.k}, {s.k}))",
    lambda s: f"{s.image} = F.interpolate({s.image}, scale_factor=2, mode='nearest')",
    lambda s: f"{s.image} = {s.image}.flatten(2).transpose(1, 2)",
    lambda s: (
        f"{s.image} = F.interpolate({s.image}, "
        f"size=({s.size_of(s.image, 2)} // 2 + 1, {s.size_of(s.image, 3)} + 1), mode='bilinear')"
    ),
    lambda s: f"{s.image} = {s.part(f'nn.BatchNorm2d({s.channels(s.image)})')}({s.image})",
    lambda s: f"{s.new} = {s.part('nn.Embedding(20, 4)')}({s.ints} % 20)",
    lambda s: (
        f"{s.x} = {s.chance.choice(('torch.tanh', 'F.relu', 'F.gelu', 'torch.sigmoid', 'torch.sin'))}({s.x})"
    ),
    lambda s: f"{s.x} = {s.x} * {s.chance.choice((0.5, 2, -1))} + {s.chance.choice((0.1, 1))}",
)

AXES: tuple[Rule, ...] = (
    lambda s: f"{s.x} = {s.same()}",
    lambda s: f"{s.x} = {s.same()}",
    lambda s: f"{s.x} = {s.x}.roll(1, {s.a})",
    lambda s: f"{s.x} = torch.cat([{s.x}, {s.x}.flip({s.a})], {s.a})",
    lambda s: f"{s.x} = torch.cat([{s.cut('-1:')}, {s.cut(':-1')}], {s.a})",
    lambda s: f"{s.x} = {s.cut('1:')}",
    lambda s: f"{s.x} = {s.cut(f'::{s.k}')}",
    lambda s: f"{s.x} = {s.cut(f':{s.limit}')}",
    lambda s: f"{s.x} = {s.cut('1:')} - {s.cut(':-1')}",
    lambda s: f"{s.x} = F.pad({s.x}, {s.padding(s.x, s.a, '1', '2')})",
    lambda s: f"{s.x} = {s.x} - {s.x}.max({s.a}, keepdim=True)[0]",
    lambda s: f"{s.x} = {s.x} / (1 + {s.x}.std({s.a}, keepdim=True, correction=0))",
    lambda s: f"{s.x} = {s.x}.topk(2, {s.a})[0]",
    lambda s: f"{s.x} = {s.x}.repeat_interleave(2, {s.a})",
    lambda s: f"{s.x} = {s.x}.transpose(0, {s.a})",
    lambda s: f"{s.new} = {s.x}.mean({s.a})",
    lambda s: f"{s.new} = {s.x}.amax({s.a}) + {s.x}.sum({s.a})",
    lambda s: f"{s.x} = {s.x}.gather({s.a}, {s.x}.argsort({s.a}))",
)

SHAPES: tuple[Rule, ...] = (
    lambda s: f"{s.x} = {s.x}.reshape({s.size_of(s.x, 0)}, -1)",
    lambda s: f"{s.x} = {s.x}.flatten(0, 1)",
    lambda s: (
        f"{s.x} = {s.x}.unsqueeze({s.a}).expand({', '.join(['-1'] * s.a)}{', ' if s.a else ''}2, "
        f"{', '.join(['-1'] * (s.rank - s.a))}).flatten({s.a}, {s.a + 1})"
    ),
    lambda s: (
        f"{s.seq} = {s.seq}.view({s.size_of(s.seq, 0)}, {s.size_of(s.seq, 1)}, 2, {s.columns(s.seq) // 2})"
        ".transpose(1, 2)"
    ),
    lambda s: f"{s.seq} = {s.seq}.reshape({s.size_of(s.seq, 0)} * {s.size_of(s.seq, 1)}, -1)",
    lambda s: f"{s.seq} = {s.seq}.reshape({s.size_of(s.seq, 0)}, {s.size_of(s.seq, 1)} // 2, -1)",
    lambda s: f"{s.seq} = {s.seq}.permute(1, 0, 2)",
    lambda s: (
        f"{s.seq} = torch.cat([{s.part(f'nn.Parameter(torch.randn(1, 1, {s.columns(s.seq)}))')}"
        f".expand({s.size_of(s.seq, 0)}, -1, -1), {s.seq}], 1)"
    ),
    lambda s: (
        _block(
            f"if {s.size_of(s.seq, 1)} % 4:",
            f"{s.seq} = F.pad({s.seq}, (0, 0, 0, 4 - {s.seq}.shape[1] % 4))",
        )
        + f"\n{s.seq} = {s.seq}.view({s.seq}.shape[0], {s.seq}.shape[1] // 4, 4, -1).mean(2)"
    ),
    lambda s: f"{s.image} = {s.image}.view({s.size_of(s.image, 0)}, {s.channels(s.image)}, -1)",
)

PAIRS: tuple[Rule, ...] = (
    lambda s: f"{s.x} = {s.x} + {s.partner}",
    lambda s: f"{s.x} = torch.cat([{s.x}, {s.partner}], {s.a})",
    lambda s: f"{s.x} = torch.where({s.x} > 0, {s.x}, {s.partner})",
    lambda s: f"{s.seq} = ({s.seq} @ {s.other}.transpose(1, 2)).softmax(-1) @ {s.other}",
    lambda s: f"{s.seq} = torch.cat([{s.seq}, {s.other}], 1)",
    lambda s: f"{s.new} = torch.einsum('bnc,bmc->bnm', {s.seq}, {s.other})",
    lambda s: f"{s.seq} = {s.seq} + {s.table}[: {s.size_of(s.seq, 1)}]",
    lambda s: f"{s.seq} = F.scaled_dot_product_attention({s.seq}, {s.other}, {s.other})",
    lambda s: f"{s.seq} = {s.seq} + {s.other}[:, : {s.size_of(s.seq, 1)}]",
    lambda s: f"{s.seq} = torch.stack([a @ b.t() for a, b in zip({s.seq}, {s.other})])",
    lambda s: f"{s.new} = {s.seq}[torch.arange({s.size_of(s.seq, 0)}), {s.ints} % {s.size_of(s.seq, 1)}]",
    lambda s: f"{s.seq} = {s.seq} @ {s.seq}.transpose(1, 2) @ {s.seq} / {s.size_of(s.seq, 1)}",
)

POSITIONS: tuple[Rule, ...] = (
    lambda s: f"{s.seq} = {s.seq} + torch.arange({s.size_of(s.seq, 1)})[:, None] * 0.1",
    lambda s: (
        f"{s.seq} = {s.seq} + {s.part(f'nn.Embedding({s.limit + 40}, {s.columns(s.seq)})')}"
        f"(torch.arange({s.size_of(s.seq, 1)}))"
    ),
    lambda s: (
        f"{s.seq} = {s.seq} + {s.part(f'nn.Parameter(torch.randn({s.limit + 40}, {s.columns(s.seq)}))')}"
        f"[: {s.size_of(s.seq, 1)}]"
    ),
    lambda s: f"{s.seq} = {s.seq} * torch.linspace(0, 1, {s.size_of(s.seq, 1)})[:, None]",
    lambda s: (
        f"{s.seq} = ({s.seq} @ {s.seq}.transpose(1, 2)).masked_fill(torch.triu(torch.ones("
        f"{s.size_of(s.seq, 1)}, {s.size_of(s.seq, 1)}), 1) > 0, float('-inf')).softmax(-1) @ {s.seq}"
    ),
    lambda s: f"{s.seq} = torch.eye({s.size_of(s.seq, 1)}) @ {s.seq} * {s.size_of(s.seq, 1)}",
    lambda s: f"{s.seq} = {s.seq} * (torch.arange({s.size_of(s.seq, 1)}) % {s.k} == 0)[None, :, None]",
    lambda s: (
        f"{s.seq} = {s.seq} + torch.sin(torch.arange({s.size_of(s.seq, 1)})[:, None] / 100 ** "
        f"(torch.arange({s.columns(s.seq)}) / {s.columns(s.seq)}))"
    ),
    lambda s: f"{s.seq} = {s.seq}[:, torch.arange({s.size_of(s.seq, 1)} - 1, -1, -1)]",
    lambda s: (
        f"{s.seq} = {s.seq} + {s.part('nn.Embedding(9, 1)')}((torch.arange({s.size_of(s.seq, 1)})[:, None] - "
        f"torch.arange({s.size_of(s.seq, 1)})).clamp(-4, 4) + 4).mean(1)"
    ),
)

# --- What people do with sizes --------------------------------------------------------------------------

ARITHMETIC: tuple[Rule, ...] = (
    lambda s: f"{s.x} = {s.cut(f': {s.count}')}",
    lambda s: f"k{s.number} = {s.count}\n{s.x} = {s.cut(f'-k{s.number}:')}",
    lambda s: (
        f"k{s.number} = {s.count}\n{s.x} = torch.cat([{s.cut(f'k{s.number}:')}, {s.cut(f': k{s.number}')}], {s.a})"
    ),
    lambda s: f"{s.x} = {s.x} * {s.amount}",
    lambda s: f"{s.x} = {s.x} * {s.amount}",
    lambda s: f"{s.x} = {s.x} + {s.amount}",
    lambda s: f"{s.x} = {s.x}.roll({s.count}, {s.a})",
    lambda s: f"{s.x} = {s.x}.topk({s.count}, {s.a})[0]",
    lambda s: f"{s.x} = F.pad({s.x}, {s.padding(s.x, s.a, '0', f'-{s.n} % {s.k}')})",
    lambda s: f"{s.x} = F.pad({s.x}, {s.padding(s.x, s.a, '0', f'(1 << ({s.n} - 1).bit_length()) - {s.n}')})",
    lambda s: f"{s.x} = {s.x}.narrow({s.a}, {s.n} // {s.k}, {s.n} - {s.n} // 2 - {s.n} // {s.k})",
    lambda s: f"{s.x} = {s.cut(f'{s.n} // 2 :')}",
    lambda s: f"{s.x} = {s.x}.cumsum({s.a}) / torch.full_like({s.x}, {s.count})",
    lambda s: f"{s.x} = {s.x} * torch.ones({s.count}).sum()",
    lambda s: f"{s.signal} = F.adaptive_max_pool1d({s.signal}, max(1, {s.size_of(s.signal, 2)} // {s.k}))",
    lambda s: f"{s.signal} = F.interpolate({s.signal}, size={s.size_of(s.signal, 2)} * 2 - {s.k % 2})",
    lambda s: f"{s.x} = {s.cut(f'{s.n} % {s.k} :')}",
)

DECISIONS: tuple[Rule, ...] = (
    lambda s: _block(f"if {s.cond}:", f"{s.x} = {s.same()}"),
    lambda s: _block(f"if {s.cond}:", f"{s.x} = {s.same()}"),
    lambda s: _block(f"if {s.cond}:", f"{s.x} = {s.same()}") + "\n" + _block("else:", f"{s.x} = {s.same()}"),
    lambda s: f"{s.x} = {s.same()} if {s.cond} else {s.x}",
    lambda s: f"{s.x} = {s.same()} if {s.cond} else {s.same()}",
    lambda s: _block(f"if {s.n} > {s.limit}:", f"{s.x} = {s.cut(f': {s.limit}')}"),
    lambda s: _block(f"if {s.n} < {s.limit}:", f"{s.x} = torch.cat([{s.x}, {s.x}], {s.a})"),
    lambda s: (
        _block(f"if {s.cond}:", f"{s.x} = {s.same()}")
        + "\n"
        + _block(f"elif {s.cond}:", f"{s.x} = {s.same()}")
    ),
    lambda s: _block(f"if {s.cond}:", f"if {s.cond}:", f"    {s.x} = {s.same()}"),
    lambda s: f"assert {s.cond}",
    lambda s: _block(f"if not ({s.cond}):", "raise ValueError('no such size')"),
    lambda s: _block(f"while {s.x}.shape[{s.a}] > {s.limit}:", f"{s.x} = {s.cut('::2')}"),
    lambda s: (
        f"size{s.number} = next(size for size in (8, 32, 128, 2048) if {s.n} <= size)\n"
        f"{s.x} = F.pad({s.x}, {s.padding(s.x, s.a, '0', f'size{s.number} - {s.n}')})"
    ),
    lambda s: (
        f"pick{s.number} = [{s.chance.choice((0.1, 1.5))}, 2.0, -1.0][{s.any_size} % 3]\n{s.x} = {s.x} * pick{s.number}"
    ),
    lambda s: f"{s.x} = {s.x} * sum({s.any_size} > limit for limit in ({s.limit}, {s.limit}, {s.limit}))",
)

LOOPS: tuple[Rule, ...] = (
    lambda s: _block(
        f"h{s.number} = {s.seq}.new_zeros({s.size_of(s.seq, 0)}, 4)\nfor t in range({s.size_of(s.seq, 1)}):",
        f"h{s.number} = torch.tanh({s.part(f'nn.Linear({s.columns(s.seq)} + 4, 4)')}"
        f"(torch.cat([{s.seq}[:, t], h{s.number}], 1)))",
    ),
    lambda s: (
        _block(
            f"h{s.number}, all{s.number} = 0, []\nfor row in {s.seq}.unbind(1):",
            f"h{s.number} = 0.5 * h{s.number} + row",
            f"all{s.number}.append(h{s.number})",
        )
        + f"\n{s.seq} = torch.stack(all{s.number}, 1)"
    ),
    lambda s: _block(f"for _ in range({s.n} // {s.k}):", f"{s.x} = {s.x} * 0.9 + 0.1"),
    lambda s: _block(f"for _ in range({s.n}.bit_length()):", f"{s.x} = {s.x} * 0.5 + {s.x}.roll(1, {s.a})"),
    lambda s: _block(f"for _ in range({s.n} % {s.k}):", f"{s.x} = {s.same()}"),
    lambda s: (
        _block(
            f"total{s.number} = 0\nfor i in range(0, {s.n}, {s.k}):",
            f"total{s.number} = total{s.number} * 0.5 + {s.cut(f'i : i + {s.k}')}.sum()",
        )
        + f"\n{s.x} = {s.x} + total{s.number}"
    ),
    lambda s: _block(
        f"step{s.number} = 1\nwhile step{s.number} < {s.n}:",
        f"{s.x} = {s.x} + 0.5 * {s.x}.roll(step{s.number}, {s.a})",
        f"step{s.number} *= 2",
    ),
    lambda s: _block(
        f"left{s.number} = {s.n}\nwhile left{s.number} > {s.limit}:",
        f"left{s.number} //= 2",
        f"{s.x} = {s.x} * 0.5",
    ),
    lambda s: _block(
        f"for i in range({s.size_of(s.seq, 1)} - 1):",
        f"{s.seq} = torch.cat([{s.seq}[:, : i + 1], {s.seq}[:, i + 1 :] - 0.1 * {s.seq}[:, i : i + 1]], 1)",
    ),
)

LISTS: tuple[Rule, ...] = (
    lambda s: f"{s.rows} = torch.stack([row.flip(0) * 2 for row in {s.rows}])",
    lambda s: f"{s.rows} = torch.stack([row.softmax(0) for row in {s.rows}.unbind(0)])",
    lambda s: f"{s.rows} = torch.stack([i * row for i, row in enumerate({s.rows})])",
    lambda s: f"{s.x} = torch.cat([part.flip({s.a}) for part in {s.x}.split({s.limit}, {s.a})], {s.a})",
    lambda s: (
        f"{s.x} = torch.cat([part.mean({s.a}, keepdim=True) for part in {s.x}.chunk({s.k}, {s.a})], {s.a})"
    ),
    lambda s: f"{s.x} = torch.cat([part.cumsum({s.a}) for part in {s.x}.chunk({s.k}, {s.a})], {s.a})",
    lambda s: f"{s.x} = torch.cat([{s.cut('i : i + 1')} * i for i in range({s.n})], {s.a})",
    lambda s: f"{s.x} = torch.cat([{s.cut('i : i + 2')} for i in range(0, {s.n}, 3)], {s.a})",
    lambda s: f"{s.x} = {s.x} + max(row.sum() for row in {s.x})",
    lambda s: f"{s.x} = sum([{s.x} * i for i in range({s.n})], {s.x})",
    lambda s: f"{s.rows} = torch.stack([a + b for a, b in zip({s.rows}[1:], {s.rows})])",
    lambda s: f"{s.rows} = torch.stack(list({s.rows})[::-1])",
    lambda s: f"{s.x} = torch.cat([{s.x}] * ({s.n} % {s.k} + 1), {s.a})",
    lambda s: (
        f"first{s.number}, *rest{s.number} = {s.rows}.unbind(0)\n"
        f"{s.rows} = torch.stack([first{s.number} * 2, *rest{s.number}])"
    ),
)

# --- What people do with values -------------------------------------------------------------------------

MASKS: tuple[Rule, ...] = (
    lambda s: f"{s.masked} = {s.masked}.masked_fill(~{s.mask}{'[..., None]' if _deeper(s) else ''}, -1e4)",
    lambda s: f"{s.masked} = {s.masked} * {s.mask}{'.unsqueeze(-1)' if _deeper(s) else ''}.float()",
    lambda s: (
        f"m{s.number} = {s.mask}[..., None].float()\n"
        f"{s.masked} = {s.masked} - ({s.masked} * m{s.number}).sum(1, keepdim=True) / m{s.number}.sum(1, keepdim=True)"
        ".clamp(min=1)"
    ),
    lambda s: _block(f"if not {s.mask}.all():", f"{s.masked} = {s.masked} * {s.mask}[..., None]"),
    lambda s: _block(f"if bool({s.mask}.all()):", f"{s.masked} = {s.masked} * 2"),
    lambda s: f"{s.new} = {s.masked}[{s.mask}]",
    lambda s: f"{s.new} = {s.masked}[{s.mask}].mean()",
    lambda s: f"{s.masked} = torch.where({s.mask}{'[..., None]' if _deeper(s) else ''}, {s.masked}, 0.5)",
    lambda s: (
        f"longest{s.number} = int({s.mask}.sum(-1).max())\n{s.masked} = {s.masked}[:, : longest{s.number}]"
    ),
    lambda s: f"{s.masked} = {s.masked} + {s.mask}.long().cumsum(-1)[..., None] * 0.1",
)

VALUES: tuple[Rule, ...] = (
    lambda s: f"assert {s.x}.abs().max() < 1000, 'too large'",
    lambda s: _block(f"if torch.isnan({s.x}).any():", "raise ValueError('not a number')"),
    lambda s: _block(f"if {s.x}.max() > 3:", f"{s.x} = {s.same()}"),
    lambda s: _block(f"if {s.x}.norm() > {s.limit}:", f"{s.x} = {s.x} / {s.x}.norm()"),
    lambda s: f"top{s.number} = int({s.ints}.max()) + 1\n{s.x} = {s.x}[: top{s.number}]",
    lambda s: f"found{s.number} = ({s.x} > 0.9).nonzero()\n{s.x} = {s.x} + found{s.number}.shape[0]",
    lambda s: _block(f"if ({s.x} > 2.5).nonzero().shape[0] == 0:", f"{s.x} = {s.same()}"),
    lambda s: f"{s.x} = {s.x} * {s.x}.flatten()[0].item()",
    lambda s: f"{s.x} = {s.x}.clamp(max=float({s.x}.mean()))",
    lambda s: f"{s.new} = torch.arange({s.size_of(s.x, s.a)})[None] < {s.ints}.reshape(-1, 1)",
    lambda s: f"{s.new} = F.one_hot({s.ints} % 5, 5).float()",
    lambda s: f"{s.new} = {s.x}.flatten()[{s.x}.flatten() > 0]",
)

STATE: tuple[Rule, ...] = (
    lambda s: f"{s.part('0')} += 1\n{s.x} = {s.x} * {s.parts[-1].split(' = ')[0]}",
    lambda s: (
        _block(
            f"if {s.size_of(s.seq, 1)} > {s.part(f'torch.arange({s.limit}).float()')}.shape[0]:",
            f"{_last(s)} = torch.arange({s.size_of(s.seq, 1)}).float()",
        )
        + f"\n{s.seq} = {s.seq} + {_last(s)}[: {s.size_of(s.seq, 1)}, None]"
    ),
    lambda s: (
        _block(
            f"if {s.size_of(s.seq, 1)} not in {s.part('{}')}:",
            f"{_last(s)}[{s.seq}.shape[1]] = torch.arange({s.seq}.shape[1])[:, None] * 0.1",
        )
        + f"\n{s.seq} = {s.seq} + {_last(s)}[{s.seq}.shape[1]]"
    ),
    lambda s: (
        _block(
            f"if {s.part('None')} is None or {_last(s)}.shape[0] != {s.size_of(s.seq, 1)}:",
            f"{_last(s)} = torch.ones({s.size_of(s.seq, 1)}, 1).cumsum(0)",
        )
        + f"\n{s.seq} = {s.seq} * {_last(s)}"
    ),
    lambda s: f"{s.part('1')} = max({_last(s)}, {s.n})\n{s.x} = {s.x} / {_last(s)}",
)


def _deeper(s: Slots) -> bool:
    return s.worlds.rank(s.masked) > s.worlds.rank(s.mask)


def _last(s: Slots) -> str:
    return s.parts[-1].split(" = ")[0]


PLAIN: tuple[tuple[Rule, ...], ...] = (LAYERS, AXES, SHAPES, PAIRS)

GROUPS: Mapping[str, tuple[Rule, ...]] = {
    "positions": POSITIONS,
    "arithmetic": ARITHMETIC,
    "decisions": DECISIONS,
    "loops": LOOPS,
    "lists": LISTS,
    "masks": MASKS,
    "values": VALUES,
    "state": STATE,
}
