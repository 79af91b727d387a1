"""Shards to train on, ways to alter one of them, and which teachers that changed."""

from __future__ import annotations

import numpy as np

C = 3


def shards_of(sizes, shape=(6,), seed=0):
    """Records of every shard, drawn from the shard's own generator."""
    parts = []
    for shard, size in enumerate(sizes):
        generator = np.random.default_rng([seed, shard])
        parts.append((generator.standard_normal((size, *shape)).astype(np.float32), generator.integers(0, C, size)))
    return parts


def flat(parts):
    """Shards as `train_teachers` takes them."""
    features = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    offsets = np.cumsum([0, *[len(part[1]) for part in parts]])
    return features, labels, np.arange(len(labels)), offsets


def exchanged(parts, shard, alter):
    """The same shards, but for one."""
    return [alter(part) if place == shard else part for place, part in enumerate(parts)]


ALTERATIONS = {
    "values": lambda part: (part[0] + 1, part[1]),
    "labels": lambda part: (part[0], (part[1] + 1) % C),
    "one record more": lambda part: (np.concatenate([part[0], part[0][:1]]), np.append(part[1], 0)),
    "one record less": lambda part: (part[0][1:], part[1][1:]),
    "largest": lambda part: shards_of([400], part[0].shape[1:], seed=8)[0],
    "smallest": lambda part: (part[0][:1], part[1][:1]),
    "empty": lambda part: (part[0][:0], part[1][:0]),
    "NaN": lambda part: (np.full_like(part[0], np.nan), part[1]),
    "infinite": lambda part: (np.full_like(part[0], np.inf), part[1]),
    "huge": lambda part: (part[0] * 1e30, part[1]),
    "labels out of range": lambda part: (part[0], part[1] + 100),
    "negative labels": lambda part: (part[0], part[1] - 100),
}
ABSTAINS = {"empty", "NaN", "infinite", "labels out of range", "negative labels"}
"""Alterations after which a teacher has nothing to say."""


def differing(one, other):
    """Teachers whose parameters are not the same bits."""
    changed = set()
    for number in range(one.num_chunks):
        first, second = one.store.get(number).stack, other.store.get(number).stack
        for name, tensor in first.items():
            for place, shard in enumerate(one.shards_of(number)):
                if tensor[place].numpy().tobytes() != second[name][place].numpy().tobytes():
                    changed.add(shard)
    return changed
