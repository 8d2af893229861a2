"""A Segformer at any resolution.

anyshape export examples/segformer.py:build -o segformer.onnx
anyshape export hf:path/to/your-segformer --task semantic-segmentation -o segformer.onnx
"""

import tempfile

import torch
from transformers import SegformerConfig

import anyshape


def build() -> tuple:
    """The model, no positional arguments, and by name: images."""
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2], "sr_ratios": [4, 2]}
    stages = {"num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2]}
    with tempfile.TemporaryDirectory() as folder:
        SegformerConfig(**sizes, **stages, decoder_hidden_size=16).save_pretrained(folder)
        return anyshape.from_name(f"hf:{folder}", task="semantic-segmentation", random=True)


def main() -> None:
    model, args, kwargs = build()
    print(anyshape.export(model, args, "segformer.onnx", kwargs=kwargs).contract)
    images = torch.randn(1, 3, 150, 211)
    logits = anyshape.load("segformer.onnx")(pixel_values=images)["logits"]
    with torch.no_grad():
        expected = model(pixel_values=images).logits
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
    print("right at 150 × 211")


if __name__ == "__main__":
    main()
