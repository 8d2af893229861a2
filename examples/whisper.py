"""A Whisper: thirty seconds of sound, and any number of tokens written so far.

anyshape export examples/whisper.py:build -o whisper.onnx
anyshape export hf:path/to/your-whisper --task automatic-speech-recognition -o whisper.onnx
"""

import tempfile

import torch
from transformers import WhisperConfig

import anyshape


def build() -> tuple:
    """The model, no positional arguments, and by name: filtered sound, and the first tokens."""
    sizes = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 37,
    }
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    words = {
        "vocab_size": 99,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }
    config = WhisperConfig(**sizes, **heads, **words, num_mel_bins=16, max_source_positions=30)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return anyshape.from_name(f"hf:{folder}", task="automatic-speech-recognition", random=True)


def main() -> None:
    model, args, kwargs = build()
    print(anyshape.export(model, args, "whisper.onnx", kwargs=kwargs).contract)
    given = {"input_features": torch.randn(3, 16, 60), "decoder_input_ids": torch.randint(3, 99, (3, 11))}
    logits = anyshape.load("whisper.onnx")(**given, use_cache=False)["logits"]
    with torch.no_grad():
        expected = model(**given).logits
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
    print("right at batch = 3, 11 tokens")


if __name__ == "__main__":
    main()
