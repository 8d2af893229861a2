"""What every test and doctest gets."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples write files such as linear.onnx: they land in a temporary folder."""
    monkeypatch.chdir(tmp_path)
