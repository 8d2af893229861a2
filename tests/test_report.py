from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from anyshape.artifact.report import write_report
from anyshape.contract.contract import Contract, Dim, Tensor
from anyshape.dims import Range, parse_shape
from anyshape.verify.verdict import Row, Verdict

CONTRACT = Contract(
    (Dim("batch", Range(1), 3),),
    (Tensor("x", "float32", tuple(parse_shape("batch, 10"))),),
    (Tensor("y", "float32", tuple(parse_shape("batch, 5"))),),
    notes=("batch = 0 is left out",),
)
ROWS = (Row({"batch": 1}, "right", 1e-7, 1e-5), Row({"batch": 64}, "right", 3e-7, 1e-5))


def test_the_report_holds_contract_verdict_and_times(tmp_path: Path) -> None:
    verdict = Verdict("ONNX Runtime", ROWS, ("the graph holds everywhere",), ("agrees at 2 sizes",))
    export = SimpleNamespace(contract=CONTRACT, verdict=verdict, rung="symbolic", seconds={"probe": 1.25})
    path = write_report(export, tmp_path)
    assert path == str(tmp_path / "anyshape_report.md")
    text = Path(path).read_text(encoding="utf-8")
    assert str(CONTRACT) in text
    assert "- proved: the graph holds everywhere" in text
    assert "- sampled: agrees at 2 sizes" in text
    assert "- note: batch = 0 is left out" in text
    assert "| batch=64 | right | 3.0e-07 | 1.0e-05 |" in text
    assert "| probe | 1.25 |" in text


def test_an_export_is_reported(linear: SimpleNamespace, tmp_path: Path) -> None:
    text = Path(write_report(linear.export, tmp_path)).read_text(encoding="utf-8")
    assert "[batch, 10]" in text and "| verify |" in text
