"""The assignment: keyed, by id alone. Each property is a function that the broken twins below must fail."""

from __future__ import annotations

import datetime
import json
import stat
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teacher_student.arguments import ArgumentError
from teacher_student.data import PrivateDataset, ShardManifest, Shards, assign_shards, gaussian_blobs, make_shards, shard_dataset
from teacher_student.data.identifiers import canonical_identifiers

KEY = b"0123456789abcdef"
IDS = st.lists(st.one_of(st.integers(), st.text()), min_size=1, max_size=12, unique=True)
Assign = Callable[[list, int, bytes], np.ndarray]


def dataset(ids, users=None, neighbours="", rows=None) -> PrivateDataset:
    rows = len(ids) if rows is None else rows
    return PrivateDataset(
        name="small",
        num_classes=2,
        class_names=("no", "yes"),
        private_features=np.zeros((rows, 1)),
        private_labels=np.zeros(rows, dtype=int),
        private_ids=ids,
        public_features=np.zeros((1, 1)),
        private_users=users,
        neighbours=neighbours,
    )


def moved_by_removal(assign: Assign, records: int = 200, num_shards: int = 20) -> int:
    """The largest number of records that move when one record is removed; a lawful assignment has 0."""
    ids = [f"record {number}" for number in range(records)]
    before = dict(zip(ids, assign(ids, num_shards, KEY).tolist(), strict=True))
    moved = []
    for gone in (0, records // 2, records - 1):
        rest = ids[:gone] + ids[gone + 1 :]
        after = dict(zip(rest, assign(rest, num_shards, KEY).tolist(), strict=True))
        moved.append(sum(before[identifier] != shard for identifier, shard in after.items()))
    return max(moved)


def contiguous(ids, num_shards, key):
    return np.arange(len(ids)) * num_shards // len(ids)


def round_robin(ids, num_shards, key):
    return np.arange(len(ids)) % num_shards


def shuffled(ids, num_shards, key):
    return np.random.default_rng(0).permutation(len(ids)) % num_shards


def by_position(ids, num_shards, key):
    return assign_shards(range(len(ids)), num_shards, key)


def by_rank(ids, num_shards, key):
    return np.argsort(np.argsort(assign_shards(ids, 2**32, key))) % num_shards


def test_a_record_keeps_its_shard_when_another_is_removed():
    assert moved_by_removal(assign_shards) == 0


@pytest.mark.parametrize("twin", [contiguous, round_robin, shuffled, by_position, by_rank])
def test_twins_that_move_other_records_are_caught(twin):
    assert moved_by_removal(twin) > 10


@given(IDS, st.integers(1, 50), st.binary(min_size=1, max_size=64), st.data())
def test_each_entry_depends_on_its_own_id_only(ids, num_shards, key, data):
    together = assign_shards(ids, num_shards, key)
    assert together.dtype == np.int64
    assert together.shape == (len(ids),)
    assert ((together >= 0) & (together < num_shards)).all()
    assert together.tolist() == [assign_shards([one], num_shards, key)[0] for one in ids]
    order = data.draw(st.permutations(range(len(ids))))
    assert assign_shards([ids[i] for i in order], num_shards, key).tolist() == together[order].tolist()


def test_integers_and_text_in_any_array_are_the_same_ids():
    numbers = assign_shards([0, 7, 300], 1000, KEY)
    for dtype in (np.int16, np.uint16, np.int64, np.uint64, object):
        assert (assign_shards(np.array([0, 7, 300], dtype=dtype), 1000, KEY) == numbers).all()
    text = assign_shards(["a", "é", "日本"], 1000, KEY)
    assert (assign_shards(np.array(["a", "é", "日本"]), 1000, KEY) == text).all()
    assert (assign_shards(np.array(["a", "é", "日本"], dtype=object), 1000, KEY) == text).all()


def test_ids_that_look_alike_are_told_apart():
    alike = [
        1,
        "1",
        " 1",
        "1 ",
        "01",
        -1,
        "-1",
        10,
        "\u00e9",
        "e\u0301",
        "a\0",
        "a",
        "",
        "\ud800",
        2**64 + 1,
        1 + 2**32,
        "i1",
        "s1",
    ]
    assert len(set(assign_shards(alike, 2**32, KEY).tolist())) == len(alike)


def test_the_key_and_the_number_of_shards_matter():
    first = assign_shards(range(1000), 10, KEY)
    other = assign_shards(range(1000), 10, KEY + b"!")
    assert 40 < (first == other).sum() < 180  # 100 expected; 6 standard deviations are 57


def test_shards_are_evenly_likely():
    counts = np.bincount(assign_shards(range(60_000), 60, KEY), minlength=60)
    statistic = ((counts - 1000.0) ** 2 / 1000).sum()
    assert statistic < 140  # chi-squared with 59 degrees of freedom: P(> 140) = 2e-8


@pytest.mark.parametrize("ids", [np.array([[1]]), np.array([1j]), np.zeros(2, [("a", int)]), "text", b"text", 3, None])
def test_what_is_no_list_of_ids_is_refused(ids):
    with pytest.raises(ArgumentError, match=r"^ids must"):
        assign_shards(ids, 3, KEY)


def test_no_single_id_is_refused():
    """An id is a cell of a private record: 7.0 is 7, as integers are stored beside a gap; what is missing is ""."""
    day = datetime.date(2026, 1, 31)
    odd = [7.0, np.float32(7), 0.5, True, None, float("nan"), b"a", day, (1, 2), object(), Decimal("0.1"), np.inf]
    plain = [7, 7, "0.5", "True", "", "", "b'a'", "2026-01-31", "", "", "0.1", "inf"]
    assert canonical_identifiers("ids", odd) == plain
    assert assign_shards(odd, 10**6, KEY).tolist() == assign_shards(plain, 10**6, KEY).tolist()
    assert assign_shards(np.array([7.0, np.nan]), 10**6, KEY).tolist() == assign_shards([7, ""], 10**6, KEY).tolist()
    assert len(assign_shards([10**5000, -(10**5000)], 3, KEY)) == 2


@pytest.mark.parametrize("num_shards", [0, -1, 2.5, True, "3", 2**33])
def test_bad_numbers_of_shards_are_refused(num_shards):
    with pytest.raises(ArgumentError, match=r"^num_shards must"):
        assign_shards([1], num_shards, KEY)


def test_more_shards_than_memory_holds_are_refused():
    """Empty shards take memory too: 2^31 of them took 50 GB, and the operating system killed the process."""
    assert make_shards([1], 10**5, KEY).num_shards == 10**5
    with pytest.raises(ArgumentError, match=r"^num_shards must be .* 10000000, got 10000001"):
        make_shards([1], 10**7 + 1, KEY)


@pytest.mark.parametrize("key", [b"", b"x" * 65, "text", None])
def test_bad_keys_are_refused(key):
    with pytest.raises(ArgumentError, match=r"^key must") as caught:
        assign_shards([1], 3, key)
    assert "xxx" not in str(caught.value)


@given(IDS, st.data())
def test_shards_hold_every_record_once_in_its_place(ids, data):
    num_shards = data.draw(st.integers(1, len(ids)))
    shards = make_shards(ids, num_shards, KEY)
    assignment = assign_shards(ids, num_shards, KEY)
    assert shards.num_shards == num_shards
    assert sorted(np.concatenate([shards.of(j) for j in range(num_shards)]).tolist()) == list(range(len(ids)))
    for shard in range(num_shards):
        assert (assignment[shards.of(shard)] == shard).all()


@given(IDS.filter(lambda ids: len(ids) > 3), st.data())
@settings(max_examples=50)
def test_the_order_within_a_shard_depends_on_its_own_records_only(ids, data):
    num_shards = data.draw(st.integers(1, 3))
    order = data.draw(st.permutations(range(len(ids))))
    moved = [ids[i] for i in order]
    first, second = make_shards(ids, num_shards, KEY), make_shards(moved, num_shards, KEY)
    without = make_shards(ids[1:], num_shards, KEY)
    for shard in range(num_shards):
        expected = [ids[i] for i in first.of(shard)]
        assert [moved[i] for i in second.of(shard)] == expected
        assert [ids[1:][i] for i in without.of(shard)] == [identifier for identifier in expected if identifier != ids[0]]


def test_empty_shards_are_allowed_and_more_shards_than_records_too():
    shards = make_shards(range(50), 50, KEY)
    assert any(len(shards.of(j)) == 0 for j in range(50))
    for records in (0, 1, 50):
        more = make_shards(range(records), 51, KEY)
        assert (more.num_shards, len(more.order)) == (51, records)
    for shard in (-1, 50):
        with pytest.raises(ArgumentError, match="shard must lie between 0 and 49"):
            shards.of(shard)


def test_keys_are_fresh_and_stay_out_of_representations():
    records = dataset(range(30))
    first, second = (shard_dataset(records, 5)[1] for _ in range(2))
    assert first.key != second.key
    assert len(bytes.fromhex(first.key)) == 32
    assert first.key not in repr(first) + str(first)


def test_all_records_of_a_user_share_a_shard():
    users = np.array([f"user {number % 7}" for number in range(100)])
    shards, manifest = shard_dataset(dataset(np.arange(100), users), 10, KEY)
    home = np.empty(100, dtype=int)
    for shard in range(10):
        home[shards.of(shard)] = shard
    assert all(len(set(home[users == user])) == 1 for user in set(users))
    assert (home == assign_shards(users, 10, KEY)).all()
    assert (manifest.unit, manifest.neighbours) == ("user", "add_remove")


def test_records_without_ids_are_placed_by_position_under_replace_one():
    shards, manifest = shard_dataset(dataset(None, rows=20), 4, KEY)
    assert manifest.neighbours == "replace_one"
    manifest.verify(shards, range(20))


def test_the_manifest_survives_the_disk_and_is_for_its_owner_only(tmp_path):
    shards, manifest = shard_dataset(dataset(range(30)), 5)
    path = tmp_path / "shards.json"
    manifest.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["shards.json"]
    assert ShardManifest.load(path) == manifest
    again = ShardManifest.load(path).remake(dataset(range(30)))
    assert (again.order == shards.order).all()
    assert (again.offsets == shards.offsets).all()


def test_verification_accepts_the_same_records_in_another_order():
    _, manifest = shard_dataset(dataset(range(30)), 5, KEY)
    backwards = list(range(29, -1, -1))
    manifest.verify(make_shards(backwards, 5, KEY), backwards)


def _swapped(shards: Shards) -> Shards:
    order = shards.order.copy()
    order[[0, -1]] = order[[-1, 0]]
    return Shards(order, shards.offsets)


def _doubled(shards: Shards) -> Shards:
    order = shards.order.copy()
    order[0] = order[1]
    return Shards(order, shards.offsets)


BROKEN = {
    "foreign shard": _swapped,
    "missing or doubled": _doubled,
    "exactly once": lambda shards: Shards(shards.order[:-1], np.minimum(shards.offsets, len(shards.order) - 1)),
    "consecutive pieces": lambda shards: Shards(shards.order, shards.offsets[:-1]),
    "got offsets": lambda shards: Shards(shards.order, shards.offsets + 1),
}


@pytest.mark.parametrize("message", BROKEN)
def test_verification_rejects_broken_shards(message):
    shards, manifest = shard_dataset(dataset(range(30)), 5, KEY)
    with pytest.raises(ArgumentError, match=message):
        manifest.verify(BROKEN[message](shards), range(30))


@pytest.mark.parametrize("twin", [contiguous, round_robin, shuffled, by_position, by_rank])
def test_verification_rejects_unlawful_assignments(twin):
    ids = [f"record {number}" for number in range(100)]
    _, manifest = shard_dataset(dataset(np.array(ids)), 5, KEY)
    assignment = twin(ids, 5, KEY)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assignment, minlength=5))])
    with pytest.raises(ArgumentError, match="foreign shard"):
        manifest.verify(Shards(np.argsort(assignment, kind="stable"), offsets), ids)


def test_a_resumed_run_notices_other_data():
    _, manifest = shard_dataset(dataset(range(30)), 5, KEY)
    for ids in (range(29), range(31), range(1, 31), [str(number) for number in range(30)]):
        with pytest.raises(ArgumentError, match="records must be those the shards were made for"):
            manifest.remake(dataset(list(ids)))
    with pytest.raises(ArgumentError, match=r"neighbours must be add_remove .* got label_only"):
        manifest.remake(dataset(range(30), neighbours="label_only"))
    with pytest.raises(ArgumentError, match=r"unit must be record .* got user"):
        manifest.remake(dataset(range(30), users=list(range(30))))


@pytest.mark.parametrize(("field", "value"), [("key", "zz"), ("key", 3), ("algorithm", "md5"), ("more", 1)])
def test_damaged_manifests_are_refused(tmp_path, field, value):
    _, manifest = shard_dataset(dataset(range(30)), 5)
    path = tmp_path / "shards.json"
    manifest.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(ArgumentError, match="shard manifest must"):
        ShardManifest.load(path)


@pytest.mark.parametrize("content", ["", "[1]", "{}", "\xff"])
def test_files_that_are_no_manifest_are_refused(tmp_path, content):
    path = tmp_path / "shards.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ArgumentError, match="shard manifest must be a readable JSON file"):
        ShardManifest.load(path)
    with pytest.raises(ArgumentError, match="shard manifest must be a readable JSON file"):
        ShardManifest.load(tmp_path / "absent.json")


def test_the_encoding_of_ids_never_changes():
    """Frozen values: a change would move the records of every run that resumes."""
    frozen = [4240, 591, 7430, 5335, 3866, 9675, 4052]
    assert assign_shards([0, 1, -5, 2**70, "", "1", "\u00e9"], 10_000, KEY).tolist() == frozen


def test_of_two_processes_one_writes_the_manifest(tmp_path):
    dataset = gaussian_blobs(seed=0, num_private=50, num_public=5, num_evaluation=5, num_classes=2, dimension=2)
    (_, first), (_, second) = shard_dataset(dataset, 4), shard_dataset(dataset, 4)
    first.save(tmp_path / "shards.json")
    with pytest.raises(FileExistsError):
        second.save(tmp_path / "shards.json")
    assert ShardManifest.load(tmp_path / "shards.json") == first
    assert [path.name for path in tmp_path.iterdir()] == ["shards.json"]
    assert (tmp_path / "shards.json").stat().st_mode & 0o777 == 0o600
