"""Fingerprints: the same records in any order or encoding are recognised, others are not, and nobody does it without the key."""

from __future__ import annotations

import dataclasses

import numpy as np

from teacher_student.data import PrivateDataset, fingerprint_records, gaussian_blobs

KEY = b"0123456789abcdef"


def blobs(seed: int = 0) -> PrivateDataset:
    return gaussian_blobs(seed=seed, num_private=50, num_public=5, num_evaluation=5)


def reordered(dataset: PrivateDataset) -> PrivateDataset:
    order = np.random.default_rng(1).permutation(len(dataset.private_labels))
    fields = {name: getattr(dataset, name)[order] for name in ("private_features", "private_labels", "private_ids")}
    return dataclasses.replace(dataset, student_private_features=None, **fields)


def test_order_does_not_matter_and_one_record_does() -> None:
    found = fingerprint_records(blobs(), KEY)
    assert len(found) == 2
    assert fingerprint_records(reordered(blobs()), KEY) == found
    labels = blobs().private_labels.copy()
    labels[7] = (labels[7] + 1) % 3
    changed = fingerprint_records(dataclasses.replace(blobs(), private_labels=labels), KEY)
    assert not set(found) & (set(changed) | set(fingerprint_records(blobs(1), KEY)))


def test_another_encoding_or_other_ids_leave_one_of_them() -> None:
    features, ids = fingerprint_records(blobs(), KEY)
    scaled = dataclasses.replace(blobs(), private_features=2 * blobs().private_features)
    assert fingerprint_records(scaled, KEY)[1] == ids
    assert fingerprint_records(dataclasses.replace(blobs(), private_ids=np.arange(100, 150)), KEY)[0] == features
    assert fingerprint_records(dataclasses.replace(blobs(), private_ids=None, neighbours=""), KEY) == (features,)


def test_without_the_key_nothing_is_known() -> None:
    assert not set(fingerprint_records(blobs(), KEY)) & set(fingerprint_records(blobs(), b"another key"))
