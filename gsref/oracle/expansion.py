"""Is a claimed leading term right, and to which order?  Measures how fast the remainder falls along a limit."""

import math
from dataclasses import dataclass

import numpy as np

from gsref.arguments import real, real_array

NEEDED = 0.5         # an order known no better than this is undecided: neighbouring integer orders would not be told apart


@dataclass(frozen=True)
class Expansion:
    """What `check_expansion` found.

    `order` and `order_error`: the measured order of the remainder (None if it cannot be measured); `rows`: (x, exact,
    claim, remainder, error of the remainder, local order to the next row) along the path; `verdict`: "holds", "fails"
    or "undecided"; `reason` says why in words.
    """

    verdict: str
    claimed_order: float
    order: float
    order_error: float
    rows: tuple
    reason: str

    def __str__(self):
        measured = "-" if self.order is None else f"{self.order:.3f} +- {self.order_error:.2g}"
        lines = [f"{self.verdict}: claimed order {self.claimed_order:g}, measured {measured}: {self.reason}",
                 "           x          exact          claim      remainder          error  local order"]
        for x, exact, claim, rest, error, local in self.rows:
            lines.append(f"{x:12.5g} {exact:14.7g} {claim:14.7g} {rest:14.4g} {error:14.2g} "
                         f"{'' if local is None else f'{local:12.3f}'}".rstrip())
        return "\n".join(lines)


def check_expansion(claim, exact, path, order):
    """Does exact(x) - claim(x) = O(h^order) along `path`, with h = x if the path falls to 0 and h = 1/x if it rises?

    `claim(x)`: a number or an array; `exact(x)`: the same, or a pair (value, absolute error).  `path`: at least four
    positive numbers, strictly falling (a limit x -> 0) or rising (x -> infinity).  For arrays the remainder is the
    largest entry, and the printed values are those of the first.  The order is the local slope
    log(R_k / R_k+1) / log(h_k / h_k+1) at the last two remainders that are at least twice their error; its error
    is what the errors of the exact values leave, plus its distance from the slope before  [oracle.10].

    "holds": the measured order, its error allowed for, is not below the claimed one; "fails": it is; "undecided": fewer
    than three remainders stand above their error, or the order's error exceeds 1/2 and the claimed order lies within it.
    Raises TypeError or ValueError, naming the argument.
    """
    for name, function in (("claim", claim), ("exact", exact)):
        if not callable(function):
            raise TypeError(f"{name}: got {type(function).__name__}, expected something that can be called")
    order = real("order", order)
    x = real_array("path", path, ("points",))
    steps = np.diff(x)
    if len(x) < 4 or not (x > 0).all() or not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError(f"path: got {x.tolist()}, expected at least 4 positive numbers that strictly fall or strictly rise")
    h = x if steps[0] < 0 else 1 / x
    values = [_values(claim, exact, point) for point in x.tolist()]
    R, error = (np.array([value[k] for value in values]) for k in (2, 3))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.log(R[:-1] / R[1:]) / np.log(h[:-1] / h[1:])
        spread = (error[:-1] / R[:-1] + error[1:] / R[1:]) / np.abs(np.log(h[:-1] / h[1:]))
    usable = (R > 2 * error) & (R > 0)
    rows = tuple((float(point), value[0], value[1], float(value[2]), float(value[3]),
                  float(slope[k]) if k < len(slope) and usable[k] and usable[k + 1] else None)
                 for k, (point, value) in enumerate(zip(x, values)))
    pairs = [k for k in range(len(slope)) if usable[k] and usable[k + 1]]
    if len(pairs) < 2:
        why = "the remainder is below the error of the exact values" if not usable[-2:].any() else "too few usable remainders"
        return Expansion("undecided", order, None, None, rows, why)
    last, before = pairs[-1], pairs[-2]
    measured = float(slope[last])
    uncertain = float(spread[last] + abs(slope[last] - slope[before]))
    if uncertain > NEEDED and abs(measured - order) <= uncertain:
        return Expansion("undecided", order, measured, uncertain, rows, "the local orders have not settled")
    if measured + uncertain < order:
        return Expansion("fails", order, measured, uncertain, rows, "the remainder falls more slowly than claimed")
    more = measured - uncertain > order
    return Expansion("holds", order, measured, uncertain, rows,
                     "the remainder falls faster than claimed" if more else "the remainder falls as claimed")


def _values(claim, exact, x):
    """(first exact value, first claimed value, size of the remainder, its error) at x."""
    got = exact(x)
    value, error = got if isinstance(got, tuple) and len(got) == 2 else (got, 0.0)
    value, error, claimed = (np.atleast_1d(np.asarray(t, dtype=np.float64)) for t in (value, error, claim(x)))
    if value.shape != claimed.shape:
        raise ValueError(f"claim: got shape {claimed.shape} at {x:g}, expected {value.shape} as exact has it")
    if not (np.isfinite(value).all() and np.isfinite(claimed).all() and (error >= 0).all() and np.isfinite(error).all()):
        raise ValueError(f"exact, claim: got {value.tolist()} (error {error.tolist()}) and {claimed.tolist()} at {x:g}, "
                         "expected finite numbers and an error >= 0")
    rest = np.abs(value - claimed)
    rounding = 4 * 2.0**-53 * (np.abs(value) + np.abs(claimed))
    return float(value.flat[0]), float(claimed.flat[0]), float(rest.max()), float(np.max(error + rounding))
