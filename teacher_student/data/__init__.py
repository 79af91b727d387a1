"""Data: private records, public points, and the keyed shards that keep records apart. Plain NumPy; nothing here knows teachers.

| name | what |
|---|---|
| `PrivateDataset` | private records, public points, evaluation set, and who is protected |
| `PublicSizes` | what checks may know of a data set: nothing that depends on a private record |
| `assign_shards`, `make_shards`, `shard_dataset`, `Shards`, `ShardManifest` | which teacher sees which record |
| `load`, `DATASETS` | any data set by name, through any view |
| `load_adult` | UCI Adult, embedded in the package |
| `load_table`, `load_image_folder`, `from_torch` | your own data |
| `load_torchvision`, `load_digits`, `load_mnist5000` | published images |
| `gaussian_blobs`, `thresholds`, `halfspaces`, `low_label_noise` | generated data |
| `View`, `Projection`, `Encoder`, `LabelsOnly` | how records are seen, of any data set |
| `project`, `encode` | a data set seen through public components or a frozen network |
| `pretrained` | such a network, trained on public digits on the spot |

torch, torchvision, scikit-learn and Pillow are imported by the functions that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacher_student.data import adult, images, tables
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.fingerprints import fingerprint_records
from teacher_student.data.public_sizes import NEIGHBOURS, PublicSizes
from teacher_student.data.registry import DATASETS, load, load_label_private, viewed
from teacher_student.data.shards import ShardManifest, Shards, assign_shards, make_shards, shard_dataset
from teacher_student.data.synthetic import (
    gaussian_blobs,
    halfspaces,
    low_label_noise,
    low_label_noise_probability,
    thresholds,
)
from teacher_student.data.torch_datasets import from_torch
from teacher_student.data.views import Encoder, LabelsOnly, Projection, View, encode, project
from teacher_student.lazy import exported

if TYPE_CHECKING:
    from teacher_student.data.pretraining import pretrained

load_adult = viewed(adult.load_adult)
load_digits = viewed(images.load_digits)
load_image_folder = viewed(images.load_image_folder)
load_mnist5000 = viewed(images.load_mnist5000)
load_table = viewed(tables.load_table)
load_torchvision = viewed(images.load_torchvision)

__all__ = [
    "DATASETS",
    "NEIGHBOURS",
    "Encoder",
    "LabelsOnly",
    "PrivateDataset",
    "Projection",
    "PublicSizes",
    "ShardManifest",
    "Shards",
    "View",
    "assign_shards",
    "encode",
    "fingerprint_records",
    "from_torch",
    "gaussian_blobs",
    "halfspaces",
    "load",
    "load_adult",
    "load_digits",
    "load_image_folder",
    "load_label_private",
    "load_mnist5000",
    "load_table",
    "load_torchvision",
    "low_label_noise",
    "low_label_noise_probability",
    "make_shards",
    "pretrained",
    "project",
    "shard_dataset",
    "thresholds",
]

__getattr__, __dir__ = exported(__name__, {"pretrained": "pretraining"}, __all__)  # it needs torch
