"""Small figures: as inline SVG, so that a report is one file that opens offline, and as pixels for TensorBoard."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from teacher_student.labels import ABSTAIN, HALTED

INK, ACCENT, SECOND, SOFT = "#1f2933", "#0b6e99", "#d9822b", "#9fb3c8"
STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "teacher-student",
    "svg.fonttype": "path",
}
"""Matplotlib settings of every figure of ours, in reports and in notebooks."""


def _figure(draw: Callable[[Axes], None], *, width: float = 5.2, height: float = 2.8) -> Figure:
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.subplots())
    return figure


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element; the same figure gives the same text."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    """Return a figure as (height, width, 3) pixels."""
    canvas = FigureCanvasAgg(figure)
    with rc_context(STYLE):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def spend(labels: npt.NDArray[np.int64], cutoff: int | None) -> Figure:
    """Paid non-answers and answers over the queries until the session halted, from released labels: (num_queries,)."""
    halted = np.flatnonzero(labels == HALTED)
    labels = labels[: halted[0]] if len(halted) else labels
    asked = np.arange(1, len(labels) + 1)

    def draw(axes: Axes) -> None:
        axes.plot(asked, np.cumsum(labels >= 0), color=ACCENT)
        axes.set_xlabel("queries asked" + (" until the session halted" if len(halted) else ""))
        axes.set_ylabel("answers", color=ACCENT)
        axes.set_ylim(bottom=0)
        right = axes.twinx()
        right.plot(asked, np.cumsum(labels == ABSTAIN), color=SECOND)
        right.set_ylabel("paid non-answers", color=SECOND)
        right.yaxis.set_major_locator(MaxNLocator(integer=True))
        if cutoff is not None:
            right.axhline(cutoff, color=SECOND, linestyle=":", linewidth=1)
            right.text(0.01, cutoff, "cutoff", color=SECOND, va="bottom", fontsize=8, transform=right.get_yaxis_transform())
        right.set_ylim(0, 1.12 * max(cutoff or 0, right.get_ylim()[1]))

    return _figure(draw)


def bars(shares: Mapping[str, float], ylabel: str) -> Figure:
    """Named shares as bars."""

    def draw(axes: Axes) -> None:
        axes.bar(list(shares), list(shares.values()), color=[ACCENT, *[SOFT] * (len(shares) - 1)], width=0.6)
        axes.set_ylabel(ylabel)
        for place, value in enumerate(shares.values()):
            axes.text(place, value, f"{value:.1%}", ha="center", va="bottom", fontsize=8, color=INK)
        axes.margins(y=0.15)

    return _figure(draw)


def curve(values: Sequence[float], xlabel: str, ylabel: str) -> Figure:
    """One line over its index."""

    def draw(axes: Axes) -> None:
        axes.plot(np.arange(1, len(values) + 1), values, color=ACCENT)
        axes.set(xlabel=xlabel, ylabel=ylabel)

    return _figure(draw)


def confusion(matrix: npt.NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Rows are true classes, columns predicted ones; each cell shows the share of its row."""
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)

    def draw(axes: Axes) -> None:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=45 if len(names) > 4 else 0)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="student", ylabel="true class")
        for (row, column), share in np.ndenumerate(shares):
            axes.text(column, row, f"{share:.0%}", ha="center", va="center", color="white" if share > 0.5 else INK, fontsize=8)

    return _figure(draw, height=max(2.8, 0.4 * len(names) + 1.2))


def histogram(values: npt.NDArray[np.number], xlabel: str, *, lines: Mapping[str, float] | None = None) -> Figure:
    """Histogram of values with named vertical lines."""

    def draw(axes: Axes) -> None:
        axes.hist(values, bins=_edges(values), color=SOFT)
        axes.set(xlabel=xlabel, ylabel="count")
        for name, place in (lines or {}).items():
            axes.axvline(place, color=SECOND, linestyle="--", label=name)
        if lines:
            axes.legend(frameon=False)

    return _figure(draw)


def _edges(values: npt.NDArray[np.number], most: int = 50) -> list[float]:
    """Edges of at most `most` bins; all bins of integers hold equally many integers, so that none looks empty by accident."""
    if not len(values) or not np.issubdtype(values.dtype, np.integer):
        return [float(edge) for edge in np.histogram_bin_edges(values, bins=most)]
    low, high = int(values.min()), int(values.max())
    width = -(-(high - low + 1) // most)
    return [edge - 0.5 for edge in range(low, high + width + 1, width)]


def comparison(rows: Mapping[str, Mapping[float, float]], xlabel: str, ylabel: str, *, chosen: str) -> Figure:
    """One line for each mechanism, the chosen one's thicker: share of unstable queries -> expected answers."""

    def draw(axes: Axes) -> None:
        for (name, points), marker in zip(rows.items(), itertools.cycle("osD^vPX*"), strict=False):
            mine = name == chosen
            axes.plot(
                list(points),
                list(points.values()),
                marker=marker,
                markersize=4,
                linewidth=2.5 if mine else 1,
                color=ACCENT if mine else None,
                label=f"{name} (this run)" if mine else name,
            )
        axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))

    return _figure(draw, width=7.8)
