"""A ResNet-18-class network with seeded weights: small enough for unit tests, real in structure.

Batch-norm statistics are drawn, not left at 0 and 1, so that folding them has something to prove.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTHS = (16, 32, 64, 128)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection (He et al., 2015)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) to (batch, outputs, h / stride, w / stride)."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """The 18-layer network at a quarter of its width, for 64x64 images and 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        channels = WIDTHS[0]
        for index, width in enumerate(WIDTHS):
            blocks += [BasicBlock(channels, width, 1 if index == 0 else 2)]
            blocks += [BasicBlock(width, width, 1)]
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, 10)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Map images (batch, 3, 64, 64) to logits (batch, 10)."""
        features = self.blocks(self.stem(image)).mean(dim=(2, 3))
        return {"logits": self.head(features)}


def resnet18() -> tuple[nn.Module, dict[str, Tensor], dict[str, dict[int, str]]]:
    """Return the network with seeded weights, a seeded batch, and its dynamic axes."""
    generator = torch.Generator().manual_seed(18)
    model = ResNet18()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = (2.0 / max(1, parameter[0].numel())) ** 0.5 if parameter.dim() > 1 else 0.1
            parameter.normal_(0.0, scale, generator=generator)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.running_mean.normal_(0.0, 0.1, generator=generator)
                module.running_var.uniform_(0.5, 1.5, generator=generator)
    image = torch.rand(2, 3, 64, 64, generator=generator)
    return model.eval(), {"image": image}, {"image": {0: "batch"}}
