"""A name becomes a model with its example: saved programs, timm, torchvision, diffusers, and what each refuses."""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import anyshape
from anyshape.cli import app
from anyshape.errors import AnyshapeError, FileError, UsageError
from anyshape.models.library import imported
from anyshape.models.name import load_name, stem

RANDOM = {"random": True}


def refused(kind: type[AnyshapeError], name: str, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        anyshape.from_name(name, **options)
    return str(caught.value)


# --- Names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("hf:", {}, "hf: names no model\nA name or a folder comes after the colon."),
        ("timm:resnet18", {"task": "x"}, "timm:resnet18 takes no task\ntask and cache are for hf: names"),
        ("torchvision:resnet18", {"cache": "out"}, "torchvision:resnet18 takes no cache\n"),
        ("saved.pt2", RANDOM, "saved.pt2 takes no random\n"),
        ("hf:folder", {"cache": "both"}, "cache is 'both'\nIt is one of none, out, inout."),
        ("model", {}, "model does not say which model\nWrite FILE.py:NAME or package.module:NAME"),
    ],
)
def test_a_call_that_is_wrong(name: str, options: dict[str, Any], told: str) -> None:
    assert refused(UsageError, name, **options).startswith(told)


def test_an_unknown_prefix_is_taken_for_a_module() -> None:
    told = refused(FileError, "tensorflow:resnet18")
    assert told.startswith("there is no file tensorflow and no module tensorflow\nWrite FILE.py:NAME")
    assert "hf:FOLDER" in told


def test_a_file_takes_no_options_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "net_of_names.py").write_text(
        "import torch\ndef build(): return torch.nn.Linear(4, 2), torch.ones(3, 4)\n"
    )
    assert refused(UsageError, "net_of_names.py:build", random=True).startswith(
        "net_of_names.py:build takes no random"
    )


def test_what_a_file_is_called() -> None:
    names = {"hf:a/b/": "b", "hf:.": ".", "a/b.pt2": "b", "diffusers:a/unet": "unet", "a.b.c:Net": "c"}
    assert {name: stem(name) for name in names} == names


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    assert refused(FileError, "timm:resnet18") == (
        "timm is not installed\nInstall it: pip install 'anyshape[timm]', "
        "or pip install --no-deps timm, which leaves your torch as it is."
    )
    with pytest.raises(
        FileError, match=r"^nolibrary is not installed\nInstall it: pip install 'anyshape\[hf\]'\.$"
    ):
        imported("nolibrary", "hf")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "raise RuntimeError('operator x does not exist')",
            "can't be imported: RuntimeError: operator x does not",
        ),
        (
            "import nothing_of_that_name",
            "can't be imported: nothing_of_that_name is not installed\nInstall it: pip",
        ),
    ],
)
def test_a_library_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    (tmp_path / "halfway.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FileError) as caught:
        imported("halfway", "hf")
    assert str(caught.value).startswith(f"halfway {told}")


# --- Saved programs ----------------------------------------------------------------------------------------


def saved(path: Path) -> str:
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        torch.nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes={"input": {0: batch}}
    )
    torch.export.save(program, path)
    return str(path)


def test_a_saved_program_brings_its_inputs(tmp_path: Path) -> None:
    name = saved(tmp_path / "net.pt2")
    assert [tuple(each.shape) for each in load_name(name).args] == [(3, 4)]
    done = CliRunner().invoke(app, ["export", name, "--json"])
    assert done.exit_code == 0, done.stdout
    assert json.loads(done.stdout)["path"] == "net.onnx"
    assert anyshape.load("net.onnx")(torch.ones(7, 4)).shape == (7, 2)


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    assert refused(FileError, "nothing.pt2") == "there is no file nothing.pt2"
    (tmp_path / "text.pt2").write_text("text")
    assert refused(FileError, "text.pt2") == "text.pt2 is no file of torch.export.save"
    torch.save({"weight": torch.ones(2)}, tmp_path / "state.pt2")
    assert "state.pt2 can't be loaded: " in refused(FileError, "state.pt2")


def test_a_program_without_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved(tmp_path / "net.pt2")
    monkeypatch.setattr(torch.export, "load", lambda path: types.SimpleNamespace(example_inputs=None))
    assert refused(FileError, name).startswith(f"{name} holds no example inputs\nLoad it yourself")


# --- timm and torchvision ----------------------------------------------------------------------------------


def test_timm(library: Callable[[str], Any]) -> None:
    library("timm")
    model, (images,), kwargs = anyshape.from_name("timm:test_vit", random=True)
    assert images.shape == (2, 3, 160, 160) and not kwargs and not model.training
    again, _, _ = anyshape.from_name("timm:test_vit", random=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    found = load_name("timm:test_vit", ["x=float32[batch=5,3,160,160]"], wanted=wanted_random())
    assert found.args[0].shape == (5, 3, 160, 160) and not found.kwargs
    with pytest.raises(UsageError, match=r"^the model has no argument y\nIts arguments are: x"):
        load_name("timm:test_vit", ["y=float32[batch=5,3,160,160]"], wanted=wanted_random())


def wanted_random() -> Any:
    return importlib.import_module("anyshape.models.wanted").Wanted(random=True)


def test_timm_refuses(library: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timm = library("timm")
    told = refused(UsageError, "timm:resnet19", random=True)
    assert told.startswith(f"timm {timm.__version__} has no model resnet19\nClose to it: resnet")
    monkeypatch.setattr("anyshape.models.of_timm._stored", lambda known: None)
    told = (
        "the weights of timm:test_vit are not in the local cache\nPass --download to fetch them, or --random"
    )
    assert refused(FileError, "timm:test_vit").startswith(told)
    monkeypatch.setattr("anyshape.models.of_timm._stored", lambda known: str(tmp_path / "no.safetensors"))
    assert refused(FileError, "timm:test_vit").startswith("timm:test_vit can't be loaded: ")


def test_timm_takes_stored_weights(
    library: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = library("timm").create_model("test_vit")
    safetensors = importlib.import_module("safetensors.torch")
    safetensors.save_file(model.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache", lambda repo, file: str(tmp_path / "model.safetensors")
    )
    found, _, _ = anyshape.from_name("timm:test_vit")
    assert torch.equal(found.patch_embed.proj.weight, model.patch_embed.proj.weight)


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        ("shufflenet_v2_x0_5", [(2, 3, 224, 224)]),
        ("lraspp_mobilenet_v3_large", [(2, 3, 224, 224)]),
        ("raft_small", [(1, 3, 128, 136), (1, 3, 128, 136)]),
        ("ssdlite320_mobilenet_v3_large", [[(3, 64, 96), (3, 96, 80)]]),
    ],
)
def test_torchvision(library: Callable[[str], Any], model: str, shapes: list[Any]) -> None:
    library("torchvision")
    module, args, _ = anyshape.from_name(f"torchvision:{model}", random=True)
    found = [
        [tuple(one.shape) for one in each] if isinstance(each, list) else tuple(each.shape) for each in args
    ]
    assert found == shapes and not module.training


def test_torchvision_refuses(
    library: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library("torchvision")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert refused(UsageError, "torchvision:resnet19").startswith(
        "torchvision has no model resnet19\nClose to it: "
    )
    assert refused(FileError, "torchvision:resnet18") == (
        "the weights of torchvision:resnet18 are not in the local cache\n"
        "Pass --download to fetch them, or --random for random ones."
    )
    assert refused(FileError, "torchvision:mnasnet0_75").startswith("the weights of torchvision:mnasnet0_75")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "resnet18-f37072fd.pth").write_text("no weights")
    assert refused(FileError, "torchvision:resnet18").startswith("torchvision:resnet18 can't be loaded: ")


# --- diffusers ---------------------------------------------------------------------------------------------

UNET = {
    "sample_size": 16,
    "layers_per_block": 1,
    "block_out_channels": (8, 8),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "cross_attention_dim": 16,
    "attention_head_dim": 8,
    "norm_num_groups": 4,
}
LATENT = {"sample": (2, 4, 4, 6), "timestep": (2,), "encoder_hidden_states": (2, 7, 16)}
PARTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "unet": ("UNet2DConditionModel", UNET, LATENT),
    "unet_xl": (
        "UNet2DConditionModel",
        {
            **UNET,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 6 * 8 + 16,
        },
        {**LATENT, "added_cond_kwargs": {"text_embeds": (2, 16), "time_ids": (2, 6)}},
    ),
    "vae": (
        "AutoencoderKL",
        {
            "block_out_channels": (8, 8),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "norm_num_groups": 4,
        },
        {"sample": (2, 3, 4, 6)},
    ),
    "dit": (
        "DiTTransformer2DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "num_layers": 1,
            "sample_size": 8,
            "num_embeds_ada_norm": 10,
        },
        {"hidden_states": (2, 4, 8, 8), "timestep": (2,), "class_labels": (2,)},
    ),
    "flux": (
        "FluxTransformer2DModel",
        {
            "patch_size": 1,
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 32,
            "axes_dims_rope": [4, 4, 8],
        },
        {
            "hidden_states": (2, 6, 4),
            "encoder_hidden_states": (2, 7, 32),
            "pooled_projections": (2, 32),
            "timestep": (2,),
            "img_ids": (6, 3),
            "txt_ids": (7, 3),
        },
    ),
    "controlnet": (
        "ControlNetModel",
        {
            "block_out_channels": (8, 8),
            "layers_per_block": 1,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "cross_attention_dim": 16,
            "norm_num_groups": 4,
            "conditioning_embedding_out_channels": (16, 32),
        },
        {**LATENT, "controlnet_cond": (2, 3, 8, 12)},
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_pipeline(library: Callable[[str], Any], tmp_path: Path, part: str) -> None:
    diffusers = library("diffusers")
    kind, config, shapes = PARTS[part]
    getattr(diffusers, kind)(**config).save_config(tmp_path / part)
    model, _, kwargs = anyshape.from_name(f"diffusers:{tmp_path / part}", random=True)
    found = {
        name: {key: tuple(one.shape) for key, one in value.items()}
        if isinstance(value, dict)
        else tuple(value.shape)
        for name, value in kwargs.items()
    }
    assert type(model).__name__ == kind and not model.training and found == shapes


def test_weights_and_the_other_parts_of_a_pipeline(library: Callable[[str], Any], tmp_path: Path) -> None:
    diffusers, transformers = library("diffusers"), library("transformers")
    unet = diffusers.UNet2DConditionModel(**UNET)
    unet.save_pretrained(tmp_path / "pipe" / "unet")
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 50,
    }
    config = transformers.CLIPTextConfig(
        **small, architectures=["CLIPTextModel"], bos_token_id=1, eos_token_id=2
    )
    config.save_pretrained(tmp_path / "pipe" / "text_encoder")
    found, _, _ = anyshape.from_name(f"diffusers:{tmp_path}/pipe/unet/")
    assert torch.equal(found.conv_in.weight, unet.conv_in.weight)
    model, _, kwargs = anyshape.from_name(f"diffusers:{tmp_path}/pipe/text_encoder", random=True)
    assert type(model).__name__ == "CLIPTextModel" and list(kwargs) == ["input_ids", "attention_mask"]
    told = refused(FileError, "diffusers:pipe")
    assert (
        told
        == "pipe has no config.json\nName one of its parts: diffusers:pipe/text_encoder, diffusers:pipe/unet."
    )
    assert refused(UsageError, "diffusers:pipe/unet", task="x").startswith(
        "diffusers:pipe/unet takes no task"
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "diffusers:nothing",
            "there is no folder nothing\nName a part of a saved pipeline: diffusers:DIR/unet.",
        ),
        (
            "diffusers:some/unet",
            "there is no folder some/unet, and no unet of some in the local cache\nPass --download",
        ),
        ("diffusers:empty", "empty has no config.json"),
        ("diffusers:broken", "broken/config.json can't be read: JSONDecodeError"),
        ("diffusers:list", "list/config.json holds no config"),
        ("diffusers:plan", "the config of plan names DDIMScheduler, which is no model of diffusers"),
        ("diffusers:bare", "bare has no weights\nPass --random for random ones."),
        ("diffusers:wrong", "UNet2DConditionModel can't be built from wrong: "),
    ],
)
def test_a_folder_of_diffusers_that_is_none(
    library: Callable[[str], Any], tmp_path: Path, name: str, told: str
) -> None:
    library("diffusers")
    texts = {
        "empty/readme": "",
        "broken/config.json": "{",
        "list/config.json": "[]",
        "plan/config.json": json.dumps({"_class_name": "DDIMScheduler"}),
        "bare/config.json": json.dumps({"_class_name": "UNet2DConditionModel"}),
        "wrong/config.json": json.dumps({"_class_name": "UNet2DConditionModel"}),
        "wrong/diffusion_pytorch_model.safetensors": "no weights",
    }
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    assert refused(FileError, name).startswith(told)


def test_diffusers_says_what_it_does_not_know(library: Callable[[str], Any], tmp_path: Path) -> None:
    kind = library("diffusers").PriorTransformer
    kind(num_attention_heads=2, attention_head_dim=4, num_layers=1, embedding_dim=8).save_config(
        tmp_path / "prior"
    )
    told = refused(UsageError, "diffusers:prior", random=True)
    assert told.startswith(
        "no example that PriorTransformer takes could be made from its config: proj_embedding is not"
    )
    assert "Give --input NAME=DTYPE[SIZES] (arguments: hidden_states, timestep" in told


# --- The commands ------------------------------------------------------------------------------------------


def test_the_command_line(library: Callable[[str], Any], tmp_path: Path) -> None:
    transformers = library("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    config.save_pretrained(tmp_path / "tiny")
    run = CliRunner().invoke
    done = run(app, ["export", "hf:tiny", "--task", "image-classification"])
    assert done.exit_code == 2 and "tiny has no weights\nPass --random for random ones." in done.stderr
    options = ["--task", "image-classification", "--random"]
    done = run(app, ["export", "hf:tiny", *options])
    assert done.exit_code == 0 and "pixel_values  float32  [batch, 3, 16, 16]" in done.stdout
    done = run(app, ["verify", "tiny.onnx", "--against", "hf:tiny", *options])
    assert done.exit_code == 0 and "Right at" in done.stdout
    done = run(
        app, ["verify", "tiny.onnx", "--against", "hf:tiny", "--task", "feature-extraction", "--random"]
    )
    assert done.exit_code != 0


def test_the_source_of_a_library_is_not_changed() -> None:
    done = CliRunner().invoke(app, ["repair", "timm:resnet18", "--random", "--write"])
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "the source of timm:resnet18 is not yours, and is not changed from here\nLeave out"
    )
