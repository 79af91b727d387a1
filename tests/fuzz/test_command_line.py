"""Whatever stands on the command line: it works, or it is one line and exit code 2; no traceback, nothing written."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from teacher_student.app import compose, dispatch, settings_from_config
from teacher_student.app.composing import known_keys
from teacher_student.arguments import ArgumentError

from .strategies import always_the_same

WORDS = st.one_of(
    st.sampled_from(
        [
            "", "null", "nan", "inf", "-inf", "-1", "0", "1", "0.5", "2", "1e400", "-1e-400", "9" * 40, "true", "[]", "[1,[2]]",
            "[1", "{a:1}", "{", "'x'", '"', "a b", "🦊", "${seed}", "${oc.env:NOWHERE}", "${", "???", "\\", "a=b", "..",
        ]
    ),
    st.text(alphabet="ab1.=[]{}'$-+ ,:é", max_size=6),
)  # fmt: skip
SURE_TO_FAIL = "teachers.number=0"
SOUND = {
    "plan": ["num_teachers=50", "num_queries=20"],
    "label": ["predictions=votes.npy", "num_classes=2", "out=out"],
    "audit": ["mechanism=stability", "trials=100", "privacy.cutoff=1", "console=quiet"],
}
KEYS = {
    "plan": ["num_teachers", "num_queries", "num_classes", "failure", "privacy.epsilon", "privacy.delta", "privacy", "speed"],
    "label": ["predictions", "counts", "num_classes", "num_teachers", "out", "mechanism", "privacy.cutoff", "privacy.neighbours"],
    "audit": ["mechanism", "trials", "privacy.cutoff", "privacy.epsilon", "mechanism.threshold_ratio"],
}


def overrides(keys):
    """One or two settings with odd values; some of them added or removed."""
    setting = st.builds(lambda mark, key, value: f"{mark}{key}={value}", st.sampled_from(["", "", "", "+", "++"]), keys, WORDS)
    removal = st.builds("~{}".format, keys)
    return st.lists(st.one_of(setting, setting, setting, removal, WORDS), min_size=1, max_size=2)


def told(arguments):
    """Exit code, and what was complained."""
    output, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaint):
        try:
            code = dispatch(arguments)
        except SystemExit as stop:  # inside Hydra's job
            code = stop.code
    return code, complaint.getvalue()


def try_lines(lines, count, check):
    @always_the_same(count, lines)
    def trying(line):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            check(line)

    trying()


def refused_or_done(verb, line):
    np.save("votes.npy", np.array([[0] * 9, [1] * 9]))
    code, complaint = told([verb, *SOUND.get(verb, []), *line])
    assert code in (0, 2) or (verb == "audit" and code == 1), complaint
    if code == 2:
        assert len(complaint.strip().splitlines()) == 1, complaint
        assert sorted(path.name for path in Path().iterdir()) == ["votes.npy"]


def run_refused(line):
    if any(part in ("-m", "--multirun") or "number" in part for part in line):
        return
    code, complaint = told(["run", *line, SURE_TO_FAIL])
    assert code == 2
    assert len(complaint.strip().splitlines()) == 1, complaint
    assert list(Path().iterdir()) == []


def composed(line):
    with contextlib.suppress(ArgumentError):
        settings_from_config(compose("run", line))


def scale():
    return int(os.environ.get("FUZZ_EXAMPLES", "100"))


@pytest.mark.parametrize("verb", SOUND)
def test_a_verb_works_or_refuses(verb):
    try_lines(overrides(st.sampled_from(KEYS[verb])), 2 if verb == "audit" else 4, lambda line: refused_or_done(verb, line))


def test_a_run_is_refused_before_it_begins():
    try_lines(overrides(st.sampled_from(known_keys("run"))), 3, run_refused)


def test_any_config_of_a_run_is_settings_or_refused():
    try_lines(overrides(st.sampled_from(known_keys("run"))), 8, composed)


@pytest.mark.slow
def test_many_lines():
    keys = st.sampled_from(known_keys("run"))
    for verb in SOUND:
        try_lines(overrides(st.sampled_from(KEYS[verb])), scale() // 4, lambda line, verb=verb: refused_or_done(verb, line))
    try_lines(overrides(keys), scale() // 4, run_refused)
    try_lines(overrides(keys), scale(), composed)
    try_lines(st.lists(WORDS, max_size=3), scale() // 4, lambda line: refused_or_done("verify", line))


@pytest.mark.parametrize("line", [["--only", "speed"], ["--teachers", "x"], ["--samples", "nan"], ["\x00"]])
def test_benchmark_refuses_what_it_does_not_know(line):
    code, complaint = told(["benchmark", *line])
    assert code == 2
    assert "Traceback" not in complaint
