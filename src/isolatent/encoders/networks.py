"""Encoder networks, and output heads that bound their codes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu, silu

from isolatent.checks import check_integer, check_real, check_scale
from isolatent.streams import Dropout

__all__ = [
    "MLP",
    "BoxHead",
    "ConvEncoder",
    "PaperMLP",
    "PooledEncoder",
    "ProjectedEncoder",
    "ResidualEncoder",
    "SphereHead",
]

POOLED = 16  # height and width of the small copy that a pooled encoder sees


class MLP(nn.Module):
    r"""A perceptron beside a linear path: :math:`h = A x + \mathrm{MLP}(x)`.

    The last layer of the perceptron starts at zero, so training starts from a linear encoder: the
    mixing's linear part is undone at once, and the network has only the rest to learn.

    Args:
        n_inputs: Observed dimensions m.
        n_outputs: Codes n.
        hidden: Widths of the hidden layers.
        skip: Whether to have the linear path; without it the last layer starts as usual.
        slope: Slope of the leaky ReLU below zero.
        dropout: Share of the hidden units that are set to zero in each step of training.

    Example:
        >>> encoder, x = MLP(4, 2), torch.rand(3, 4)
        >>> torch.equal(encoder(x), encoder.skip(x))  # linear before training
        True
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        hidden: Sequence[int] = (128, 128),
        skip: bool = True,
        slope: float = 0.1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_real("dropout", dropout, at_least=0, below=1)
        sizes = [check_integer("n_inputs", n_inputs, at_least=1)]
        sizes += [check_integer("hidden", width, at_least=1) for width in hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.LeakyReLU(slope)]
            if dropout > 0:
                layers.append(Dropout(dropout))
        last = nn.Linear(sizes[-1], check_integer("n_outputs", n_outputs, at_least=1))
        self.network = nn.Sequential(*layers, last)
        self.skip = nn.Linear(n_inputs, n_outputs) if skip else None
        if skip:
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map observations (N, m) to codes (N, n)."""
        h: Tensor = self.network(x)
        return h if self.skip is None else h + self.skip(x)


class PaperMLP(MLP):
    """The encoder of `zimmermann2021`: six hidden layers of 10n, 50n four times, and 10n units.

    It has far more weights than :class:`MLP` with its defaults, and its steps cost accordingly.

    Args:
        n_inputs: Observed dimensions m.
        n_outputs: Codes n.

    Example:
        >>> [layer.out_features for layer in PaperMLP(4, 2).network[::2]]
        [20, 100, 100, 100, 100, 20, 2]
    """

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        narrow, wide = 10 * n_outputs, 50 * n_outputs
        widths = (narrow, wide, wide, wide, wide, narrow)
        super().__init__(n_inputs, n_outputs, widths, skip=False, slope=0.01)


class ConvEncoder(nn.Module):
    """The papers' encoder of 64 × 64 images (KITTI Masks, dSprites), for images of any size.

    Convolutions that halve the image (32, 32, 64, 64 channels, and 64 for each further one) until
    its shorter side has 4 to 7 pixels, one over all that is left (256), and a linear layer, with
    ReLUs between them. Images of 64 × 64 have four of them, as in the papers.

    Args:
        n_outputs: Codes n.
        channels: Channels of the images.
        size: Height and width of the images, at least 16.

    Example:
        >>> ConvEncoder(10)(torch.rand(2, 1, 64, 64)).shape
        torch.Size([2, 10])
        >>> ConvEncoder(10, channels=3, size=(48, 100))(torch.rand(2, 3, 48, 100)).shape
        torch.Size([2, 10])
    """

    def __init__(self, n_outputs: int, channels: int = 1, size: tuple[int, int] = (64, 64)) -> None:
        super().__init__()
        check_integer("n_outputs", n_outputs, at_least=1)
        self.channels = check_integer("channels", channels, at_least=1)
        left = [check_integer("size", side, at_least=16) for side in size]
        self.size = (left[0], left[1])
        widths = [channels]
        while min(left) >= 8:
            widths.append(32 if len(widths) <= 2 else 64)
            left = [side // 2 for side in left]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(widths[-1], 256, (left[0], left[1])), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(256, n_outputs)]
        # On a CPU convolutions train faster with the channels last.
        self.network = nn.Sequential(*layers)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, channels, height, width) to codes (N, n)."""
        if x.shape[1:] != (self.channels, *self.size):
            height, width = self.size
            raise ValueError(
                f"x must have shape (N, {self.channels}, {height}, {width}), got {tuple(x.shape)}"
            )
        h: Tensor = self.network(x)
        return h


class PooledEncoder(nn.Module):
    """A perceptron on a small copy of the image: on a CPU much cheaper than convolutions.

    Pixels are averaged to a grid of 16 × 16, which keeps where an object is, its size and its
    rough outline, but no fine texture.

    Args:
        n_outputs: Codes n.
        channels: Channels of the images.
        hidden: Widths of the hidden layers.

    Example:
        >>> PooledEncoder(10, channels=3)(torch.rand(2, 3, 48, 64)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, n_outputs: int, channels: int = 1, hidden: Sequence[int] = (512, 512, 256)
    ) -> None:
        super().__init__()
        self.channels = check_integer("channels", channels, at_least=1)
        self.pool = nn.AdaptiveAvgPool2d(POOLED)
        inputs = channels * POOLED * POOLED
        self.network = MLP(inputs, n_outputs, hidden, skip=False, slope=0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, channels, height, width), 16 × 16 or larger, to codes (N, n)."""
        if x.ndim != 4 or x.shape[1] != self.channels or min(x.shape[2:]) < POOLED:
            raise ValueError(
                f"x must have shape (N, {self.channels}, height, width) with images of at least "
                f"{POOLED} × {POOLED}, got {tuple(x.shape)}"
            )
        h: Tensor = self.network(self.pool(x).flatten(1))
        return h


class ResidualEncoder(nn.Module):
    """A residual network for images of any size from 16 × 16 up.

    Each stage halves the image with its first block and doubles the channels. Groups are
    normalised instead of batches: a code must not depend on the company it is computed in.

    Args:
        n_outputs: Codes n.
        channels: Channels of the images.
        widths: Channels of each stage, multiples of 8.
        blocks: Residual blocks per stage.

    Example:
        >>> ResidualEncoder(10, widths=(8, 16), blocks=1)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        n_outputs: int,
        channels: int = 3,
        widths: Sequence[int] = (32, 64, 128),
        blocks: int = 2,
    ) -> None:
        super().__init__()
        check_integer("n_outputs", n_outputs, at_least=1)
        check_integer("channels", channels, at_least=1)
        check_integer("blocks", blocks, at_least=1)
        for width in widths:
            if check_integer("widths", width, at_least=8) % 8:
                raise ValueError(f"widths must be multiples of 8, got {tuple(widths)}")
        stages: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, stride=2, padding=1)]
        for before, after in pairwise([widths[0], *widths]):
            stages.append(_Residual(before, after, stride=2))
            stages += [_Residual(after, after, stride=1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*stages)
        self.norm = nn.GroupNorm(8, widths[-1])
        self.out = nn.Linear(widths[-1], n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, channels, height, width) to codes (N, n)."""
        h: Tensor = self.out(silu(self.norm(self.stages(x))).mean((-2, -1)))
        return h


class ProjectedEncoder(nn.Module):
    """A residual network and a projector: a perceptron with codes on the unit sphere.

    Contrastive learning with augmentations trains the codes of the projector and uses the features
    of the backbone, which keep more of what the loss makes codes forget.

    Args:
        n_outputs: Codes n.
        channels: Channels of the images.
        widths: Channels of each stage of the backbone, multiples of 8.
        blocks: Residual blocks per stage.
        n_features: Features of the backbone, and width of the projector's hidden layer.

    Example:
        >>> encoder = ProjectedEncoder(8, widths=(8, 16), blocks=1, n_features=32)
        >>> images = torch.rand(2, 3, 32, 32)
        >>> encoder.features(images).shape, encoder(images).norm(dim=1).round(decimals=4).tolist()
        (torch.Size([2, 32]), [1.0, 1.0])
    """

    def __init__(
        self,
        n_outputs: int,
        channels: int = 3,
        widths: Sequence[int] = (32, 64, 128),
        blocks: int = 1,
        n_features: int = 128,
    ) -> None:
        super().__init__()
        self.backbone = ResidualEncoder(n_features, channels, widths, blocks)
        hidden = (n_features,)
        self.projector = MLP(n_features, n_outputs, hidden, skip=False, slope=0.0)
        self.head = SphereHead()

    def features(self, x: Tensor) -> Tensor:
        """Map images (N, channels, height, width) to features of the backbone (N, n_features)."""
        features: Tensor = relu(self.backbone(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Map images to codes (N, n)."""
        codes: Tensor = self.head(self.projector(self.features(x)))
        return codes


class _Residual(nn.Module):
    """y = shortcut(x) + two normalised convolutions of x."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(silu(self.norm2(self.conv1(silu(self.norm1(x))))))
        out: Tensor = h + self.shortcut(x)
        return out


class SphereHead(nn.Module):
    r"""Codes on a sphere: :math:`r\, h / \|h\|_2`.

    Args:
        radius: r, or its start.
        learn_radius: Whether r is a parameter, kept positive as :math:`e^{\log r}`.

    Example:
        >>> SphereHead(radius=2.0)(torch.tensor([[3.0, 4.0]]))
        tensor([[1.2000, 1.6000]])
    """

    log_radius: Tensor

    def __init__(self, radius: float = 1.0, learn_radius: bool = False) -> None:
        super().__init__()
        _register(self, "log_radius", check_real("radius", radius, above=0), learn_radius)

    @property
    def radius(self) -> Tensor:
        """The current r."""
        return self.log_radius.exp()

    def forward(self, h: Tensor) -> Tensor:
        """Project codes (N, n)."""
        return self.radius * normalize(h, dim=-1)


class BoxHead(nn.Module):
    r"""Codes in a box :math:`[0, b]^n`: :math:`b \,\mathrm{sigmoid}(h)`.

    Args:
        bound: The side b, one for all dimensions or one for each, or its start.
        learn_bound: Whether b is a parameter, kept positive as :math:`e^{\log b}`.

    Example:
        >>> BoxHead(bound=2.0)(torch.tensor([[-100.0, 0.0, 100.0]])).detach()
        tensor([[0., 1., 2.]])
        >>> BoxHead(bound=[1.0, 3.0])(torch.tensor([[0.0, 0.0]])).detach()
        tensor([[0.5000, 1.5000]])
    """

    log_bound: Tensor

    def __init__(self, bound: float | Sequence[float] = 1.0, learn_bound: bool = True) -> None:
        super().__init__()
        _register(self, "log_bound", check_scale("bound", bound), learn_bound)

    @property
    def bound(self) -> Tensor:
        """The current b."""
        return self.log_bound.exp()

    def forward(self, h: Tensor) -> Tensor:
        """Squash codes (N, n)."""
        return self.bound * torch.sigmoid(h)


def _register(module: nn.Module, name: str, value: float | tuple[float, ...], learn: bool) -> None:
    logarithm = torch.tensor(value).log()
    if learn:
        module.register_parameter(name, nn.Parameter(logarithm))
    else:
        module.register_buffer(name, logarithm)
