"""The reports are single files that open offline, and the publishable one is made of released facts alone."""

import dataclasses
import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from teacher_student.monitoring import console
from teacher_student.monitoring.console import Display
from teacher_student.monitoring.plots import PALETTE, REPORT, confusion, histogram, spend, svg
from teacher_student.monitoring.report import CAPTIONS, PrivateFacts, ReleasedFacts, interval, write_private_report, write_report

CERTIFICATE = {
    "epsilon": 0.9987,
    "delta": 1e-5,
    "mechanism": "stability",
    "neighbours": "add_remove",
    "private": True,
    "not_covered": ["hyper-parameters tuned on the private data"],
    "parameters": {"threshold": 30, "query_scale": 58.4},
    "composition": [],
}


UNJUDGED = {"metrics": {}, "majority": None, "confusion": None, "cutoff": None}


def released(**changes: object) -> ReleasedFacts:
    facts = ReleasedFacts(
        name="adult",
        settings={"teachers": 1000, "epsilon": 1.0},
        choices={"privacy.epsilon": 1.0, "learner.name": "MLP"},
        certificate=CERTIFICATE,
        answers="labels",
        file="labels.csv",
        labels=np.array([0, 1, -1, 1, -2]),
        scores=None,
        cutoff=50,
        class_names=["<=50K", ">50K"],
        curve=[0.6, 0.4, 0.3],
        metrics={"accuracy": 0.8391},
        majority=0.76,
        confusion=np.array([[50, 5], [8, 20]]),
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


@pytest.mark.parametrize(("epsilon", "times"), [(0.9987, "2.71 times"), (1000.0, "1.97e+434 times")])
def test_report_says_how_many_times_as_likely(epsilon, times, tmp_path):
    write_report(tmp_path / "report.html", released(certificate=CERTIFICATE | {"epsilon": epsilon}))
    assert times in (tmp_path / "report.html").read_text()


def test_report_of_injected_noise_warns(tmp_path):
    write_report(tmp_path / "report.html", released(certificate=CERTIFICATE | {"private": False}))
    assert "Not private" in (tmp_path / "report.html").read_text()


def test_report_without_evaluation_data_and_with_scores(tmp_path):
    scores = np.array([0.1, np.nan, 0.9])
    facts = released(answers="scores", labels=None, scores=scores, **UNJUDGED)
    write_report(tmp_path / "report.html", facts)
    assert facts.answered == 2
    assert (tmp_path / "report.html").read_text().count("<svg") == 2


def test_report_of_noisy_fractions_names_them_and_their_file(tmp_path):
    shares = np.array([[-0.1, 1.1], [0.4, 0.6], [np.nan, np.nan]])
    facts = released(answers="fractions", file="noisy_fractions.csv", labels=None, scores=shares, **UNJUDGED)
    write_report(tmp_path / "report.html", facts)
    text = (tmp_path / "report.html").read_text()
    assert (facts.asked, facts.answered) == (3, 2)
    assert "fractions released of 3 asked" in text
    assert "Yes, as it is: noisy_fractions.csv" in text


def test_report_without_any_answer_says_that_there_is_no_student(tmp_path):
    write_report(tmp_path / "report.html", released(labels=np.full(5, -2), curve=(), **UNJUDGED))
    text = (tmp_path / "report.html").read_text()
    assert "no student" in text
    assert "the student, this page" not in text


def contrast(one: str, other: str) -> float:
    """Contrast of two colours (WCAG 2.2)."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_text_and_marks_can_be_read_on_a_light_and_on_a_dark_page(tmp_path):
    write_report(tmp_path / "report.html", released())
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for block in re.findall(r":root {(.*?)}", (tmp_path / "report.html").read_text(), re.DOTALL)
    ]
    assert [theme["ink"] for theme in themes] == list(PALETTE["ink"])
    for theme in themes:
        for page in ("paper", "card"):
            assert min(contrast(theme[text], theme[page]) for text in ("ink", "quiet", "accent", "second", "warn")) >= 4.5
            assert contrast(theme["soft"], theme[page]) >= 3
        assert contrast(theme["on-accent"], theme["accent"]) >= 4.5
        assert contrast(theme["ink"], theme["warn-paper"]) >= 4.5
    assert contrast("#9fb3c8", "#ffffff") < 3  # a grey of bars that was too pale


def test_figures_follow_the_colours_of_the_page_and_never_shrink_below_14_pixels():
    text = svg(spend(np.array([0, 1, -1, -2]), 50), 'a "title"')
    assert "var(--accent)" in text
    assert not any(light in text for light, _ in PALETTE.values())
    width = float(re.search(r'width="([\d.]+)pt"', text).group(1)) * 96 / 72  # CSS pixels
    least = float(re.search(r"min-width: (\d+)px", text).group(1))
    assert REPORT["font.size"] * 96 / 72 * least / width >= 14
    assert 'aria-label="a &quot;title&quot;"' in text


def test_the_picture_of_the_documentation_needs_nothing_from_elsewhere():
    picture = (Path(__file__).parents[2] / "docs" / "way_of_the_data.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"https?://[^\s\"]+", picture) == ["http://www.w3.org/2000/svg"]
    assert min(int(size) for size in re.findall(r"font-size[:=]\W*(\d+)", picture)) >= 15


@pytest.mark.parametrize("number", [2, 10, 100])
def test_a_confusion_matrix_names_classes_without_crowding(number):
    figure = confusion(np.eye(number, dtype=np.int64), [f"class {place}" for place in range(number)])
    figure.canvas.draw()
    (axes,) = figure.axes
    labels = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert 2 <= len(labels) <= 20
    assert not any(one.overlaps(other) for one, other in itertools.combinations(labels, 2))


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
        empty=0,
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
    display.table("Run", {"epsilon": 1.0, "accuracy": 0.85})
    printed = capsys.readouterr().out
    assert "teachers" in printed
    assert "10 teachers" in printed
    assert "0.85" in printed
    assert display.seconds["teachers"] >= 0


def test_the_last_note_of_a_stage_stays_and_none_before_it(capsys):
    display = Display("plain")
    with display.stage("teachers", total=10) as advance:
        advance(5, "2 s left")
        advance(10, "")
    assert capsys.readouterr().out.rstrip("\n").endswith(" s")


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
    assert "/3" in capsys.readouterr().out
    with display.stage("data") as advance:
        advance(1, "500 points")
    assert not re.search(r"\d/[\d?]", capsys.readouterr().out)  # nothing to count


def text_of(path: Path, **changes: object) -> str:
    write_report(path / "report.html", released(**changes))
    return (path / "report.html").read_text()


def test_the_headline_is_the_cost_of_all_recorded_releases(tmp_path):
    text = text_of(tmp_path, certificate=CERTIFICATE | {"epsilon": 1.0, "composition": [{"epsilon": 2.0, "delta": 3e-5}]})
    assert "<b>3</b>epsilon in all<small>1 for this release, the rest for 1 earlier one on" in text
    assert "<b>4e-5</b>delta in all" in text
    assert "at most <b>95.3 %</b>" in text  # e^3 / (1 + e^3), not 73.1 of this release alone
    assert "no ledger records others" in text_of(tmp_path, recorded=False)


@pytest.mark.parametrize(("epsilon", "says"), [(1.0, "<b>73.1 %</b>"), (0.1, "<b>52.5 %</b>"), (50.0, "<b>more than 99.9 %</b>")])
def test_epsilon_is_said_as_odds(tmp_path, epsilon, says):
    assert says in text_of(tmp_path, certificate=CERTIFICATE | {"epsilon": epsilon})


def test_alerts_are_shown_and_a_report_without_any_has_no_box(tmp_path):
    assert "<li>few &lt;labels&gt;</li>" in text_of(tmp_path, alerts=["few <labels>"])
    assert "Alerts" not in text_of(tmp_path)


def test_rounds_ask_the_same_points_again(tmp_path):
    text = text_of(tmp_path, labels=np.zeros(40, dtype=np.int64), rounds=4)
    assert "on 10 public points, in 4 rounds" in text


def test_links_lead_to_the_files_beside_the_report(tmp_path):
    assert set(re.findall(r'<a href="([^"]+)"', text_of(tmp_path, about={"data": "adult"}))) == {"certificate.json", "labels.csv"}


def test_every_figure_of_labels_has_a_sentence_under_it(tmp_path):
    images = [np.random.default_rng(0).random((2, 1, 8, 8), dtype=np.float32), np.zeros((0, 1, 8, 8), dtype=np.float32)]
    facts = released(images=images)
    assert set(facts.figures) <= set(CAPTIONS)
    assert len(facts.figures) == 6
    assert "Labels may be wrong" in text_of(tmp_path, images=images)


def test_intervals_of_accuracies():
    assert interval(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)  # Wilson's, from Brown, Cai, DasGupta 2001
    low, high = interval(0.84, 16_281)
    assert (high - low) / 2 == pytest.approx(1.96 * (0.84 * 0.16 / 16_281) ** 0.5, rel=1e-3)


def test_bars_of_a_few_values_do_not_overlap_and_whole_numbers_have_whole_ticks():
    (axes,) = histogram(np.array([0.05, 0.15, 0.75, 0.95]), "score", "queries").axes
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(edges))
    (axes,) = histogram(np.array([1, 2, 3, 3]), "records", "teachers").axes
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_a_log_says_when_a_stage_begins_and_now_and_then_how_far_it_is(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "perf_counter", lambda: now[0])
    display = Display("plain")
    with display.stage("teachers", total=100) as advance:
        assert capsys.readouterr().out == "teachers ...\n"
        for done in range(1, 101):
            now[0] += 1.0
            advance(done)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in lines[:-1]] == ["21", "42", "63", "84"]
    assert lines[-1].split() == ["teachers", "100.0", "s"]


def test_the_grid_has_a_row_for_each_model_and_a_column_for_each_metric(capsys):
    Display("plain").grid("models", {"student": {"accuracy": 0.84, "AUC": 0.9}, "majority": {"accuracy": 0.76}})
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if "accuracy" in line).split("┃")[2].strip() == "accuracy"
    assert any("student" in line and "0.8400" in line and "0.9000" in line for line in lines)
    assert any("majority" in line and "0.7600" in line and "0.9" not in line for line in lines)
