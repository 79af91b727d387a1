"""A cryptographic generator for the masks of Flower's secure aggregation.

Flower 1.41 folds a seed of 256 bits into 32 and lets a Mersenne Twister draw the masks (`pseudo_rand_gen`, its issue 7522). A
seed of 32 bits can be found by trying. Here the whole seed keys ChaCha20, on both sides. Remove this file once Flower does so.
"""

from __future__ import annotations

import hashlib
import importlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

MODULUS = 2**32


def mask(seed: bytes, num_range: int, dimensions_list: list[tuple[int, ...]]) -> list[NDArray[np.int64]]:
    """Return masks of these shapes, uniform over the integers below 2^32: the key stream of ChaCha20 under a hash of the seed."""
    if num_range != MODULUS:
        raise ValueError(f"the masks are those of the modulus 2^32, got {num_range}")
    key = hashlib.blake2b(seed, digest_size=32, person=b"owners.masks.1").digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    words = [np.frombuffer(stream.update(bytes(4 * int(np.prod(shape)))), dtype="<u4") for shape in dimensions_list]
    return [part.astype(np.int64).reshape(shape) for part, shape in zip(words, dimensions_list, strict=True)]


for name in ("client.mod.secure_aggregation.secaggplus_mod", "server.workflow.secure_aggregation.secaggplus_workflow"):
    module = importlib.import_module(f"flwr.{name}")
    if not callable(getattr(module, "pseudo_rand_gen", None)):  # fail closed: another version of Flower
        raise ImportError("flwr must be a version whose masks this example knows how to draw; see README.md")
    module.pseudo_rand_gen = mask  # type: ignore[attr-defined]
