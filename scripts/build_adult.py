"""Build the embedded UCI Adult table from the original files.

    python scripts/build_adult.py FOLDER

FOLDER holds `adult.data` and `adult.test` as distributed by the UCI Machine Learning Repository. Their SHA-256 digests are
checked first. At the end the written table is converted back into both files, and their digests are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
from pathlib import Path

import numpy as np

from teacher_student.data import adult

DIGESTS = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def read_original(folder: Path, name: str) -> str:
    """Return the text of an original file; stop if its digest is wrong."""
    content = (folder / name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != DIGESTS[name]:
        raise SystemExit(f"{folder / name} must have the SHA-256 digest {DIGESTS[name]}, got {digest}")
    return content.decode("ascii")


def encode_line(line: str, number: int, *, test: bool) -> list[int]:
    """Return the seventeen integers of one record."""
    *values, label = line.removesuffix(".").split(", ")
    codes = [int(test), number]
    for name, value in zip(adult.ATTRIBUTES, values, strict=True):
        categories = adult.CATEGORIES.get(name)
        if categories is None:
            codes.append(int(value))
        else:
            codes.append(0 if value == "?" else categories.index(value) + 1)
    return [*codes, adult.CLASS_NAMES.index(label)]


def build_table(folder: Path) -> adult.Table:
    """Return the table of both files, in column-major order, which compresses better."""
    rows = []
    for name, test in (("adult.data", False), ("adult.test", True)):
        for number, line in enumerate(read_original(folder, name).splitlines(), start=1):
            if line and not line.startswith("|"):
                rows.append(encode_line(line, number, test=test))
    return np.asfortranarray(np.array(rows, dtype="<i4"))


def original_text(table: adult.Table, *, test: bool) -> str:
    """Return the original file, `adult.test` or `adult.data`, byte for byte."""
    end = "." if test else ""
    lines = ["|1x3 Cross validator"] if test else []
    for row in table[table[:, 0] == int(test)].tolist():
        values = [_original_value(name, code) for name, code in zip(adult.ATTRIBUTES, row[2:-1], strict=True)]
        lines.append(", ".join([*values, adult.CLASS_NAMES[row[-1]] + end]))
    return "\n".join(lines) + "\n\n"


def _original_value(name: str, code: int) -> str:
    if name not in adult.CATEGORIES:
        return str(code)
    return "?" if code == 0 else adult.CATEGORIES[name][code - 1]


def pack(table: adult.Table) -> bytes:
    """Return the compressed table; equal tables give equal bytes with the same liblzma."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, table, version=(1, 0), allow_pickle=False)
    return lzma.compress(buffer.getvalue(), format=lzma.FORMAT_XZ, check=lzma.CHECK_SHA256, filters=FILTERS)


def main() -> None:
    """Check the originals, build and write the table, and check the written file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where adult.data and adult.test are")
    parser.add_argument("--output", type=Path, default=Path(adult.__file__).with_name(adult.TABLE))
    options = parser.parse_args()
    options.output.write_bytes(pack(build_table(options.folder)))
    written = np.load(io.BytesIO(lzma.decompress(options.output.read_bytes())), allow_pickle=False)
    for name, test in (("adult.data", False), ("adult.test", True)):
        restored = hashlib.sha256(original_text(written, test=test).encode("ascii")).hexdigest()
        if restored != DIGESTS[name]:
            raise SystemExit(f"{name} does not come back from {options.output}")
    print(f"wrote {options.output}: {len(written):,} records, {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
