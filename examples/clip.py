"""A CLIP: any number of images against any number of texts of any length.

anyshape export examples/clip.py:build -o clip.onnx
anyshape export hf:path/to/your-clip -o clip.onnx
"""

import tempfile

import torch
from transformers import CLIPConfig

import anyshape


def build() -> tuple:
    """The model, no positional arguments, and by name: texts, images, and the mask of the texts."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 37}
    text = {**sizes, "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 97, "eos_token_id": 98}
    image = {**sizes, "image_size": 32, "patch_size": 8}
    with tempfile.TemporaryDirectory() as folder:
        CLIPConfig(text_config=text, vision_config=image, projection_dim=16).save_pretrained(folder)
        return anyshape.from_name(f"hf:{folder}", task="zero-shot-image-classification", random=True)


def main() -> None:
    model, args, kwargs = build()
    print(anyshape.export(model, args, "clip.onnx", kwargs=kwargs).contract)
    texts = torch.randint(3, 90, (5, 9))
    texts[:, -1] = 98  # where a text ends is where it is read off
    given = {
        "input_ids": texts,
        "pixel_values": torch.randn(3, 3, 32, 32),
        "attention_mask": torch.ones_like(texts),
    }
    scores = anyshape.load("clip.onnx")(**given)["logits_per_image"]
    with torch.no_grad():
        expected = model(**given).logits_per_image
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-4)
    print("right at 3 images, 5 texts of 9 tokens")


if __name__ == "__main__":
    main()
