"""Shards: which teacher sees which record. Only a keyed hash of the record's id decides.

    digest(id) = BLAKE2b(key, canonical bytes of the id), 128 bits: two unsigned 64-bit words
    shard      = first word mod num_shards            (bias below num_shards / 2^64)
    order within the shard: by the second word

A record keeps its shard, and its shard keeps its order, whatever other records are added, removed or moved in the file. With
contiguous, round-robin or shuffled splits, the removal of one record may move all shards, and "one record, one teacher, one vote"
no longer holds. Shards are uneven and may be empty; their sizes are private.

The key is random by default and stays in the private manifest, so that nobody outside can tell who shared a teacher.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, positive_integer
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.identifiers import canonical_identifiers, encode_identifier

ALGORITHM = "blake2b-128 keyed, tagged ids, first word mod num_shards, second word orders"
KEY_BYTES = 32
_PERSON = b"teacher.shards.1"  # BLAKE2b's domain separation: the same key used elsewhere gives unrelated digests
_LARGEST_NUM_SHARDS = 2**32
_MOST_MADE = 10**7  # shards with a place in memory each; as many as a run has teachers


def assign_shards(ids: object, num_shards: int, key: bytes) -> npt.NDArray[np.int64]:
    """Return the shard of each record.

    Args:
        ids: (n,) integers or strings stored with the records, or the records' users (see `canonical_identifiers`).
        num_shards: k, public.
        key: 1 to 64 secret bytes; use 16 or more.

    Returns:
        (n,) int64 in [0, num_shards). Each entry depends on its own id, `num_shards` and `key` only.

    Raises:
        ArgumentError: ids that are not a list, a bad key, `num_shards` not positive.

    >>> assign_shards([1, "1", 2], 1000, b"0123456789abcdef")
    array([591, 675, 497])
    """
    shards = positive_integer("num_shards", num_shards, maximum=_LARGEST_NUM_SHARDS)
    return _shard_of(_digests(ids, key), shards)


def _shard_of(digests: npt.NDArray[np.uint64], num_shards: int) -> npt.NDArray[np.int64]:
    return (digests[:, 0] % np.uint64(num_shards)).astype(np.int64)


def _digests(ids: object, key: bytes) -> npt.NDArray[np.uint64]:
    """(n, 2) words of the keyed digest of each id; about 1 us per id."""
    if not isinstance(key, bytes) or not 1 <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
        raise ArgumentError("key must be 1 to 64 secret bytes, got something else; secrets.token_bytes(32) makes one")
    started = hashlib.blake2b(digest_size=16, key=key, person=_PERSON)
    digests = bytearray()
    for identifier in canonical_identifiers("ids", ids):
        state = started.copy()  # the key's block is already prepared
        state.update(encode_identifier(identifier))
        digests += state.digest()
    return np.frombuffer(bytes(digests), dtype="<u8").astype(np.uint64).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class Shards:
    """Flat, ragged storage of the assignment. Private: the sizes depend on the records.

    Attributes:
        order: (n,) int64, the record positions, one shard after the other.
        offsets: (num_shards + 1,) int64; shard j is `order[offsets[j]:offsets[j + 1]]`.
    """

    order: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @property
    def num_shards(self) -> int:
        """Number of shards, k, with the empty ones."""
        return len(self.offsets) - 1

    def of(self, shard: int) -> npt.NDArray[np.int64]:
        """Return the positions of the records of one shard."""
        if not 0 <= shard < self.num_shards:
            raise ArgumentError(f"shard must lie between 0 and {self.num_shards - 1}, got {shard}")
        return self.order[self.offsets[shard] : self.offsets[shard + 1]]

    def only(self, kept: npt.NDArray[np.bool_]) -> Shards:
        """Return the shards with the `kept` (n,) records alone, each in its shard and in its order."""
        there = kept[self.order]
        before = np.concatenate([[0], np.cumsum(there)]).astype(np.int64)
        return Shards(self.order[there], before[self.offsets])


def make_shards(ids: object, num_shards: int, key: bytes) -> Shards:
    """Sort the records into their shards, and within a shard into an order that depends on the ids and the key alone.

    There may be more shards than records: n may be private, so `num_shards` is never compared with it. Such shards are empty.

    Raises:
        ArgumentError: what `assign_shards` refuses, or more than 10,000,000 shards, which take memory whether empty or not.
    """
    shards = positive_integer("num_shards", num_shards, maximum=_MOST_MADE)
    digests = _digests(ids, key)
    assignment = _shard_of(digests, shards)
    order = np.lexsort((digests[:, 1], assignment)).astype(np.int64)  # stable: the records of one user keep their order
    sizes = np.bincount(assignment, minlength=shards)
    return Shards(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


@dataclass(frozen=True)
class ShardManifest:
    """Enough to make the shards again and to check them. Private, because it holds the key.

    Attributes:
        num_shards: k.
        key: hexadecimal.
        fingerprint: hexadecimal digest of the set of ids with their shards, independent of the order in the file.
        unit: "record" or "user".
        neighbours: the relation that this assignment serves.
        algorithm: of the hash, in words.
    """

    num_shards: int
    key: str
    fingerprint: str
    unit: str = "record"
    neighbours: str = "add_remove"
    algorithm: str = ALGORITHM

    def __repr__(self) -> str:
        """Leave out the key: representations end up in logs."""
        return f"ShardManifest(num_shards={self.num_shards}, unit={self.unit!r}, neighbours={self.neighbours!r})"

    def save(self, path: str | Path) -> None:
        """Write JSON that only the owner can read, whole and once: if two processes try, one of them succeeds.

        Raises:
            FileExistsError: there is a manifest already.
        """
        target = Path(path)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # of mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(self), file, indent=2)
            os.link(draft, target)
        finally:
            Path(draft).unlink()

    @classmethod
    def load(cls, path: str | Path) -> ShardManifest:
        """Read what `save` wrote.

        Raises:
            ArgumentError: a file that cannot be read, is not a manifest, or names another algorithm.
        """
        try:
            manifest = cls(**json.loads(Path(path).read_text(encoding="utf-8")))
            bytes.fromhex(manifest.key)
        except (OSError, ValueError, TypeError) as error:
            raise ArgumentError(f"shard manifest must be a readable JSON file, got {path}: {error}") from error
        if manifest.algorithm != ALGORITHM:
            raise ArgumentError(f"shard manifest must use the algorithm {ALGORITHM!r}, got {manifest.algorithm!r}")
        return manifest

    def verify(self, shards: Shards, ids: object) -> None:
        """Recompute the assignment from the ids and check that every record lies in exactly one shard, its own.

        Raises:
            ArgumentError: a record that is missing, doubled or in a foreign shard, or ids that are not those of the manifest.
        """
        key = bytes.fromhex(self.key)
        digests = _digests(ids, key)
        assignment = _shard_of(digests, positive_integer("num_shards", self.num_shards))
        offsets_fit = (
            len(shards.offsets) == self.num_shards + 1
            and shards.offsets[0] == 0
            and shards.offsets[-1] == len(shards.order)
            and bool((np.diff(shards.offsets) >= 0).all())
        )
        if not offsets_fit:
            raise ArgumentError(f"shards must be {self.num_shards} consecutive pieces, got offsets that are not")
        if not np.array_equal(np.sort(shards.order), np.arange(len(assignment))):
            raise ArgumentError("shards must hold each record exactly once, got one that is missing or doubled")
        placed = np.repeat(np.arange(self.num_shards), np.diff(shards.offsets))
        if not np.array_equal(assignment[shards.order], placed):
            raise ArgumentError("shards must follow the keyed hash of the ids, got a record in a foreign shard")
        if _fingerprint(digests, self.num_shards, key) != self.fingerprint:
            raise ArgumentError("records must be those the shards were made for, got other ids; start a new run for changed data")

    def remake(self, dataset: PrivateDataset) -> Shards:
        """Make the shards of a resumed run again, and verify them.

        Raises:
            ArgumentError: other records, another protected unit or another neighbouring relation than the manifest's.
        """
        for field in ("unit", "neighbours"):
            recorded, now = getattr(self, field), getattr(dataset, field)
            if recorded != now:
                raise ArgumentError(f"{field} must be {recorded} as in the run's shard manifest, got {now}; start a new run")
        shards = make_shards(dataset.sharding_ids, self.num_shards, bytes.fromhex(self.key))
        self.verify(shards, dataset.sharding_ids)
        return shards.only(dataset.usable)


def _fingerprint(digests: npt.NDArray[np.uint64], num_shards: int, key: bytes) -> str:
    ordered = digests[np.lexsort((digests[:, 1], digests[:, 0]))].astype("<u8")
    return hashlib.blake2b(ordered.tobytes(), digest_size=16, key=key, salt=num_shards.to_bytes(8, "little")).hexdigest()


def shard_dataset(dataset: PrivateDataset, num_shards: int, key: bytes | None = None) -> tuple[Shards, ShardManifest]:
    """Make and verify the shards of a dataset: by user, else by record id, else (replace_one, label_only) by position.

    Records without a usable label keep their place in the assignment, which moves nobody, and are then left out of their shards.

    Args:
        dataset: with its neighbouring relation.
        num_shards: k, public.
        key: secret bytes, or None for new ones from the operating system.
    """
    key = secrets.token_bytes(KEY_BYTES) if key is None else key
    ids = dataset.sharding_ids
    shards = make_shards(ids, num_shards, key)
    manifest = ShardManifest(
        shards.num_shards, key.hex(), _fingerprint(_digests(ids, key), num_shards, key), dataset.unit, dataset.neighbours
    )
    manifest.verify(shards, ids)
    return shards.only(dataset.usable), manifest
