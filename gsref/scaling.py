"""How does a measured quantity grow?  Local exponents with errors, and the verdict on a claimed exponent.

Knows no model: shared by every run that compares a power law with a measurement.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Exponents:
    """Local exponents between neighbouring points: x (n-1,) geometric midpoints, value (n-1,), error (n-1,)."""

    x: np.ndarray
    value: np.ndarray
    error: np.ndarray


def local_exponents(x, y, y_error=0.0):
    """d log y / d log x between neighbours; x, y (n,) positive, n >= 2, x rising; y_error (n,) or a number, absolute.

    The error of an exponent is that of its two points, taken at their worst (not as if independent: quadrature errors
    along one path have a common sign more often than not).  Raises ValueError if a point is not positive or not finite.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y_error = np.broadcast_to(np.asarray(y_error, dtype=float), y.shape)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise ValueError(f"x, y: got shapes {x.shape} and {y.shape}, expected two equal lengths >= 2")
    if not (np.all(np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)) and np.all(np.diff(x) > 0)):
        raise ValueError("x, y: expected positive finite numbers, x rising")
    step = np.diff(np.log(x))
    relative = y_error / y
    return Exponents(np.sqrt(x[1:] * x[:-1]), np.diff(np.log(y)) / step, (relative[1:] + relative[:-1]) / step)


def exponent_verdict(exponents, claimed):
    """Verdict on a claimed asymptotic exponent, from local exponents towards the limit (the last is the closest to it).

    holds      the last lies within three errors plus the last change of the claim
    undecided  the exponents still move towards the claim, and four more changes of the last size would reach it;
               or there are fewer than two of them
    fails      neither
    """
    value, error = exponents.value, exponents.error
    if len(value) < 2:
        return "undecided"
    gap, change = claimed - value[-1], value[-1] - value[-2]
    if abs(gap) <= 3 * error[-1] + abs(change):
        return "holds"
    if gap * change > 0 and abs(gap) <= 4 * abs(change) + 3 * error[-1]:
        return "undecided"
    return "fails"


def crossing(x, y, level):
    """Where y(x) first falls to `level`, by log-log interpolation between rows; None if it never does.

    x (n,) rising and >= 0, y (n,) positive.  Returns (x at the crossing, d log y / d log x there); the slope is NaN if
    the first row is below the level already.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    below = np.flatnonzero(y <= level)
    if not len(below):
        return None
    i = below[0]
    if i == 0 or x[i - 1] == 0:
        return float(x[i]), float("nan")
    slope = np.log(y[i] / y[i - 1]) / np.log(x[i] / x[i - 1])
    return float(x[i] * (level / y[i]) ** (1 / slope)), float(slope)


def crossings(x, y, level):
    """Where each row of y (m, n) first falls to `level`, as `crossing`, for x > 0; shape (m,), nan where one never does."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    below, rows = y <= level, np.arange(len(y))
    i = below.argmax(axis=1)                   # 0 if the first is below, and if none is
    before = np.maximum(i - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):               # only where i == 0, which is put right below
        slope = np.log(y[rows, i] / y[rows, before]) / np.log(x[i] / x[before])
        inside = x[i] * (level / y[rows, i]) ** (1 / slope)
    return np.where(i > 0, inside, np.where(below[:, 0], x[0], np.nan))


def scaled(value, exponents):
    """One line for a report: the last local exponents with their errors."""
    pairs = [f"{v:.3f} +- {max(e, 0):.1g}" for v, e in zip(exponents.value[-3:], exponents.error[-3:])]
    return f"{value}: " + ", ".join(pairs)
