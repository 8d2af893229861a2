"""torch.onnx.export's other arguments: each is honoured, or refused with a reason and what to use instead."""

from __future__ import annotations

from typing import Any

import torch

from anyshape.errors import UsageError

__all__ = ["check_opset", "check_torch_options"]

# argument: (the value that changes nothing, why any other is refused, what to use instead)
REFUSED: dict[str, tuple[Any, str, str]] = {
    "profile": (False, "anyshape times its stations itself", "Look at Export.seconds."),
    "dump_exported_program": (
        False,
        "anyshape traces at sizes of its own, so its program is no use without its contract",
        "Use torch.export.save(torch.export.export(model, args), path).",
    ),
    "verify": (True, "a file that was not compared with PyTorch promises nothing", "Leave verify as it is."),
    "export_params": (True, "a file without weights can't be verified", "Leave export_params as it is."),
    "keep_initializers_as_inputs": (
        False,
        "weights that a caller can replace can't be verified",
        "Pass what should vary as an input of the model.",
    ),
    "custom_opsets": (
        None,
        "custom operators need a translation",
        "Use custom_translation_table={op: function}.",
    ),
    "export_modules_as_functions": (
        False,
        "the optimizer inlines functions",
        "Leave it out; node names keep the module path.",
    ),
    "autograd_inlining": (True, "autograd functions are always inlined", "Leave autograd_inlining as it is."),
}


def check_torch_options(options: dict[str, Any]) -> list[str]:
    """Refuse what can't be honoured; the notes for what is honoured in another way."""
    for name, (harmless, reason, instead) in REFUSED.items():
        given = options.pop(name, harmless)
        if given != harmless and given not in (None, {}, set(), []):
            raise UsageError(f"{name}={given!r} is not supported: {reason}", hint=instead)
    notes = []
    if options.pop("dynamo", True) is False:
        notes.append("dynamo=False is ignored: anyshape never captures through TorchScript")
    _check_enums(options)
    if options:
        raise UsageError(
            f"export() has no argument {next(iter(options))!r}", hint="See help(anyshape.export)."
        )
    return notes


def _check_enums(options: dict[str, Any]) -> None:
    training = options.pop("training", None)
    if training is not None and training != torch.onnx.TrainingMode.EVAL:
        raise UsageError(
            f"training={training} is not supported: a model in training mode is random and can't be verified",
            hint="Leave it out: the model is exported in eval mode and put back afterwards.",
        )
    kind = options.pop("operator_export_type", None)
    if kind is not None and kind != torch.onnx.OperatorExportTypes.ONNX:
        raise UsageError(
            f"operator_export_type={kind} is not supported: only standard ONNX operators run everywhere",
            hint="Use custom_translation_table={op: function} for an operator that ONNX lacks.",
        )


def check_opset(version: Any) -> int | None:
    """The version of ONNX's operators to write; `UsageError` for what is none."""
    if version is None or (isinstance(version, int) and not isinstance(version, bool) and version > 0):
        return version
    raise UsageError(
        f"opset_version={version!r} is no version of ONNX's operators",
        hint="Write a number such as 20, or leave it out.",
    )
