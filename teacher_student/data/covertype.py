"""Forest cover types of Colorado (Blackard 1998, UCI): 581,012 patches of 30 m, 54 columns, seven kinds of trees."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from teacher_student.arguments import ArgumentError, file_path
from teacher_student.data.dataset import PrivateDataset
from teacher_student.data.splits import DEFAULT_ROOT, deviations, public_split

URL = "https://ndownloader.figshare.com/files/5976039"  # as scikit-learn has it, with this digest; 11 MB
SHA256 = "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"
CLASSES = ("spruce or fir", "lodgepole pine", "ponderosa pine", "cottonwood or willow", "aspen", "douglas fir", "krummholz")


def load_covertype(
    root: str | Path = DEFAULT_ROOT, num_public: int = 20_000, num_evaluation: int = 20_000, *, split_seed: int | None = 0
) -> PrivateDataset:
    """Return the patches, ids by their line in the published file; columns are standardised by the public ones alone.

    Raises:
        ArgumentError: the file cannot be downloaded, or is not the published one.
    """
    path = file_path("root", root).expanduser() / "covtype.data.gz"
    if not path.exists():
        from torchvision.datasets.utils import download_url  # type: ignore[import-untyped]

        try:
            download_url(URL, str(path.parent), path.name)
        except (OSError, RuntimeError) as error:
            raise ArgumentError(f"root must be a folder with covtype.data.gz where {URL} cannot be reached: {error}") from error
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise ArgumentError(f"root must have the published covtype.data.gz, got another file; delete {path} to download it again")
    table = np.loadtxt(path, delimiter=",", dtype=np.int32)
    public, rest = public_split(len(table), num_public, split_seed)
    evaluation, private = (rest[part] for part in public_split(len(rest), num_evaluation, split_seed))
    values, labels, known = table[:, :-1], table[:, -1].astype(np.int64) - 1, table[public, :-1]
    features = ((values - known.mean(axis=0)) / deviations(known, 1e-4)).astype(np.float32)
    return PrivateDataset(
        name="covertype",
        num_classes=len(CLASSES),
        class_names=CLASSES,
        private_features=features[private],
        private_labels=labels[private],
        private_ids=private,
        public_features=features[public],
        evaluation_features=features[evaluation],
        evaluation_labels=labels[evaluation],
    )
