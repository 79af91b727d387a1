"""GenHist: the histograms of soft labels, plain and shifted by half a bin.

Bassily, Thakkar, Thakurta 2018 (arXiv:1803.05101v2), section 5: gamma-partitions, gamma-histograms, procedure GenHist.

The procedure, in our words:

    require  scores in [0, 1], a bin width gamma with 1/gamma an integer B, plain or shifted
    1  plain:   B bins [v gamma, (v + 1) gamma), the last one closed; count the scores in each
    2  shifted: B - 1 bins of the same width, moved right by gamma / 2; the outer half-bins are dropped

| paper | here |
|---|---|
| S | scores of one query, one per teacher |
| gamma, 1/gamma | 1 / num_bins, num_bins |
| hist, shifted hist | columns 1 to B and the last B - 1 columns of the counts; column 0 says how many bins (public) |

Deviations from the paper:
- Trained models give odd scores: v = 1.0 is in the last bin, NaN and infinities count nowhere (that teacher abstains), and values
  outside [0, 1] are clipped. Nothing here raises on a *value*: values are private, and a failure that depends on them would be an
  answer that nobody paid for.
- B >= 3: with two bins the shifted histogram would have a single bin and no runner-up.

Sensitivity: one teacher's changed score moves one vote in the plain and one in the shifted histogram. floor(v B) and
floor(v B - 1/2) are computed in doubles, but are functions of v alone, so each vote still counts at most once in each.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from teacher_student.arguments import ArgumentError, Floats, Integers, positive_number

SMALLEST_NUMBER_OF_BINS = 3
_BLOCK_VALUES = 1 << 20
"""Scores binned at a time."""


def bins_of_width(width: object) -> int:
    """Return B = 1 / width; the width must be 1 over a whole number of at least 3.

    >>> bins_of_width(0.1)
    10
    """
    inverse = 1 / positive_number("bin_width", width)
    bins = round(inverse)
    if bins < SMALLEST_NUMBER_OF_BINS or not math.isclose(inverse, bins, rel_tol=1e-9):
        raise ArgumentError(f"bin_width must be 1 over an integer of at least 3 (1/3, 1/4, ...), got {width!r}")
    return bins


def check_bins(bins: object, num_queries: int) -> Integers:
    """Return the number of bins of every query, shape (num_queries,): one whole number >= 3 for all, or one per query."""
    given = np.asarray(bins)
    if given.dtype == bool or not np.issubdtype(given.dtype, np.integer) or given.ndim > 1:
        raise ArgumentError(f"bins must be an integer of at least 3, or one per query, got {bins!r}")
    if given.size == 0 or given.min() < SMALLEST_NUMBER_OF_BINS:
        raise ArgumentError(f"bins must be at least 3, got {int(given.min()) if given.size else bins!r}")
    if given.ndim == 1 and len(given) != num_queries:
        raise ArgumentError(f"bins must be one number, or one for each of the {num_queries} queries, got {len(given)}")
    return np.broadcast_to(given.astype(np.int64), (num_queries,))


def plain_bin(scores: Floats, bins: Integers) -> Integers:
    """Return each score's bin, min(floor(v B), B - 1), or -1 where it counts nowhere: line 1, literally.

    >>> plain_bin(np.array([0.0, 0.95, 1.0, 7.0, np.nan]), np.array(10))
    array([ 0,  9,  9,  9, -1])
    """
    finite = np.isfinite(scores)
    clipped = np.clip(np.where(finite, scores, 0.0), 0.0, 1.0)
    return np.where(finite, np.minimum(np.floor(clipped * bins), bins - 1), -1).astype(np.int64)


def shifted_bin(scores: Floats, bins: Integers) -> Integers:
    """Return each score's shifted bin, floor(v B - 1/2) if in [0, B - 2], or -1 where it counts nowhere: line 2, literally.

    >>> shifted_bin(np.array([0.0, 0.05, 0.95, 0.2, np.nan]), np.array(10))
    array([-1,  0, -1,  1, -1])
    """
    finite = np.isfinite(scores)
    found = np.floor(np.clip(np.where(finite, scores, 0.0), 0.0, 1.0) * bins - 0.5)
    return np.where(finite & (found >= 0) & (found <= bins - 2), found, -1).astype(np.int64)


def histograms(scores: npt.NDArray[np.floating], bins: Integers) -> Integers:
    """Return the plain and the shifted histogram of every query, side by side after its number of bins.

    Args:
        scores: one per teacher, shape (num_queries, num_teachers), of any value.
        bins: number of bins of each query, shape (num_queries,), all at least 3 (see `check_bins`).

    Returns:
        counts, int64, shape (num_queries, 2 B), B = max(bins): the query's own number of bins, B columns plain, B - 1 shifted.
        Columns beyond a query's own bins stay 0, which changes neither its winner nor its distance.

    >>> histograms(np.array([[0.1, 0.3, 0.4]]), np.array([4]))
    array([[4, 1, 2, 0, 0, 1, 1, 0]])
    """
    widest = int(bins.max())
    counts = np.zeros((len(scores), 2 * widest), dtype=np.int64)
    counts[:, 0] = bins
    step = max(1, _BLOCK_VALUES // max(1, scores.shape[1]))
    for start in range(0, len(scores), step):
        rows = slice(start, start + step)
        halves = _count_half_bins(scores[rows].astype(np.float64), bins[rows, np.newaxis], widest)
        counts[rows, 1 : widest + 1] = halves[:, 0::2] + halves[:, 1::2]
        counts[rows, widest + 1 :] = halves[:, 1:-1:2] + halves[:, 2::2]
    narrow = np.flatnonzero(bins < widest)
    counts[narrow, widest + bins[narrow]] = 0  # drop the last half-bin of a query with fewer bins, as for the others
    return counts


def _count_half_bins(scores: Floats, bins: Integers, widest: int) -> Integers:
    """Count scores in half-bins, shape (rows, 2 * widest): bin v is 2v and 2v + 1, shifted bin v is 2v + 1 and 2v + 2.

    Doubling is exact in floating point, and so is x - 1/2 for x >= 1/2, so sums of half-bins are what `plain_bin` and
    `shifted_bin` count. Overwrites `scores`.
    """
    nowhere = ~np.isfinite(scores)
    np.clip(scores, 0.0, 1.0, out=scores)
    scores *= 2 * bins
    np.minimum(scores, 2 * bins - 1, out=scores)
    scores[nowhere] = 2 * widest  # an extra column, which is dropped
    cells = scores.astype(np.int64)
    cells += np.arange(len(cells))[:, np.newaxis] * (2 * widest + 1)
    found = np.bincount(cells.ravel(), minlength=len(cells) * (2 * widest + 1))
    return found.reshape(len(cells), -1)[:, : 2 * widest]


def split(counts: npt.NDArray[np.integer]) -> tuple[Integers, Integers, Integers]:
    """Return the number of bins (m,), the plain (m, B) and the shifted (m, B - 1) histograms that `counts` holds side by side."""
    widest = counts.shape[1] // 2
    if counts.shape[1] % 2 or widest < SMALLEST_NUMBER_OF_BINS:
        raise ArgumentError(f"counts must have 2 B columns for B >= 3 bins, got {counts.shape[1]}")
    table: Integers = counts.astype(np.int64, copy=False)
    bins = table[:, 0]
    if bins.min() < SMALLEST_NUMBER_OF_BINS or bins.max() > widest:
        raise ArgumentError(f"counts must begin with a number of bins from 3 to {widest}, got {bins.min()} to {bins.max()}")
    return bins, table[:, 1 : widest + 1], table[:, widest + 1 :]
