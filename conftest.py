"""What every test and doctest gets."""

import importlib.util
from pathlib import Path

import pytest
import torch


def _operators_of_torchvision() -> "torch.library.Library | None":
    """What a torchvision built for another PyTorch lacks: without, neither it loads nor what asks for it."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return None
    for compiled in Path(found.origin).parent.glob("_C.*"):
        try:
            torch.ops.load_library(str(compiled))
            return None
        except OSError:
            break
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


OPERATORS = _operators_of_torchvision()  # they are there as long as this is


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write files such as linear.onnx: they land in a temporary folder."""
    monkeypatch.chdir(tmp_path)
