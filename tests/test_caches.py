"""Caches of transformers: in and out, empty, of the caller's class, and prompts continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyshape
from anyshape.errors import InputError, UsageError
from anyshape.inputs.caches import built, miscounted, open_cache
from anyshape.inputs.names import present
from anyshape.inputs.tree import flatten, open_any

transformers = pytest.importorskip("transformers", reason="caches are those of transformers")
from transformers import (  # noqa: E402
    DynamicCache,
    EncoderDecoderCache,
    LlamaConfig,
    LlamaForCausalLM,
    StaticCache,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.cache_utils import DynamicSlidingWindowLayer, LinearAttentionLayer  # noqa: E402

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 2,
    "vocab_size": 40,
    "eos_token_id": None,
}


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL)).eval()


def filled(layers: int = 2, batch: int = 2, heads: int = 1, past: int = 5, size: int = 8) -> DynamicCache:
    cache = DynamicCache()
    for layer in range(layers):
        cache.update(
            torch.randn(batch, heads, past, size), torch.randn(batch, heads, past, size) + layer, layer
        )
    return cache


def decoding(batch: int = 2, seq: int = 3, past: int = 5) -> dict[str, Any]:
    return {
        "input_ids": torch.randint(0, 40, (batch, seq)),
        "attention_mask": torch.ones(batch, past + seq, dtype=torch.long),
        "past_key_values": filled(batch=batch, past=past),
    }


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[LlamaForCausalLM, str]:
    model, path = llama(), str(tmp_path_factory.mktemp("llama") / "model.onnx")
    torch.manual_seed(1)
    given = decoding()
    before = [
        tensor.clone() for layer in given["past_key_values"].layers for tensor in (layer.keys, layer.values)
    ]
    anyshape.export(model, (), path, kwargs=given)
    after = [tensor for layer in given["past_key_values"].layers for tensor in (layer.keys, layer.values)]
    assert all(map(torch.equal, before, after))  # a model writes into its cache: not into the caller's
    return model, path


# --- Taking apart -----------------------------------------------------------------------------------------


def test_layer_by_layer_keys_before_values() -> None:
    cache = filled()
    leaves, structure = flatten({"past_key_values": cache})
    names = [name for name, _ in leaves]
    assert names == [f"past_key_values.{layer}.{word}" for layer in (0, 1) for word in ("key", "value")]
    assert leaves[3][1] is cache.layers[1].values
    assert structure.children[0].kind == "cache"


def test_each_run_gets_a_cache_of_its_own() -> None:
    cache = filled(past=5)
    box = open_cache(cache)
    assert box is not None and box.rebuild_with is not None
    made = box.rebuild_with([torch.zeros(3, 1, 2, 8)] * 4)
    made.update(torch.ones(3, 1, 4, 8), torch.ones(3, 1, 4, 8), 0)
    assert made.get_seq_length() == 6 and cache.get_seq_length() == 5
    assert type(made) is DynamicCache


def test_a_sliding_window_counts_what_it_is_given() -> None:
    cache = DynamicCache()
    cache.layers, cache.layer_class_to_replicate = [DynamicSlidingWindowLayer(sliding_window=16)], None
    cache.update(torch.zeros(1, 1, 5, 4), torch.zeros(1, 1, 5, 4), 0)
    box = open_cache(cache)
    assert box is not None and box.rebuild_with is not None
    assert box.keys == [
        "0.key",
        "0.value",
    ]  # the window itself, a tensor under a private name, is a constant
    assert box.rebuild_with([torch.zeros(1, 1, 9, 4)] * 2).get_seq_length() == 9


def test_an_encoder_decoder_cache_has_its_own_attention_first() -> None:
    cache = EncoderDecoderCache(filled(layers=1, past=2), filled(layers=1, past=7))
    box = open_cache(cache)
    assert box is not None
    assert box.keys == ["0.decoder.key", "0.decoder.value", "0.encoder.key", "0.encoder.value"]


def test_states_of_linear_attention() -> None:
    cache = DynamicCache()
    cache.layers, cache.layer_class_to_replicate = [LinearAttentionLayer()], None
    cache.update_conv_state(torch.ones(1, 3, 4), 0)
    cache.update_recurrent_state(torch.ones(1, 2, 3), 0)
    box = open_cache(cache)
    assert box is not None and box.rebuild_with is not None
    assert [tuple(child.shape) for child in box.children] == [(1, 3, 4), (1, 2, 3)]
    assert torch.equal(
        box.rebuild_with([torch.zeros(2, 3, 4), torch.zeros(2, 2, 3)]).get_conv_state(0), torch.zeros(2, 3, 4)
    )


def test_what_is_no_cache_is_left_alone() -> None:
    assert open_cache([torch.zeros(2)]) is None
    assert open_cache(object()) is None


def test_names_of_results() -> None:
    first, second = filled(layers=1), filled(layers=1)
    leaves, structure = flatten({"logits": torch.zeros(1), "past_key_values": first, "other": [second]})
    assert present(structure, [path for path, _ in leaves]) == [
        "logits",
        "present.0.key",
        "present.0.value",
        "present.other.0.0.key",
        "present.other.0.0.value",
    ]


# --- Export -----------------------------------------------------------------------------------------------


def test_one_file_prefills_and_decodes(decoder: tuple[LlamaForCausalLM, str]) -> None:
    model, path = decoder
    run = anyshape.load(path)
    assert run.contract.dim("past").range.minimum == 0
    for batch, seq, past in ((1, 7, 0), (3, 1, 9), (2, 4, 1)):
        given = (
            decoding(batch, seq, past) if past else decoding(batch, seq) | {"past_key_values": DynamicCache()}
        )
        given["attention_mask"] = torch.ones(batch, past + seq, dtype=torch.long)
        with torch.no_grad():
            import copy

            wanted = model(**copy.deepcopy(given))
        got = run(**given)
        torch.testing.assert_close(got["logits"], wanted.logits, rtol=1e-4, atol=1e-5)
        cache = got["past_key_values"]
        assert type(cache) is DynamicCache and cache.get_seq_length() == past + seq
        torch.testing.assert_close(cache.layers[1].values, wanted.past_key_values.layers[1].values)


def test_an_empty_cache_as_an_example_serves_as_well(tmp_path: Path) -> None:
    model, ids, cache = llama(), torch.randint(0, 40, (2, 6)), DynamicCache()
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "past_key_values": cache}
    made = anyshape.export(model, (), str(tmp_path / "model.onnx"), kwargs=given)
    assert [item.name for item in made.contract.inputs][2:4] == [
        "past_key_values.0.key",
        "past_key_values.0.value",
    ]
    assert made.contract.dim("past").example == 0 and made.contract.dim("past").range.contains(77)
    assert not cache.layers  # the caller's own is as it was


def test_an_argument_left_out_is_an_empty_cache(decoder: tuple[LlamaForCausalLM, str]) -> None:
    model, path = decoder
    ids = torch.randint(0, 40, (2, 6))
    got = anyshape.load(path)(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert sorted(got["past_key_values"]) == ["0.key", "0.value", "1.key", "1.value"]
    with torch.no_grad():
        torch.testing.assert_close(got["logits"], model(ids).logits, rtol=1e-4, atol=1e-5)
    arrays = anyshape.load(path)(input_ids=ids.numpy(), attention_mask=np.ones((2, 6), np.int64))
    np.testing.assert_allclose(arrays["logits"], got["logits"].numpy(), rtol=1e-4, atol=1e-5)


def test_a_class_that_is_handed_over_comes_back(decoder: tuple[LlamaForCausalLM, str]) -> None:
    ids = torch.randint(0, 40, (2, 6))
    run = anyshape.load(decoder[1], classes=[DynamicCache])
    made = run(input_ids=ids, attention_mask=torch.ones_like(ids))["past_key_values"]
    assert type(made) is DynamicCache and made.get_seq_length() == 6


def test_generation_is_that_of_transformers(decoder: tuple[LlamaForCausalLM, str]) -> None:
    model, path = decoder
    run = anyshape.load(path)
    for shape in ((1, 4), (2, 7)):
        ids = torch.randint(1, 40, shape)
        wanted = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
        assert torch.equal(run.generate(ids, max_new_tokens=12), wanted)
    assert run.generate(ids.numpy(), max_new_tokens=2).shape == (2, 9)
    first = int(wanted[0, 7])
    assert run.generate(ids[:1], max_new_tokens=12, eos_token_id=first).shape == (1, 8)


def test_what_generation_refuses(decoder: tuple[LlamaForCausalLM, str], tmp_path: Path) -> None:
    run, ids = anyshape.load(decoder[1]), torch.ones(2, 4, dtype=torch.long)
    padded = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    with pytest.raises(InputError, match="the prompts are padded, and the file does not take position_ids"):
        run.generate(ids, max_new_tokens=2, attention_mask=padded)
    with pytest.raises(InputError, match=r"attention_mask has shape \[2, 3\], not \[2, 4\] as input_ids"):
        run.generate(ids, max_new_tokens=2, attention_mask=padded[:, 1:])
    with pytest.raises(InputError, match="input_ids is float32 of 2 axes, not int64 of 2"):
        run.generate(torch.zeros(2, 4), max_new_tokens=2)
    path = str(tmp_path / "linear.onnx")
    anyshape.export(torch.nn.Linear(2, 2), torch.zeros(3, 2), path)
    with pytest.raises(InputError, match="this file does not take and give a cache"):
        anyshape.load(path).generate(ids, max_new_tokens=2)


def test_padded_prompts_have_positions_of_their_own(tmp_path: Path) -> None:
    model, path = llama(), str(tmp_path / "model.onnx")
    given = decoding() | {"position_ids": torch.tensor([[5, 6, 7]] * 2)}
    shapes = {"input_ids": "batch, seq", "position_ids": "batch, seq", "attention_mask": "batch, past + seq"}
    shapes |= {f"past_key_values.*.{word}": "batch, 1, past, 8" for word in ("key", "value")}
    anyshape.export(model, (), path, kwargs=given, shapes=shapes)
    ids = torch.randint(1, 40, (2, 6))
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    wanted = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert torch.equal(anyshape.load(path).generate(ids, max_new_tokens=8, attention_mask=mask), wanted)


def test_a_cache_that_comes_out_only(tmp_path: Path) -> None:
    model, ids = llama(), torch.randint(0, 40, (2, 6))
    made = anyshape.export(model, (ids,), str(tmp_path / "model.onnx"))
    names = [item.name for item in made.contract.outputs]
    assert names == ["logits", "present.0.key", "present.0.value", "present.1.key", "present.1.value"]
    assert str(made.contract.outputs[1].shape[2]) == "seq"


def test_caches_of_encoder_and_decoder(tmp_path: Path) -> None:
    config = T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2, vocab_size=40,
        decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config).eval()
    past = EncoderDecoderCache(filled(1, heads=2, past=4), filled(1, heads=2, past=6))
    past.is_updated = {0: True}
    given = {
        "encoder_outputs": (torch.randn(2, 6, 16),),
        "decoder_input_ids": torch.randint(0, 40, (2, 3)),
        "past_key_values": past,
    }
    path = str(tmp_path / "t5.onnx")
    shapes = {"encoder_outputs.0": "batch, read, 16", "decoder_input_ids": "batch, seq"}
    for word in ("key", "value"):
        shapes[f"past_key_values.0.decoder.{word}"] = "batch, 2, past, 8"
        shapes[f"past_key_values.0.encoder.{word}"] = "batch, 2, read, 8"
    contract = anyshape.export(model, (), path, kwargs=given, shapes=shapes).contract
    assert [item.name for item in contract.inputs if "past" in item.name] == [
        f"past_key_values.0.{side}.{word}" for side in ("decoder", "encoder") for word in ("key", "value")
    ]
    got = anyshape.load(path)(**given)["past_key_values"]
    assert type(got) is EncoderDecoderCache and got.get_seq_length() == 7


# --- Refusals ---------------------------------------------------------------------------------------------


def full_window() -> DynamicCache:
    cache = DynamicCache()
    cache.layers, cache.layer_class_to_replicate = [DynamicSlidingWindowLayer(sliding_window=4)], None
    cache.update(torch.zeros(1, 1, 9, 8), torch.zeros(1, 1, 9, 8), 0)
    return cache


def test_a_full_window_is_refused(decoder: tuple[LlamaForCausalLM, str]) -> None:
    said = r"past_key_values\.layers\[0\]\.cumulative_length is 9, but it holds 3 keys"
    with pytest.raises(UsageError, match=said):
        anyshape.export(llama(), (), kwargs=decoding() | {"past_key_values": full_window()})
    with pytest.raises(InputError, match=said):
        anyshape.load(decoder[1])(**(decoding() | {"past_key_values": full_window()}))
    assert miscounted([full_window()], open_any) is not None
    assert miscounted({"a": filled()}, open_any) is None


def test_a_class_that_can_not_be_filled() -> None:
    with pytest.raises(UsageError, match="StaticCache can't be made from keys and values alone"):
        built(StaticCache, ["0.key", "0.value"], [torch.zeros(1)] * 2)
    with pytest.raises(UsageError, match="DynamicCache can't be made from keys and values alone"):
        built(DynamicCache, ["0.conv_states.0"], [torch.zeros(1)])


def test_a_built_cache_of_two_sides() -> None:
    tensors = [
        torch.zeros(1, 1, 2, 4),
        torch.zeros(1, 1, 2, 4),
        torch.zeros(1, 1, 5, 4),
        torch.zeros(1, 1, 5, 4),
    ]
    names = [f"0.{side}.{word}" for side in ("decoder", "encoder") for word in ("key", "value")]
    made = built(EncoderDecoderCache, names, tensors)
    assert made.get_seq_length() == 2 and made.cross_attention_cache.get_seq_length() == 5


def test_an_empty_cache_where_the_file_takes_none(tmp_path: Path) -> None:
    model, path = llama(), str(tmp_path / "model.onnx")
    given = decoding()
    shapes = dict.fromkeys(("past_key_values.*.key", "past_key_values.*.value"), "batch, 1, past, 8")
    shapes |= {"input_ids": "batch, seq", "attention_mask": "batch, past + seq"}
    anyshape.export(model, (), path, kwargs=given, shapes=shapes, dims={"past": "2..9", "seq": "1..8"})
    run, ids = anyshape.load(path), given["input_ids"]
    with pytest.raises(InputError, match=r"past is 0, outside 2 ≤ past ≤ 9"):
        run(input_ids=ids, attention_mask=torch.ones_like(ids))
    with pytest.raises(InputError, match=r"past is 0, outside 2 ≤ past ≤ 9"):
        run.generate(ids, max_new_tokens=2)


def test_an_empty_cache_of_a_file_with_a_fixed_past(tmp_path: Path) -> None:
    model, path = llama(), str(tmp_path / "model.onnx")
    given = decoding()
    shapes = {"input_ids": "batch, 3", "attention_mask": "batch, 8"}
    shapes |= dict.fromkeys(("past_key_values.*.key", "past_key_values.*.value"), "batch, 1, 5, 8")
    anyshape.export(model, (), path, kwargs=given, shapes=shapes)
    with pytest.raises(
        InputError, match=r"the cache is empty, and past_key_values\.0\.key is \[batch, 1, 5, 8\]"
    ):
        anyshape.load(path)(**(given | {"past_key_values": DynamicCache()}))


def test_an_empty_cache_does_not_stand_for_what_an_encoder_gave() -> None:
    from anyshape.artifact.generate import begun
    from anyshape.contract.contract import Tensor
    from anyshape.dims import parse_shape

    item = Tensor("past_key_values.0.encoder.key", "float32", parse_shape("batch, 2, read, 8"))
    with pytest.raises(InputError, match="what the encoder gave is a part of it"):
        begun([None], [item])
