"""What CITATION.cff says of the package is what the package says of itself."""

from __future__ import annotations

from pathlib import Path

import yaml

import teacher_student

ROOT = Path(__file__).parents[1]


def test_version_and_license_agree() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == teacher_student.__version__
    assert f'license = "{cited["license"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (paper,) = cited["references"]
    assert paper["identifiers"][0]["value"].removeprefix("arXiv:") in (teacher_student.__doc__ or "")
