from __future__ import annotations

import shutil

import numpy as np
import pytest

from teacher_student.arguments import ArgumentError
from teacher_student.data import load, load_image_folder, shard_dataset
from teacher_student.data.fingerprints import private_remarks

Image = pytest.importorskip("PIL.Image")


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
    assert read(folders, colour=False, flatten=True).private_features.shape == (6, 16)
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

    seen = {"size": 16, "encoder": resnet18(), "layer": "avgpool", "evaluation": None, "class_names": ["cat", "dog"]}
    before = read(folders, **seen).private_features
    assert before.shape == (6, 512)
    (folders / "private" / "cat" / "1.png").unlink()
    after = read(folders, **seen, components=1)
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
    data = load("image_folder", label_private=2, ids="name", **options)
    assert data.neighbours == "label_only"
    rows = {row.tobytes() for row in data.private_features}
    assert len(data.public_features) == 2
    assert all(row.tobytes() in rows for row in data.public_features)
    with pytest.raises(ArgumentError, match="neighbours must be add_remove for ids that contain the label"):
        load("image_folder", label_private=2, **options)
    for both in ({}, {"label_private": 2, "public": folders / "public"}):
        with pytest.raises(ArgumentError, match="public or label_private must be given"):
            load("image_folder", **options, **both)
