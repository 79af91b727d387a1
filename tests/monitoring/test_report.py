"""The reports are single files that open offline, and the publishable one is made of released facts alone."""

import dataclasses
import re

import numpy as np

from teacher_student.monitoring.console import Display
from teacher_student.monitoring.report import PrivateFacts, ReleasedFacts, write_private_report, write_report

CERTIFICATE = {
    "epsilon": 0.9987,
    "delta": 1e-5,
    "mechanism": "stability",
    "neighbours": "add_remove",
    "private": True,
    "not_covered": ["hyper-parameters tuned on the private data"],
    "parameters": {"threshold": 30, "query_scale": 58.4},
}


def released(**changes: object) -> ReleasedFacts:
    facts = ReleasedFacts(
        name="adult",
        settings={"teachers": 1000, "epsilon": 1.0},
        choices={"privacy.epsilon": 1.0, "learner.name": "MLP"},
        certificate=CERTIFICATE,
        labels=np.array([0, 1, -1, 1, -2]),
        scores=None,
        cutoff=50,
        class_names=["<=50K", ">50K"],
        curve=[0.6, 0.4, 0.3],
        metrics={"accuracy": 0.8391},
        majority=0.76,
        confusion=np.array([[50, 5], [8, 20]]),
        comparison={"stability": {0.01: 9000.0, 0.1: 500.0}},
    )
    return dataclasses.replace(facts, **changes)


def test_report_says_what_was_spent_and_opens_offline(tmp_path):
    write_report(tmp_path / "report.html", released())
    text = (tmp_path / "report.html").read_text()
    assert "83.91 %" in text
    assert "0.9987" in text
    assert "&lt;=50K" in text or "hyper-parameters tuned" in text
    assert not re.search(r"(src|href)=[\"']https?:", text)
    assert text.count("<svg") == 5


def test_report_of_injected_noise_warns(tmp_path):
    write_report(tmp_path / "report.html", released(certificate=CERTIFICATE | {"private": False}))
    assert "Not private" in (tmp_path / "report.html").read_text()


def test_report_without_evaluation_data_and_with_scores(tmp_path):
    facts = released(
        labels=None, scores=np.array([0.1, np.nan, 0.9]), metrics={}, majority=None, confusion=None, comparison={}, cutoff=None
    )
    write_report(tmp_path / "report.html", facts)
    assert facts.answered == 2
    assert (tmp_path / "report.html").read_text().count("<svg") == 2


def test_report_is_the_same_for_the_same_facts(tmp_path):
    for name in ("one.html", "two.html"):
        write_report(tmp_path / name, released())
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_private_report_says_that_it_is(tmp_path):
    facts = PrivateFacts(
        name="adult",
        models={"student": {"accuracy": 0.84, "brier score": 0.11}, "non-private model": {"accuracy": 0.857}},
        gaps=np.array([3, 5]),
        winners_share=np.array([0.6, 0.9]),
        shard_sizes=np.array([30, 31]),
        teacher_accuracy=np.array([0.8, 0.79]),
        abstaining=0,
    )
    write_private_report(tmp_path / "report.html", facts)
    text = (tmp_path / "report.html").read_text()
    assert "Do not publish" in text
    assert text.index("0.8400") < text.index("0.1100") < text.index("0.8570")
    assert text.count("<svg") == 4


def test_plain_display_prints_one_line_a_stage(capsys):
    display = Display("plain")
    with display.stage("teachers", total=10) as advance:
        advance(10, "10 teachers")
    display.table("Run", {"epsilon": 1.0, "non-private": 0.85}, private=["non-private"])
    printed = capsys.readouterr().out
    assert "teachers" in printed
    assert "10 teachers" in printed
    assert printed.count("do not publish") == 1
    assert display.seconds["teachers"] >= 0


def test_quiet_display_prints_nothing(capsys):
    display = Display("quiet")
    with display.stage("teachers") as advance:
        advance(1, "")
    display.say("hello")
    assert capsys.readouterr().out == ""


def test_rich_display_shows_progress(capsys):
    display = Display("rich")
    with display.stage("teachers", total=3) as advance:
        advance(2, "two done")
    assert "teachers" in capsys.readouterr().out
