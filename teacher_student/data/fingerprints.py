"""Keyed fingerprints of private records: the same table under another name or encoding has one in common.

They tell the keeper of a ledger that records were charged before. They are private, key and all, and neither refuse nor publish
anything (see `teacher_student.aggregation.ledger`). A table that shares only some records with another is not recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from teacher_student.arguments import ArgumentError
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.identifiers import canonical_identifiers, encode_identifier

_DIGEST_BYTES = 16
_PERSON = b"teacher.records1"  # BLAKE2b's domain separation, 16 bytes


def fingerprint_records(dataset: PrivateDataset, key: bytes) -> tuple[str, ...]:
    """Return fingerprints of the set of records, whatever their order.

    Args:
        dataset: of which only private fields are read.
        key: 1 to 64 secret bytes.

    Returns:
        hexadecimal: of features with labels, and where there are ids also of ids with labels, which no encoding changes.

    Raises:
        ArgumentError: a key that is none.
    """
    if not isinstance(key, bytes) or not 1 <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
        raise ArgumentError(f"key must be 1 to {hashlib.blake2b.MAX_KEY_SIZE} bytes, got something else")
    labels = np.ascontiguousarray(dataset.private_labels, dtype="<i8")
    rows = np.ascontiguousarray(dataset.private_features, dtype="<f4").reshape(len(labels), -1)
    found = [_fingerprint((row.tobytes() for row in rows), labels, key)]
    if dataset.private_ids is not None:
        ids = canonical_identifiers("private_ids", dataset.private_ids)
        found.append(_fingerprint(map(encode_identifier, ids), labels, key))
    return tuple(found)


def _fingerprint(parts: Iterable[bytes], labels: np.ndarray[tuple[int], np.dtype[np.int64]], key: bytes) -> str:
    started = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key, person=_PERSON)
    digests = []
    for part, label in zip(parts, labels, strict=True):
        state = started.copy()
        state.update(label.tobytes() + part)
        digests.append(state.digest())
    return hashlib.blake2b(b"".join(sorted(digests)), digest_size=_DIGEST_BYTES, key=key, person=_PERSON).hexdigest()
