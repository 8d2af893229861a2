"""hf: a folder with a config becomes a model and inputs that it runs on; every mistake on the way has its message."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import anyshape
from anyshape.errors import AnyshapeError, FileError, UsageError
from anyshape.inputs.caches import open_cache
from anyshape.inputs.structure import Opened

TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "vocab_size": 99,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IMAGE = {**TEXT, "image_size": 32, "patch_size": 8}
BOTH_SIDES = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "vocab_size": 99,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
SPEECH = {**BOTH_SIDES, "num_mel_bins": 16, "max_source_positions": 30}
SOUND = {
    **TEXT,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
WINDOW = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 16}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {**TEXT, "num_key_value_heads": 2}),
    "gemma3": (
        "Gemma3ForCausalLM",
        {**TEXT, **WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "mamba": ("MambaForCausalLM", {**TEXT, "state_size": 4, "time_step_rank": 4}),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 1, "num_heads": 4},
    ),
    "whisper": ("WhisperForConditionalGeneration", SPEECH),
    "bert": ("BertForSequenceClassification", TEXT),
    "choices": ("BertForMultipleChoice", TEXT),
    "layout": ("LayoutLMForTokenClassification", TEXT),
    "clip": (
        "CLIPModel",
        {"text_config": {**TEXT, "eos_token_id": 98}, "vision_config": IMAGE, "projection_dim": 16},
    ),
    "vit": ("ViTForImageClassification", IMAGE),
    "film": ("VideoMAEForVideoClassification", {**IMAGE, "num_frames": 4}),
    "segformer": (
        "SegformerForSemanticSegmentation",
        {
            "hidden_sizes": [8, 8, 8, 8],
            "depths": [1] * 4,
            "num_attention_heads": [1, 1, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "wav2vec2": ("Wav2Vec2ForCTC", SOUND),
    "masked_sound": ("Wav2Vec2ForCTC", {**SOUND, "feat_extract_norm": "layer"}),
    "spectrum": ("ASTForAudioClassification", {**IMAGE, "max_length": 64, "num_mel_bins": 32}),
    "series": (
        "PatchTSTForPrediction",
        {"context_length": 32, "num_input_channels": 3, "d_model": 16, "num_hidden_layers": 1, "ffn_dim": 32},
    ),
    "bart": ("BartForSequenceClassification", BOTH_SIDES),
    "features": ("TimeSeriesTransformerForPrediction", {"prediction_length": 4}),
    "text_with_pictures": (
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {**TEXT, **WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
            "vision_config": {**IMAGE, "model_type": "siglip_vision_model"},
            "image_token_index": 98,
        },
    ),
    "pictures_in_text": (
        "LlavaForConditionalGeneration",
        {
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": {**IMAGE, "model_type": "clip_vision_model"},
            "image_token_id": 98,
        },
    ),
}


@pytest.fixture
def saved(library: Callable[[str], Any], tmp_path: Path) -> Callable[..., str]:
    """``saved("llama")``: the name of a folder with its config, and with its weights where they are wanted."""
    transformers = library("transformers")

    def made(model: str, *, weights: bool = False, kind: str | None = None, **changed: Any) -> str:
        name, config = MODELS[model]
        folder = tmp_path / model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = getattr(transformers, kind or name).config_class(**config)
            settings.architectures = [kind or name]
            for key, value in changed.items():
                setattr(settings, key, value)
            if weights:
                torch.manual_seed(5)
                getattr(transformers, kind or name)(settings).save_pretrained(folder)
            else:
                settings.save_pretrained(folder)
        return f"hf:{folder}"

    return made


def shapes_of(kwargs: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in kwargs.items():
        opened: Opened | None = open_cache(value)
        if opened is not None:
            made |= {
                f"{name}.{key}": tuple(each.shape)
                for key, each in zip(opened.keys, opened.children, strict=True)
            }
        elif isinstance(value, dict):
            made |= {f"{name}.{key}": shape for key, shape in shapes_of(value).items()}
        else:
            made[name] = tuple(value.shape) if isinstance(value, torch.Tensor) else value
    return made


ONES = {
    "t5": {"input_ids": (2, 7), "attention_mask": (2, 7), "decoder_input_ids": (2, 4), "use_cache": False},
    "whisper": {"input_features": (2, 16, 60), "decoder_input_ids": (2, 4), "use_cache": False},
    "bert": {"input_ids": (2, 7), "attention_mask": (2, 7), "token_type_ids": (2, 7)},
    "choices": {"input_ids": (2, 3, 7), "attention_mask": (2, 3, 7), "token_type_ids": (2, 3, 7)},
    "layout": {"input_ids": (2, 7), "bbox": (2, 7, 4), "attention_mask": (2, 7), "token_type_ids": (2, 7)},
    "clip": {"input_ids": (2, 7), "pixel_values": (2, 3, 32, 32), "attention_mask": (2, 7)},
    "vit": {"pixel_values": (2, 3, 32, 32)},
    "film": {"pixel_values": (2, 4, 3, 32, 32)},
    "segformer": {"pixel_values": (2, 3, 64, 96)},
    "wav2vec2": {"input_values": (2, 115)},
    "masked_sound": {"input_values": (2, 115), "attention_mask": (2, 115)},
    "spectrum": {"input_values": (2, 64, 32)},
    "series": {"past_values": (2, 32, 3)},
}


@pytest.mark.parametrize("model", ONES)
def test_inputs_are_made_from_the_config(saved: Callable[..., str], model: str) -> None:
    module, args, kwargs = anyshape.from_name(saved(model), random=True)
    assert not args and not module.training
    assert shapes_of(kwargs) == ONES[model]
    assert list(kwargs) == list(ONES[model])  # as the signature has them


KEYS = ("0.key", "0.value", "1.key", "1.value")
CACHES = {
    ("llama", None): {"input_ids": (2, 4), "attention_mask": (2, 9)}
    | {f"past_key_values.{key}": (2, 2, 5, 8) for key in KEYS},
    ("llama", "none"): {"input_ids": (2, 7), "attention_mask": (2, 7), "use_cache": False},
    ("llama", "out"): {"input_ids": (2, 7), "attention_mask": (2, 7), "use_cache": True},
    ("gemma3", "inout"): {"input_ids": (2, 4), "attention_mask": (2, 9)}
    | {f"past_key_values.{key}": (2, 2, 5, 8) for key in KEYS},
    ("mamba", "inout"): {"input_ids": (2, 4), "attention_mask": (2, 4)}
    | {
        f"cache_params.{layer}.{part}.0": (2, 37, 4)
        for layer in (0, 1)
        for part in ("conv_states", "recurrent_states")
    },
    ("t5", "inout"): {
        "attention_mask": (2, 7),
        "decoder_input_ids": (2, 4),
        "encoder_outputs.last_hidden_state": (2, 7, 32),
    }
    | {f"past_key_values.0.decoder.{word}": (2, 4, 5, 8) for word in ("key", "value")}
    | {f"past_key_values.0.encoder.{word}": (2, 4, 7, 8) for word in ("key", "value")},
}


@pytest.mark.parametrize(("model", "cache"), CACHES)
def test_a_cache_is_what_the_model_makes(saved: Callable[..., str], model: str, cache: str | None) -> None:
    module, _, kwargs = anyshape.from_name(saved(model), cache=cache, random=True)
    assert shapes_of(kwargs) == CACHES[model, cache]
    with torch.no_grad():
        assert module(**kwargs).logits.shape[:2] == (2, 7 if cache in ("none", "out") else 4)


def test_a_config_that_trains_without_a_cache_is_asked_for_one(saved: Callable[..., str]) -> None:
    _, _, kwargs = anyshape.from_name(saved("llama", use_cache=False), random=True)
    assert kwargs["use_cache"] is True and "past_key_values" in kwargs


def test_weights_are_those_of_the_folder_and_random_ones_are_always_the_same(
    saved: Callable[..., str],
) -> None:
    name = saved("vit", weights=True)
    before = torch.random.get_rng_state()
    stored, first, second = (
        anyshape.from_name(name, random=random)[0].classifier.weight for random in (False, True, True)
    )
    assert torch.equal(first, second) and not torch.equal(first, stored)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(anyshape.from_name(name)[0].classifier.weight, stored)


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("feature-extraction", "BertModel"),
        ("text-classification", "BertForSequenceClassification"),
        ("question-answering", "BertForQuestionAnswering"),
        ("fill-mask", "BertForMaskedLM"),
    ],
)
def test_the_task_chooses_the_class(saved: Callable[..., str], task: str, kind: str) -> None:
    module, _, kwargs = anyshape.from_name(saved("bert"), task=task, random=True)
    assert type(module).__name__ == kind and "use_cache" not in kwargs


def test_what_is_given_stands_in_the_place_of_what_would_be_made(saved: Callable[..., str]) -> None:
    from anyshape.models.name import load_name
    from anyshape.models.wanted import Wanted

    given = [
        "input_ids=int64[batch=3,seq=6]<50",
        "attention_mask=int64[batch=3,seq=6]",
        "token_type_ids=int64[3,6]",
    ]
    found = load_name(saved("bert"), given, Wanted(random=True))
    assert found.kwargs["input_ids"].shape == (3, 6)
    assert found.shapes == {"input_ids": "batch, seq", "attention_mask": "batch, seq"}


def refused(kind: type[AnyshapeError], name: str, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        anyshape.from_name(name, **options)
    return str(caught.value).replace(name.removeprefix("hf:"), "FOLDER")


def test_a_folder_without_weights(saved: Callable[..., str]) -> None:
    assert refused(FileError, saved("vit")) == "FOLDER has no weights\nPass --random for random ones."


def test_weights_of_another_task(saved: Callable[..., str]) -> None:
    told = refused(UsageError, saved("bert", weights=True, kind="BertModel"), task="question-answering")
    assert told == (
        "the weights of FOLDER lack qa_outputs.bias and 1 more of BertForQuestionAnswering\n"
        "Choose the --task that they were trained for, or pass --random for random weights."
    )


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("text-clasification", "there is no task text-clasification\nDid you mean text-classification?"),
        ("cooking", "there is no task cooking\nTasks are: audio-classification, "),
        (
            "image-classification",
            "bert has no class for image-classification\nIt has: feature-extraction, fill-mask",
        ),
    ],
)
def test_a_task_that_is_none(saved: Callable[..., str], task: str, told: str) -> None:
    assert refused(UsageError, saved("bert"), task=task, random=True).startswith(told)


def test_a_config_that_names_no_class_or_several(saved: Callable[..., str]) -> None:
    told = refused(UsageError, saved("bert", architectures=None), random=True)
    assert told.startswith("the config of bert names no class\nChoose one with --task: feature-extraction, ")
    told = refused(UsageError, saved("bert", architectures=["BertModel", "BertForMaskedLM"]), random=True)
    assert told.startswith("the config of bert names several classes: BertModel, BertForMaskedLM\nChoose one")
    told = refused(FileError, saved("bert", architectures=["BertForCooking"]), random=True)
    assert "has no class BertForCooking\nGive another --task" in told


def test_a_task_with_several_classes(
    saved: Callable[..., str], tmp_path: Path, library: Callable[[str], Any]
) -> None:
    library("transformers").FunnelConfig().save_pretrained(tmp_path / "funnel")
    told = refused(UsageError, f"hf:{tmp_path / 'funnel'}", task="feature-extraction", random=True)
    assert told == (
        "funnel has several classes for feature-extraction: FunnelModel, FunnelBaseModel\n"
        'Name one in config.json: "architectures": ["FunnelModel"].'
    )


def test_a_model_without_a_cache(saved: Callable[..., str]) -> None:
    told = refused(UsageError, saved("vit"), cache="inout", random=True)
    assert told == "ViTForImageClassification keeps no cache\nLeave out --cache."


def test_images_among_the_tokens(saved: Callable[..., str]) -> None:
    told = refused(UsageError, saved("pictures_in_text"), random=True)
    assert told.startswith(
        "no example can be made for LlavaForConditionalGeneration: pixel_values has its place"
    )
    assert told.endswith("FILE.py:NAME.")


def test_text_alone_where_images_could_be_among_the_tokens(saved: Callable[..., str]) -> None:
    name = saved("text_with_pictures")
    assert refused(UsageError, name, random=True).endswith("For text alone, choose --task text-generation.")
    _, _, kwargs = anyshape.from_name(name, task="text-generation", cache="none", random=True)
    assert shapes_of(kwargs) == {"input_ids": (2, 7), "attention_mask": (2, 7), "use_cache": False}


def test_no_example_that_the_model_takes(saved: Callable[..., str]) -> None:
    told = refused(UsageError, saved("features"), random=True)
    what, _, hint = told.partition("\n")
    assert what.startswith(
        "no example that TimeSeriesTransformerForPrediction takes could be made from its config: "
    )
    assert "nothing is known of past_time_features" in what
    assert hint.startswith("Give --input NAME=DTYPE[SIZES] (arguments: past_values, ")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("hf:./nothing", "there is no folder ./nothing\nName a folder that holds config.json."),
        (
            "hf:somebody/something",
            "there is no folder somebody/something, and no model of that name in the local cache\n"
            "Pass --download to fetch it, or name a folder that holds config.json.",
        ),
        ("hf:empty", "empty has no config.json"),
        (
            "hf:pipeline",
            "pipeline has no config.json\nIt is a pipeline: name one of its parts, as diffusers:pipeline/unet.",
        ),
        ("hf:unet", "unet is a model of diffusers\nWrite diffusers:unet."),
        (
            "hf:code",
            "code comes with code of its own, which is not run from here\nBuild the model in a function",
        ),
        ("hf:broken", "broken/config.json can't be read: JSONDecodeError"),
        ("hf:list", "list/config.json holds no config"),
        ("hf:unknown", "unknown/config.json can't be read: "),
        ("hf:file", "file is a file, not a folder\nName the folder that holds config.json."),
    ],
)
def test_a_folder_that_is_none(library: Callable[[str], Any], tmp_path: Path, name: str, told: str) -> None:
    library("transformers")
    texts = {
        "empty/readme": "",
        "pipeline/model_index.json": "{}",
        "unet/config.json": json.dumps({"_class_name": "UNet2DModel"}),
        "code/config.json": json.dumps({"auto_map": {"AutoModel": "net.Net"}}),
        "broken/config.json": "{",
        "list/config.json": "[]",
        "unknown/config.json": json.dumps({"model_type": "cooking"}),
        "file": "",
    }
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    with pytest.raises(FileError) as caught:
        anyshape.from_name(name)
    assert str(caught.value).startswith(told)


def test_a_download_that_fails(library: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> None:
        assert kwargs["local_files_only"] is False
        raise OSError("no way to huggingface.co")

    monkeypatch.setattr(library("transformers").AutoConfig, "from_pretrained", offline)
    with pytest.raises(
        FileError, match=r"^somebody/something can't be downloaded: OSError: no way to huggingface.co$"
    ):
        anyshape.from_name("hf:somebody/something", download=True)


def test_a_name_whose_weights_are_not_stored(
    saved: Callable[..., str], library: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = library("transformers")
    config = transformers.AutoConfig.from_pretrained(saved("vit").removeprefix("hf:"))
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: config)
    with pytest.raises(FileError) as caught:
        anyshape.from_name("hf:somebody/something")
    assert str(caught.value) == (
        "the weights of somebody/something are not in the local cache\n"
        "Pass --download to fetch them, or --random for random ones."
    )


def test_a_model_that_reads_with_both_halves_makes_what_is_written_itself(saved: Callable[..., str]) -> None:
    _, _, kwargs = anyshape.from_name(saved("bart"), random=True)
    assert shapes_of(kwargs) == {"input_ids": (2, 7), "attention_mask": (2, 7)}


def test_a_batch_of_one_where_a_model_takes_no_other(saved: Callable[..., str]) -> None:
    name = saved("llama", kind="LlamaForSequenceClassification", pad_token_id=None)
    assert anyshape.from_name(name, random=True)[2]["input_ids"].shape == (1, 7)
