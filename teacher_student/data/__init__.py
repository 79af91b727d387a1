"""Data: private records, public points, and the keyed shards that keep records apart. Plain NumPy; nothing here knows teachers.

| name | what |
|---|---|
| `PrivateDataset` | private records, public points, evaluation set, and who is protected |
| `assign_shards`, `make_shards`, `shard_dataset`, `Shards`, `ShardManifest` | which teacher sees which record |
| `load_adult` | UCI Adult, embedded in the package |
"""

from __future__ import annotations

from teacher_student.data.adult import load_adult
from teacher_student.data.dataset import NEIGHBOURS, PrivateDataset
from teacher_student.data.shards import ShardManifest, Shards, assign_shards, make_shards, shard_dataset

__all__ = [
    "NEIGHBOURS",
    "PrivateDataset",
    "ShardManifest",
    "Shards",
    "assign_shards",
    "load_adult",
    "make_shards",
    "shard_dataset",
]
