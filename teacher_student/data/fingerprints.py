"""Are these the same data? The answer about private records is for the data holder alone.

Keyed fingerprints tell the data holder that a ledger has charged these records before, under another name or encoding. They are
private, like their key, and neither refuse nor publish anything (see `teacher_student.aggregation.ledger`). A table that shares
only some records with another is not recognised.

The private file given as a public one is refused. Records that two tables share are counted for the data holder alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError
from teacher_student.data.dataset import Features, PrivateDataset
from teacher_student.data.identifiers import canonical_identifiers, encode_identifier

_DIGEST_BYTES = 16
_PERSON = b"teacher.records1"  # BLAKE2b's domain separation, 16 bytes


def fingerprint_records(dataset: PrivateDataset, key: bytes) -> tuple[str, ...]:
    """Return fingerprints of the set of records, whatever their order.

    Args:
        dataset: of which only private fields are read.
        key: 1 to 64 secret bytes.

    Returns:
        Hexadecimal: one of features with labels and, if there are ids, one of ids with labels, which no encoding changes.

    Raises:
        ArgumentError: a key of another type or length.
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


def refuse_private_file(private: Path, others: Mapping[str, Path | None], private_too: Container[str] = ()) -> None:
    """Refuse another file that is the private one: the same file by path or link, or a copy of it that is called public.

    Whether two paths lead to one file does not depend on any record. Whether a public file is a copy of the private one does, on
    all records at once. It is refused all the same: public files are constants, the guarantee covers private files that differ
    from each of them, and for any two of those the check says the same. Whoever hands in a copy as public has published every
    record. A file that shares all records but one is not refused (see `private_remarks`). Two private files are not compared.

    Args:
        private: an existing file.
        others: files by their arguments' names; None for one that is not given.
        private_too: names of those that are private as well.

    Raises:
        ArgumentError: one of them is the private file or a copy of it.
    """
    for name, path in others.items():
        if path is None:
            continue
        if path.samefile(private):
            raise ArgumentError(f"{name} must be another file than the private one, got the same file, {path}")
        if name not in private_too and path.stat().st_size == private.stat().st_size and _digest(path) == _digest(private):
            raise ArgumentError(f"{name} must hold other records than the private file, got a copy of it, {path}")


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def private_remarks(dataset: PrivateDataset) -> tuple[str, ...]:
    """Return lines for the data holder: records without a usable label, ids that repeat, rows that are public too.

    The lines and their counts are private: nothing that anybody else sees may depend on them.
    """
    lines = list(dataset.private_notes)
    if not len(dataset.private_labels):
        lines.append("There is no private record.")
    if unusable := int((~dataset.usable).sum()):
        lines.append(_counted(unusable, "private record", "no label of the class list, and so no teacher"))
    ids = None if dataset.private_ids is None else canonical_identifiers("private_ids", dataset.private_ids)
    if ids is not None and (repeated := len(ids) - len(set(ids))):
        lines.append(_counted(repeated, "private record", "the id of another one, and so the same teacher and one vote with it"))
    rows = _row_digests(dataset.private_features)
    parts = {"evaluation": dataset.evaluation_features}
    if dataset.neighbours != "label_only":  # there the queries are private records by design
        parts = {"public": dataset.public_features, **parts}
    for part, features in parts.items():
        if features is not None and (shared := len(set(rows) & set(_row_digests(features)))):
            where = f"a place in the private and in the {part} data; if rows are short, it may be chance"
            lines.append(_counted(shared, "feature row", where))
    return tuple(lines)


def _counted(number: int, what: str, has: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'} {'has' if number == 1 else 'have'} {has}."


def _row_digests(features: Features) -> list[bytes]:
    rows: npt.NDArray[np.float32] = features.reshape(len(features), -1) if len(features) else features
    return [hashlib.blake2b(row.tobytes(), digest_size=_DIGEST_BYTES).digest() for row in rows]
