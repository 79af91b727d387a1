"""Data: private records, public points, and the keyed shards that keep records apart. Plain NumPy; nothing here knows teachers.

| name | what |
|---|---|
| `PrivateDataset` | private records, public points, evaluation set, and who is protected |
| `PublicSizes` | what checks may know of a dataset: nothing that depends on a private record |
| `assign_shards`, `make_shards`, `shard_dataset`, `Shards`, `ShardManifest` | which teacher sees which record |
| `load_adult` | UCI Adult, embedded in the package |
| `load_table`, `load_image_folder`, `from_torch` | your own data |
| `load_torchvision`, `load_digits`, `load_mnist5000` | published images |
| `encode`, `pretrained` | images seen through a frozen network; one that is trained on public digits on the spot |
| `project` | any of them seen through principal components of its public points |
| `gaussian_blobs`, `thresholds`, `halfspaces`, `low_label_noise` | generated data |
| `load`, `load_label_private` | any of them by name; any of them without public points |

torch, torchvision, scikit-learn and Pillow are imported by the functions that need them.
"""

from __future__ import annotations

from teacher_student.data.adult import load_adult
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.encoded import encode
from teacher_student.data.fingerprints import fingerprint_records
from teacher_student.data.image_folder import load_image_folder
from teacher_student.data.pretraining import pretrained
from teacher_student.data.projected import project
from teacher_student.data.public_sizes import NEIGHBOURS, PublicSizes
from teacher_student.data.registry import DATASETS, load, load_label_private
from teacher_student.data.shards import ShardManifest, Shards, assign_shards, make_shards, shard_dataset
from teacher_student.data.synthetic import (
    gaussian_blobs,
    halfspaces,
    low_label_noise,
    low_label_noise_probability,
    thresholds,
)
from teacher_student.data.tabular import load_table
from teacher_student.data.torch_datasets import from_torch
from teacher_student.data.vision import load_digits, load_mnist5000, load_torchvision

__all__ = [
    "DATASETS",
    "NEIGHBOURS",
    "PrivateDataset",
    "PublicSizes",
    "ShardManifest",
    "Shards",
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
