"""Draw accuracy against epsilon from the tables of docs/results.md: the plot of the README.

uv run scripts/draw_accuracy.py     # writes docs/accuracy.svg

The numbers are in the description of the picture too: for readers who do not see it, and for the test that compares them with the
tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, StrMethodFormatter

from teacher_student.monitoring import plots

DOCS = Path(__file__).parents[1] / "docs"
PICTURE = DOCS / "accuracy.svg"
SPAN = 5
"""Least height of a panel in percent, so that small differences look small."""
LINES = ("DP-SGD", "teachers and student", "without privacy")


class Panel(NamedTuple):
    """Part of the picture: its table in results.md, found by the command above it, and the row that is ours."""

    title: str
    command: str
    ours: str


PANELS = (
    Panel("UCI Adult", "scripts/reproduce.py --workers 2", "**scores**"),
    Panel("MNIST, 3,500 private images", "scripts/reproduce.py --table mnist5000", "**local votes**"),
)
Curves = dict[str, dict[float, float]]


def read_table(page: str, command: str) -> dict[str, dict[float, float]]:
    """Return accuracy by epsilon of each row of the first table after a command; one figure holds for every epsilon."""
    lines = iter(page[page.index(command) :].splitlines())
    epsilons = next(_cells(line)[1:] for line in lines if line.startswith("| epsilon"))
    rows: dict[str, dict[float, float]] = {}
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = _cells(line)
        found = [re.match(r"\**(\d+\.\d+)", cell) for cell in cells]
        first = found[0]
        if first and not any(cells[1:]):
            found = [first] * len(epsilons)
        rows[name] = {float(epsilon): float(match[1]) for epsilon, match in zip(epsilons, found, strict=True) if match}
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def curves(page: str, panel: Panel) -> Curves:
    """Return ours, the best DP-SGD at each epsilon, and the model without privacy."""
    rows = read_table(page, panel.command)
    (ours,) = [row for name, row in rows.items() if name.startswith(panel.ours)]
    theirs = [row for name, row in rows.items() if name.startswith("DP-SGD")]
    best = {epsilon: max(row[epsilon] for row in theirs) for epsilon in ours}
    return dict(zip(LINES, (best, ours, rows["non-private model"]), strict=True))


def describe(page: str) -> str:
    """Return what the picture shows in words."""
    panels = []
    for panel in PANELS:
        lines = []
        for name, row in curves(page, panel).items():
            values = sorted(set(row.items())) if len(set(row.values())) > 1 else [(None, next(iter(row.values())))]
            lines.append(f"{name} " + ", ".join(f"{y:.2f}" + (f" at {x:g}" if x else "") for x, y in values))
        panels.append(f"{panel.title}: {'; '.join(lines)}.")
    return "Accuracy in percent by epsilon. " + " ".join(panels)


def draw(page: str) -> Figure:
    """Return a panel for each data set, with lines that are named where they are."""
    styles = {LINES[0]: (plots.SECOND, "s--"), LINES[1]: (plots.ACCENT, "o-"), LINES[2]: (plots.SOFT, ":")}
    with rc_context(plots.REPORT):
        figure = Figure(figsize=(8.6, 3.7), layout="constrained")
        for axes, panel in zip(figure.subplots(1, 2), PANELS, strict=True):
            _draw_panel(axes, panel.title, curves(page, panel), styles)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
    return figure


def _draw_panel(axes: Axes, title: str, found: Curves, styles: dict[str, tuple[str, str]]) -> None:
    for name, row in found.items():
        colour, style = styles[name]
        width = 3.0 if name == LINES[1] else 2.0
        axes.plot(list(row), list(row.values()), style, color=colour, linewidth=width, markersize=6, label=name)
    axes.set(title=title, xlabel="epsilon (less is more private)", ylabel="accuracy (%)", xscale="log")
    top = max(y for row in found.values() for y in row.values())
    axes.set_ylim(min(axes.get_ylim()[0], top - SPAN), None)
    axes.set_xticks(sorted({x for row in found.values() for x in row}))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def picture(page: str) -> str:
    """Return the picture as an SVG of its own: colours follow the reader's theme, and nothing is loaded from elsewhere."""
    element = plots.svg(draw(page), "Accuracy against epsilon")
    light, dark = (";".join(f"--{name}:{pair[theme]}" for name, pair in plots.PALETTE.items()) for theme in (0, 1))
    style = f":root{{{light};--paper:#fbfcfd}}@media(prefers-color-scheme:dark){{:root{{{dark};--paper:#12171d}}}}"
    opening, rest = re.sub(r' style="min-width[^"]*"', "", element).split(">", 1)
    paper = '<rect width="100%" height="100%" rx="10" style="fill:var(--paper)"/>'
    return f"{opening}><desc>{describe(page)}</desc><style>{style}</style>{paper}{rest}"


if __name__ == "__main__":
    PICTURE.write_text(picture((DOCS / "results.md").read_text(encoding="utf-8")), encoding="utf-8")
    print(PICTURE)
