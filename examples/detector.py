"""A detector of transformers, a DETR, with its post-processing: images of any size in, boxes that are found out.

anyshape export examples/detector.py:build -o detector.onnx
"""

import torch
from torch import Tensor, nn
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

import anyshape


class Detector(nn.Module):
    """What a processor of images does after the model: boxes in pixels, and only those that the model is sure of."""

    def __init__(self, model: DetrForObjectDetection, least: float) -> None:
        super().__init__()
        self.model, self.least = model, least

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = self.model(pixel_values=images)
        scores, labels = found.logits.softmax(-1)[..., :-1].max(-1)
        x, y, width, height = found.pred_boxes.unbind(-1)
        boxes = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)
        scale = torch.tensor([images.shape[3], images.shape[2]] * 2)
        sure = scores > self.least
        return boxes[sure] * scale, scores[sure], labels[sure], sure.nonzero()[:, 0]


def build() -> tuple:
    """The detector, and two images."""
    torch.manual_seed(0)
    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    sizes = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
    }
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    plain = {"backbone": None, "use_timm_backbone": False, "use_pretrained_backbone": False}
    config = DetrConfig(
        backbone_config=backbone, **plain, **sizes, **heads, num_queries=5, num_labels=3, init_std=0.5
    )
    return Detector(DetrForObjectDetection(config).eval(), least=0.65), (torch.randn(2, 3, 64, 96),)


def main() -> None:
    model, args = build()
    print(anyshape.export(model, args, "detector.onnx").contract)
    images = torch.randn(3, 3, 90, 70)
    found = anyshape.load("detector.onnx")(images)
    with torch.no_grad():
        expected = model(images)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    print(f"right at batch = 3, 90 × 70: {len(found[0])} boxes")


if __name__ == "__main__":
    main()
