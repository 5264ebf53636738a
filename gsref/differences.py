"""What is a derivative, found without a formula for it?  Differences, extrapolation, complex step, Taylor slope.

Nothing here knows a model: `f(*point)` is a real number, `point` a sequence of real arrays of any shapes (v and W,
say), and a gradient is a list of arrays of these shapes.  `f_error` is the absolute error of one value of f; by
default 4 units in the last place of the values at hand, which is right for an f without inner cancellation.

    central        (f(x + h) - f(x - h)) / 2h                    error O(h^2) + f_error / h
    richardson     the same for h, h/2, h/4, .., extrapolated    with an estimate of its error
    complex_step   Im f(x + ih) / h                              to rounding, if f is analytic
    taylor_slope   f(x + h e) - f(x) - h g.e ~ h^p               p = 2: g is the gradient; p = 1: it is not
"""

from dataclasses import dataclass

import numpy as np

EPS = np.finfo(np.float64).eps


def central(f, point, step=EPS ** (1 / 3)):
    """Central differences with one absolute step for all entries.  ValueError if f is not finite."""
    point = _floats(point)
    return _entrywise(lambda g, x: (g(step) - g(-step)) / (2 * step), f, point)


def richardson(f, point, step=2.0 ** -10, levels=9, f_error=None):
    """(gradient, error): central differences extrapolated to step zero (Richardson, Romberg), and an error estimate.

    Row k of the table has the step h_k = step / 2^k.  With T[k][0] the difference, whose error is a series in h^2,

        T[k][m] = T[k][m-1] + (T[k][m-1] - T[k-1][m-1]) / (4^m - 1)

    removes the term h^2m.  The estimate of an entry is its distance from the two entries it was made from (what the
    last extrapolation still changed) plus its share of rounding, in f and in x + h, over h_k; the entry with the
    smallest estimate is returned.  Coarse differences may agree by accident, on both sides of a feature that they do
    not see.  The table therefore starts where the series does: at the last row at which |T[k][0] - T[k-1][0]|, which
    should fall by 4 from row to row, had not even halved.  If nothing is left, the error is inf.  What this cannot see
    is a feature narrower than `step` whose effect at the narrower rows is below their rounding: hence a small first
    step.
    ValueError if f is not finite.
    """
    if levels < 3:
        raise ValueError(f"levels: got {levels}, expected an integer >= 3")
    point = _floats(point)
    pairs = _entrywise(lambda g, x: _extrapolate(g, x, step, levels, f_error), f, point, width=2)
    return [pair[..., 0] for pair in pairs], [pair[..., 1] for pair in pairs]


def _extrapolate(g, x, step, levels, f_error):
    h = step / 2.0 ** np.arange(levels)
    plus, minus = (np.array([g(sign * k) for k in h]) for sign in (1, -1))
    noise_of_f = 4 * np.spacing(np.maximum(np.abs(plus), np.abs(minus))) if f_error is None else f_error
    T = (plus - minus) / (2 * h)
    # two values over 2h, each off by noise_of_f and, as x + h is rounded, by |f'| times half a unit of x + h
    noise = (noise_of_f + np.abs(T) * EPS * (abs(x) + h)) / h
    change = np.abs(np.diff(T))
    not_halved = change[1:] > change[:-1] / 2 + noise[2:] + noise[1:-1]
    first = 2 + np.flatnonzero(not_halved)[-1] if not_halved.any() else 0
    T, noise = T[first:], noise[first:]
    value, error = T[-1], np.inf
    for m in range(1, len(T)):
        new = T[1:] + (T[1:] - T[:-1]) / (4.0 ** m - 1)
        noise = (4.0 ** m * noise[1:] + noise[:-1]) / (4.0 ** m - 1)
        estimate = np.maximum(np.abs(new - T[1:]), np.abs(new - T[:-1])) + noise
        best = np.argmin(estimate)
        if estimate[best] < error:
            value, error = new[best], estimate[best]
        T = new
    return value, error


def complex_step(f, point, step=2.0 ** -66):
    """Im f(x + i step) / step for every entry: no difference is taken, so nothing cancels and the step can be tiny.

    f must be analytic and accept complex arrays.  TypeError if it returns a real number, as after `abs`, `max` or
    `.real`; an f that conjugates cannot be told from the value, only by comparison with `richardson`.
    Derivatives below 2.3e-308 / step underflow.  ValueError if f is not finite.
    """
    point = _floats(point)

    def derivative(g, x):
        value = g(1j * step)
        if not np.iscomplexobj(value):
            raise TypeError(f"f: got {type(value).__name__} at a complex point, expected a complex number: f drops the "
                            "imaginary part (abs, sign, max, .real?) and is not analytic")
        return value.imag / step
    return _entrywise(derivative, f, point)


@dataclass(frozen=True)
class TaylorSlope:
    """`slope` of log |remainder| against log step, with its `error`; NaN both if all remainders are within rounding.
    `error` is inf if the remainders show no power law.

    `steps`, `remainders` (signed) and `noise` (the rounding error of each remainder) are the whole sweep, so that a
    plateau, a bend from 2 to 1, or a wrong `f_error` can be seen; `used` marks what the slope was fitted to.
    """

    slope: float
    error: float
    steps: np.ndarray
    remainders: np.ndarray
    noise: np.ndarray
    used: np.ndarray


def taylor_slope(f, point, gradient, direction, step=1.0, levels=40, f_error=None, window=6):
    """The order p of f(x + h e) - f(x) - h g.e ~ h^p along `direction` e: 2 if g is the gradient, 1 if g.e is wrong.

    The steps are step / 2^k, k < levels.  The slope is fitted to the `window` smallest steps whose remainder is more
    than 100 times its rounding error, where the remainder is closest to its leading term: a gradient wrong by one per
    cent has slope 2 at large steps and 1 at small ones.  `error` is the largest distance of a pairwise slope of the
    window from the fit, plus their drift along the window (which halves with the step, so that no more than that is
    still to come), plus what rounding contributes (1/100 of a remainder: at most 0.03 for neighbours).  If that comes
    to more than 0.2 the window shows no power law, and `error` is inf.
    ValueError if f is not finite, or if shapes do not match.
    """
    point, gradient, direction = _floats(point), _floats(gradient), _floats(direction)
    for name, arrays in (("gradient", gradient), ("direction", direction)):
        if [a.shape for a in arrays] != [x.shape for x in point]:
            raise ValueError(f"{name}: got shapes {[a.shape for a in arrays]}, expected {[x.shape for x in point]}")
    steps = step / 2.0 ** np.arange(levels)
    terms = np.concatenate([(g * e).ravel() for g, e in zip(gradient, direction)])
    f_0 = _value(f, point)
    f_h = np.array([_value(f, [x + h * e for x, e in zip(point, direction)]) for h in steps])
    remainders = f_h - f_0 - steps * terms.sum()
    noise_of_f = 4 * np.spacing(np.maximum(abs(f_0), np.abs(f_h))) if f_error is None else f_error
    moved = sum(np.sum(np.abs(g) * (np.abs(x) + np.abs(e))) for g, x, e in zip(gradient, point, direction))
    noise = 2 * noise_of_f + EPS * moved + steps * terms.size * EPS * np.abs(terms).sum()   # f, x + h e, and h g.e
    used = np.abs(remainders) > 100 * noise             # `>`: both are 0 where everything underflows
    used[np.flatnonzero(used)[:-window]] = False
    if used.sum() < 3:
        return TaylorSlope(np.nan, np.nan, steps, remainders, noise, used)
    log_h, log_r = np.log(steps[used]), np.log(np.abs(remainders[used]))
    slope = float(np.polyfit(log_h, log_r, 1)[0])
    local = np.diff(log_r) / np.diff(log_h)
    error = float(np.abs(local - slope).max() + abs(local[-1] - local[0])) + 0.03
    error = error if error <= 0.2 else np.inf          # 0.2 is empirical: larger drifts did not halve with the step
    return TaylorSlope(slope, error, steps, remainders, noise, used)


def _floats(point):
    return [np.array(x, dtype=np.float64) for x in point]          # copies: the caller's arrays are never touched


def _value(f, point):
    value = f(*point)
    if np.ndim(value) != 0:
        raise ValueError(f"f: got an array of shape {np.shape(value)}, expected a number")
    if not np.isfinite(value):
        raise ValueError(f"f: got {value}, expected a finite number")
    return value


def _entrywise(rule, f, point, width=None):
    """`rule(g, x)` for every entry x of `point`, where g(h) is f with h added to that entry."""
    gradient = []
    for k, x in enumerate(point):
        out = np.empty(x.shape if width is None else (*x.shape, width))
        for index in np.ndindex(x.shape):
            def g(h):
                moved = x.astype(np.result_type(x, type(h)))
                moved[index] += h
                return _value(f, [*point[:k], moved, *point[k + 1:]])
            out[index] = rule(g, x[index])
        gradient.append(out)
    return gradient
