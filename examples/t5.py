"""A T5: the lengths of text and translation vary by themselves.

anyshape export examples/t5.py:build -o t5.onnx
anyshape export hf:path/to/your-t5 --task text2text-generation -o t5.onnx
"""

import tempfile

import torch
from transformers import T5Config

import anyshape


def build() -> tuple:
    """The model, no positional arguments, and by name: a text, its mask, and the beginning of a translation."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 1, "num_heads": 4, "vocab_size": 99}
    with tempfile.TemporaryDirectory() as folder:
        T5Config(**sizes, decoder_start_token_id=0).save_pretrained(folder)
        return anyshape.from_name(f"hf:{folder}", task="text2text-generation", random=True)


def main() -> None:
    model, args, kwargs = build()
    print(anyshape.export(model, args, "t5.onnx", kwargs=kwargs).contract)
    text, translation = torch.randint(3, 99, (3, 12)), torch.randint(3, 99, (3, 9))
    given = {"input_ids": text, "attention_mask": torch.ones_like(text), "decoder_input_ids": translation}
    logits = anyshape.load("t5.onnx")(**given, use_cache=False)["logits"]
    with torch.no_grad():
        expected = model(**given).logits
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
    print("right at batch = 3, 12 tokens to 9")


if __name__ == "__main__":
    main()
