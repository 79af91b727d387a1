"""Cover types, from a small file of the published form."""

import gzip
import hashlib

import numpy as np
import pytest

from teacher_student import ArgumentError
from teacher_student.data import covertype, load


def test_a_small_file_is_read_and_another_is_refused(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = np.hstack([rng.integers(0, 3000, (60, 10)), rng.integers(0, 2, (60, 44)), np.arange(60)[:, None] % 7 + 1])
    text = "\n".join(",".join(map(str, row)) for row in table)
    (tmp_path / "covtype.data.gz").write_bytes(packed := gzip.compress(text.encode()))
    with pytest.raises(ArgumentError, match=r"root must have the published covtype\.data\.gz"):
        load("covertype", root=tmp_path)
    monkeypatch.setattr(covertype, "SHA256", hashlib.sha256(packed).hexdigest())
    data = load("covertype", root=tmp_path, num_public=20, num_evaluation=10)
    assert data.private_labels.tolist() == (table[data.private_ids, -1] - 1).tolist()
    assert data.public_features.shape == (20, 54)
    assert np.abs(data.public_features.mean(axis=0)).max() < 1e-5
