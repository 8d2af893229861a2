"""The UNet of a diffusion pipeline: any batch, height and width of the latents, any length of the prompt.

anyshape export examples/diffusion_unet.py:build -o unet.onnx
anyshape export diffusers:path/to/your-pipeline/unet -o unet.onnx
"""

import os
import tempfile

import torch
from diffusers import UNet2DConditionModel

import anyshape


def build() -> tuple:
    """The model, no positional arguments, and by name: latents, steps, and the rows of a prompt."""
    blocks = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (16, 16),
        "layers_per_block": 1,
    }
    widths = {"cross_attention_dim": 16, "attention_head_dim": 8, "norm_num_groups": 8, "sample_size": 16}
    with tempfile.TemporaryDirectory() as folder:
        UNet2DConditionModel(**blocks, **widths).save_pretrained(os.path.join(folder, "unet"))
        return anyshape.from_name(f"diffusers:{folder}/unet", random=True)


def main() -> None:
    model, args, kwargs = build()
    print(anyshape.export(model, args, "unet.onnx", kwargs=kwargs).contract)
    given = {
        "sample": torch.randn(3, 4, 12, 20),
        "timestep": torch.tensor([900, 500, 20]),
        "encoder_hidden_states": torch.randn(3, 11, 16),
    }
    noise = anyshape.load("unet.onnx")(**given)["sample"]
    with torch.no_grad():
        expected = model(**given).sample
    torch.testing.assert_close(noise, expected, rtol=1e-3, atol=1e-4)
    print("right at batch = 3, 12 × 20, 11 rows")


if __name__ == "__main__":
    main()
