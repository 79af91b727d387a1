"""Students on a GPU, without one: no step mixes devices or waits for the host, whatever the method, the views and the noise."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from teacher_student.student import METHODS, Augmentation, StudentSettings
from teacher_student.student.augmentations import views_of
from teacher_student.student.label_noise import LAWS, NoisyArgmaxLikelihood, TransitionMatrix, known_noise
from teacher_student.student.methods.supervised import Supervised
from teacher_student.student.module import Student

from ..no_device import HostTrafficError, no_host_traffic

C = 3
NOISES = [TransitionMatrix(0.0, C), TransitionMatrix(0.2, C), *(NoisyArgmaxLikelihood(law, 0.1) for law in LAWS)]


def step_without_the_host(method, noise, image=True):
    """Take two steps on the meta device as Lightning does: loss, backward pass, optimiser."""
    torch.manual_seed(0)
    points = torch.rand(8, *((2, 6, 6) if image else (5,)))
    settings = StudentSettings(method=method, average_decay=0.9, prior_precision=0.1, label_smoothing=0.1)
    views = views_of(points, Augmentation(shift=1, flip=True, jitter=0.1))
    network = nn.Sequential(nn.Flatten(), nn.Linear(points[0].numel(), C))
    student = Student(network, settings, known_noise(noise, C) if isinstance(noise, float) else noise, views, 10, 8).to("meta")
    student.log = lambda *_, **__: None
    optimizer = student.configure_optimizers()["optimizer"]
    targets, weights = torch.full((8, C), 1 / C), torch.ones(8)
    batch = {"labeled": [each.to("meta") for each in (points, targets, weights)], "unlabeled": [points.to("meta")]}
    if isinstance(noise, NoisyArgmaxLikelihood):
        noise.released(targets.to("meta"))  # moves its constants to the device, once
    for _ in range(2):
        with no_host_traffic():
            student.training_step(batch).backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"self_training"}))
def test_no_step_of_a_method_mixes_devices_or_waits_for_the_host(method, image, monkeypatch):
    monkeypatch.setattr(torch, "_sample_dirichlet", torch.rand_like)  # it has no kernel without hardware
    step_without_the_host(method, TransitionMatrix(0.2, C), image)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: getattr(noise, "law", "transitions"))
def test_no_noise_of_labels_mixes_devices_or_waits_for_the_host(noise):
    step_without_the_host("supervised", noise)


def test_a_method_that_reads_a_number_is_found(monkeypatch):
    kept = Supervised.labeled_loss

    def reading(self, learning, labeled):
        return kept(self, learning, labeled) / float(labeled.weights.sum())

    monkeypatch.setattr(Supervised, "labeled_loss", reading)
    with pytest.raises((HostTrafficError, RuntimeError), match=r"_local_scalar_dense|item\(\)"):
        step_without_the_host("supervised", 0.2)
