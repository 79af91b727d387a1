"""docs/tensorboard.md names what a run writes, on the right side of the wall."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from teacher_student.app import compose, settings_from_config
from teacher_student.pipeline import run

TEXT = (Path(__file__).parents[2] / "docs" / "tensorboard.md").read_text(encoding="utf-8")
SHORT = """experiment=blobs debug=fast baselines=true privacy.epsilon=8 data.num_private=1500 data.num_public=100
    teachers.number=50 queries.total=80 student.settings.method=pseudo_label""".split()  # noqa: SIM905 - reads like the command
ELSEWHERE = {"release/scores"}
"""Tags that this run does not write: it releases no scores."""


def documented(part: str) -> dict[str, str]:
    """Kinds by tag, from the table of a section."""
    section = TEXT.split(f"\n## {part}/tensorboard\n")[1].split("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| `")]
    return {tag.strip("`"): kind for tag, kind, _ in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return run(settings_from_config(compose("run", SHORT)), tmp_path_factory.mktemp("runs") / "one").folder.path


@pytest.mark.parametrize("part", ["release", "private"])
def test_every_tag_is_documented_and_every_documented_tag_is_there(folder, part):
    events = EventAccumulator(str(folder / part / "tensorboard"))
    events.Reload()
    tags = {tag: kind[:-1] for kind in ("scalars", "histograms", "images") for tag in events.Tags()[kind]}
    known = documented(part)
    for tag, kind in tags.items():
        assert kind in {known[pattern] for pattern in known if fnmatch(tag, pattern)}, tag
    assert {pattern for pattern in known if not any(fnmatch(tag, pattern) for tag in tags)} <= ELSEWHERE
