"""Figures: as inline SVG, so that a report is one file that opens offline, and as pixels for TensorBoard.

Text is 16 CSS pixels at a figure's natural width, which fits a telephone; wider figures scroll there (see the report's style
sheet). Colours of `PALETTE` become the style sheet's variables in SVG, so that figures follow a light or a dark page.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

from teacher_student.labels import ABSTAIN, HALTED

INK, ACCENT, SECOND, SOFT = "#1f2933", "#0b6e99", "#a04a08", "#6f86a0"
PALETTE = {
    "ink": (INK, "#e6ebf0"),
    "accent": (ACCENT, "#62bbe3"),
    "second": (SECOND, "#f0a868"),
    "soft": (SOFT, "#8199b3"),
}
"""Colours of text and of marks by name: on a light page, and on a dark one."""
STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "svg.hashsalt": "teacher-student",
    "svg.fonttype": "path",
}
"""Matplotlib settings of every figure; text has the size that papers use."""
REPORT: Any = STYLE | {"font.size": 12}
"""Settings of figures on a screen."""

WIDTH, HEIGHT = 4.0, 2.9
"""Natural size of a figure in inches: 384 x 278 CSS pixels."""
_MOST_NAMED, _MOST_WRITTEN = 20, 30
"""Above the first number of classes not all are named, above the second their cells hold no numbers."""
_FEW_VALUES = 25
"""Up to so many different values have a bar each."""

_THOUSANDS, _NUMBERS = StrMethodFormatter("{x:,.0f}"), StrMethodFormatter("{x:,g}")
_SHARES = FuncFormatter(lambda share, _: f"{100 * share:g} %")


def _figure(draw: Callable[..., None], *, width: float = WIDTH, height: float = HEIGHT, rows: int = 1) -> Figure:
    with rc_context(REPORT):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(*figure.subplots(rows, squeeze=False, sharex=True)[:, 0])
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # laid out once, for every canvas
    return figure


def _ticks(axis: Axis, most: int, formatter: Formatter = _THOUSANDS) -> None:
    axis.set_major_locator(MaxNLocator(most, integer=formatter is _THOUSANDS))
    axis.set_major_formatter(formatter)


def svg(figure: Figure, title: str) -> str:
    """Return a figure as an SVG element whose colours follow the page; the same figure gives the same text.

    It is never shrunk below 90 % of its natural width, at which its text is 14 pixels high.
    """
    buffer = io.StringIO()
    with rc_context(REPORT):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    for name, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--{name})")
    wide = "wide" if figure.get_figwidth() > WIDTH else "narrow"
    opening = (
        f'<svg class="{wide}" role="img" aria-label="{escape(title)}" style="min-width: {86.4 * figure.get_figwidth():.0f}px"'
    )
    return opening + text[text.index("<svg") + len("<svg") :]


def pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    """Return a figure as (height, width, 3) pixels."""
    figure.set_dpi(150)
    canvas = FigureCanvasAgg(figure)
    with rc_context(REPORT):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def spend(labels: npt.NDArray[np.int64], cutoff: int | None) -> Figure:
    """Answers, and below them paid non-answers, over the queries until the session halted; labels: (num_queries,)."""
    halted = np.flatnonzero(labels == HALTED)
    labels = labels[: halted[0]] if len(halted) else labels
    asked = np.arange(1, len(labels) + 1)

    def draw(upper: Axes, lower: Axes) -> None:
        for axes, counted, colour, name in (
            (upper, labels >= 0, ACCENT, "labels"),
            (lower, labels == ABSTAIN, SECOND, "paid\nnon-answers"),
        ):
            axes.plot(asked, np.cumsum(counted), color=colour)
            axes.set_ylabel(name)
            axes.set_ylim(0, 1.15 * max(1, counted.sum()))
            _ticks(axes.yaxis, 4)
        if cutoff is not None:
            lower.axhline(cutoff, color=SECOND, linestyle=":", linewidth=1.5)
            lower.text(0.02, cutoff, f"cutoff {cutoff:,}", color=SECOND, va="bottom", transform=lower.get_yaxis_transform())
            lower.set_ylim(0, 1.5 * cutoff)
        _ticks(lower.xaxis, 5)
        lower.set_xlabel("queries until the session halted" if len(halted) else "queries asked")

    return _figure(draw, height=3.8, rows=2)


def released_classes(labels: npt.NDArray[np.int64], names: Sequence[str]) -> Figure:
    """How many labels of each class were released; labels: (num_queries,)."""
    counts = np.bincount(labels[labels >= 0], minlength=len(names))

    def draw(axes: Axes) -> None:
        axes.barh(range(len(names)), counts, color=ACCENT, height=0.65)
        _name_classes(axes.set_yticks, names)
        axes.invert_yaxis()
        axes.set_xlabel("labels released")
        _ticks(axes.xaxis, 4)

    return _figure(draw, height=min(8.0, max(HEIGHT, 0.3 * len(names) + 0.8)))


def bars(shares: Mapping[str, float], ylabel: str, interval: tuple[float, float]) -> Figure:
    """Named shares as bars; the interval is that of the first one."""

    def draw(axes: Axes) -> None:
        axes.bar(list(shares), list(shares.values()), color=[ACCENT, *[SOFT] * (len(shares) - 1)], width=0.6)
        axes.set_ylabel(ylabel)
        axes.set_ylim(0, 1.1)
        axes.set_yticks(np.linspace(0, 1, 5))
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        first = next(iter(shares.values()))
        axes.errorbar(0, first, yerr=[[first - interval[0]], [interval[1] - first]], color=INK, capsize=6)
        for place, value in enumerate(shares.values()):
            axes.text(place, max(value, interval[1] * (place == 0)) + 0.01, f"{100 * value:.1f} %", ha="center", va="bottom")

    return _figure(draw)


def curve(values: Sequence[float], xlabel: str, ylabel: str) -> Figure:
    """One line over its index."""

    def draw(axes: Axes) -> None:
        axes.plot(np.arange(1, len(values) + 1), values, color=ACCENT)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    return _figure(draw)


def confusion(matrix: npt.NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Rows are true classes, columns predicted ones; each cell shows the share of its row in percent."""
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    number = len(names)

    def draw(axes: Axes) -> None:
        axes.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set(aspect="equal", xlabel="student says", ylabel="true class")
        places = np.arange(number) + 0.5
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 5 else {}
        _name_classes(axes.set_xticks, names, places, **turned)
        _name_classes(axes.set_yticks, names, places)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        for row, column in zip(*np.nonzero(shares > 0.005), strict=True) if number <= _MOST_WRITTEN else ():
            share = float(shares[row, column])
            text = f"{100 * share:.0f}" + " %" * (number <= 4)
            colour = _readable_on(np.asarray(colormaps["Blues"](share)).tolist())
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour)

    side = 0.42 * min(number, _MOST_WRITTEN) + 1.3
    return _figure(draw, width=max(WIDTH, side), height=max(HEIGHT, side))


def _name_classes(
    ticks: Callable[..., object], names: Sequence[str], places: npt.NDArray[np.floating] | None = None, **style: object
) -> None:
    """Name every class on an axis, or every n-th one where there are too many."""
    step = math.ceil(len(names) / _MOST_NAMED)
    ticks((np.arange(len(names)) if places is None else places)[::step], names[::step], **style)


def _readable_on(colour: Sequence[float]) -> str:
    """Black or white, whichever has more contrast on `colour` (WCAG 2.2, relative luminance)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    luminance = float(np.dot([0.2126, 0.7152, 0.0722], linear))
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def histogram(values: npt.NDArray[np.number], xlabel: str, ylabel: str, *, shares: bool = False) -> Figure:
    """Histogram of values; `shares` shows them in percent, few different ones have a bar each."""

    def draw(axes: Axes) -> None:
        found, counts = np.unique(values, return_counts=True)
        if 1 < len(found) <= _FEW_VALUES:
            axes.bar(found, counts, width=0.8 * np.diff(found).min(), color=SOFT)
        else:
            axes.hist(values, bins=_edges(values), color=SOFT)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        whole = _THOUSANDS if np.issubdtype(values.dtype, np.integer) else _NUMBERS
        _ticks(axes.xaxis, 5, _SHARES if shares else whole)
        _ticks(axes.yaxis, 5)

    return _figure(draw)


def gallery(rows: Sequence[npt.NDArray[np.float32]], names: Sequence[str]) -> Figure:
    """Images of each class in a row; rows: for each class (n, 1 or 3, height, width) images of any range."""
    columns = max(map(len, rows))

    def draw(*lines: Axes) -> None:
        for axes, images, name in zip(lines, rows, names, strict=True):
            for place, pixels_of in enumerate(images):
                low, high = float(pixels_of.min()), float(pixels_of.max())
                shown = np.moveaxis((pixels_of - low) / max(high - low, 1e-9), 0, -1).squeeze()
                axes.imshow(shown, cmap="gray", extent=(1.1 * place, 1.1 * place + 1, 0, 1))
            axes.set(xlim=(0, 1.1 * columns), ylim=(0, 1), xticks=[], yticks=[])
            axes.set_ylabel(name, rotation=0, ha="right", va="center")
            axes.spines[:].set_visible(False)

    return _figure(draw, height=0.2 + 0.45 * len(rows), rows=len(rows))


def _edges(values: npt.NDArray[np.number], most: int = 50) -> list[float]:
    """Edges of at most `most` bins; all bins of integers hold equally many integers, so that none looks empty by accident.

    Shares of a few votes have few values: three of them or more in a bin hide the steps.
    """
    if not len(values) or not np.issubdtype(values.dtype, np.integer):
        number = min(most, len(np.unique(values)) // 3 + 1)
        return [float(edge) for edge in np.histogram_bin_edges(values, bins=number)]
    low, high = int(values.min()), int(values.max())
    width = -(-(high - low + 1) // most)
    return [edge - 0.5 for edge in range(low, high + width + 1, width)]
