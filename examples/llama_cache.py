"""A Llama with its cache as input and result: one file for the first tokens and for each one after them.

anyshape export examples/llama_cache.py:build -o llama.onnx
anyshape export hf:path/to/your-llama -o llama.onnx
"""

import tempfile

import onnxruntime
import torch
from transformers import LlamaConfig

import anyshape


def build() -> tuple:
    """The model, no positional arguments, and by name: tokens, their mask, and a short past."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    with tempfile.TemporaryDirectory() as folder:
        LlamaConfig(**sizes, intermediate_size=64, vocab_size=99).save_pretrained(folder)
        return anyshape.from_name(f"hf:{folder}", task="text-generation", random=True)


def main() -> None:
    model, args, kwargs = build()
    print(anyshape.export(model, args, "llama.onnx", kwargs=kwargs).contract)
    session = onnxruntime.InferenceSession("llama.onnx")
    tokens = torch.randint(3, 99, (3, 11))

    # The first run has no past, the second takes what the first one left: all results but the logits.
    cache = [item.name for item in session.get_inputs() if item.name.startswith("past")]
    empty = {name: torch.zeros(3, 2, 0, 8).numpy() for name in cache}
    feed = {"input_ids": tokens[:, :9].numpy(), "attention_mask": torch.ones(3, 9, dtype=torch.long).numpy()}
    _, *past = session.run(None, feed | empty)
    feed = {"input_ids": tokens[:, 9:].numpy(), "attention_mask": torch.ones(3, 11, dtype=torch.long).numpy()}
    logits, *_ = session.run(None, feed | dict(zip(cache, past, strict=True)))

    with torch.no_grad():
        expected = model(input_ids=tokens).logits[:, 9:]
    torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-3, atol=1e-4)
    print("right at batch = 3: 9 tokens, then 2 more")


if __name__ == "__main__":
    main()
