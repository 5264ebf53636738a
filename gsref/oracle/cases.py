"""On which inputs is a candidate judged?  A fixed, seeded, versioned set of cases for the transformer.

Shapes: v (d+D,), W (d+D, d+D), X (n, D, d), y (n,), P (D, D).  Numbers come from the raw output of PCG64, which
NumPy keeps the same for ever, as multiples of 2^-23: the set is the same on every platform and in every version.
"""

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from gsref.model import forward
from gsref.problem import positions

VERSION = 1          # raised whenever an input of any case changes


@dataclass(frozen=True, eq=False)
class Case:
    """One input.  `flags` say what it is for; `inputs` maps argument names, in call order, to float64 arrays.

    `sizes` are the numbers that a wrong constant factor may be made of (n, D, d, kappa); `thorough` is whether the case
    belongs to the larger set only.
    """

    id: str
    flags: tuple
    inputs: dict
    sizes: dict
    thorough: bool = False

    def on_grid(self, p):
        """The inputs as float64 arrays on the grid of the precision p."""
        return {name: p.round_input(array) for name, array in self.inputs.items()}


class Draw:
    """Numbers in [-1, 1) on a grid of 2^-23, from a seed and a name."""

    def __init__(self, seed, name):
        self.bits = np.random.PCG64(np.random.SeedSequence([VERSION, seed, crc32(name.encode())]))

    def __call__(self, *shape):
        raw = self.bits.random_raw(int(np.prod(shape, dtype=int)))
        return ((raw >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0).reshape(shape)


def inputs(draw, n, D, d, w=0.1, value=1.0, sigma=1.75):
    """Generic inputs: entries of W in [-w, w), of v in [-value, value), of X in [-sigma, sigma), both labels present."""
    m = d + D
    v, W, X = value * draw(m), w * draw(m, m), sigma * draw(n, D, d)
    y = np.where((np.arange(n) + (draw(1)[0] > 0)) % 2 == 0, 1.0, -1.0)
    return {"v": v, "W": W, "X": X, "y": y, "P": positions(D)}


def with_margins(arrays, margins):
    """The same inputs with the smallest v that gives these margins y f (n <= d + D, so that there is one)."""
    v, W, X, y, P = arrays.values()
    T = forward(v, W, X, P)[1].sum(axis=2)
    tau = np.concatenate([np.einsum("ni,nid->nd", T, X), T @ P], axis=1)          # f = tau v
    v = np.linalg.lstsq(tau, y * np.asarray(margins, dtype=float), rcond=None)[0]
    return {**arrays, "v": np.ldexp(np.rint(np.ldexp(v, 12)), -12)}               # the same bits whatever LAPACK did


def with_gap(arrays, draw, gap):
    """The same inputs with a score gap: for query j the key j + 1 (cyclic) leads by about `gap`, through W22."""
    P = arrays["P"]
    D = len(P)
    M = draw(D, D)
    M[(np.arange(D) + 1) % D, np.arange(D)] += gap
    W = arrays["W"].copy()
    W[-D:, -D:] = np.ldexp(np.rint(np.ldexp(P.T @ M @ P / ((D + 1) / 2)**2, 16)), -16)
    return {**arrays, "W": W}


def only(arrays, *blocks):
    """The same inputs with every block of v or W that is not named set to 0 (v is touched only if a v block is named)."""
    D = len(arrays["P"])
    d = len(arrays["v"]) - D
    cut = {"1": slice(None, d), "2": slice(d, None)}
    out = dict(arrays)
    for name in ("v", "W"):
        kept = [block[1:] for block in blocks if block[0] == name]
        if kept:
            out[name] = np.zeros_like(arrays[name])
            for block in kept:
                where = tuple(cut[side] for side in block)
                out[name][where] = arrays[name][where]
    return out


def transformer_cases(seed=0, thorough=False):
    """The cases, a tuple in a fixed order: small ones by default, with larger and random ones for `thorough`."""
    cases = []

    def add(id, flags, make, larger=False):
        arrays = make(Draw(seed, id))
        n, D, d = arrays["X"].shape
        sizes = {"n": n, "D": D, "d": d, "d + D": d + D, "kappa": (D + 1) / 2}
        for array in arrays.values():
            array.flags.writeable = False
        cases.append(Case(id, flags, arrays, sizes, larger))

    def margins(values, n=4, D=3, d=5, w=0.05):
        return lambda draw: with_margins(inputs(draw, n, D, d, w), np.resize(values, n))

    def gap(size, n=3, D=5, d=4):
        return lambda draw: with_gap(inputs(draw, n, D, d, 0.02), draw, size)

    add("generic-3-5-4", ("generic",), lambda draw: inputs(draw, 3, 5, 4))
    add("generic-4-3-5", ("generic",), lambda draw: inputs(draw, 4, 3, 5, 0.2))
    add("generic-5-6-2", ("generic",), lambda draw: inputs(draw, 5, 6, 2, 0.15, 0.5))
    add("small-scores", ("generic", "small scores"), lambda draw: inputs(draw, 4, 3, 5, 0.02, 0.5))
    add("small-scores-one-sided", ("generic", "small scores"),
        lambda draw: {**inputs(draw, 4, 3, 5, 0.02, 0.25), "X": 1.0 + 0.5 * draw(4, 3, 5)})
    add("large-W", ("generic", "score gaps of a few"), lambda draw: inputs(draw, 3, 5, 4, 0.5))
    add("zero-v", ("v = 0", "margin 0"), lambda draw: inputs(draw, 3, 5, 4, value=0.0))
    add("tiny-v", ("v near 0",), lambda draw: inputs(draw, 3, 5, 4, 0.05, 2.0**-20))
    add("large-v", ("v large",), lambda draw: inputs(draw, 4, 3, 5, 0.03, 16.0))
    add("margin-0", ("margin 0",), margins([0.0], n=3, D=5, d=4))
    for size in (1, 12, 37, 100, 800):
        for sign, side in ((1, "right"), (-1, "wrong")):
            add(f"margin-{size}-{side}", (f"margin {sign * size:+d}",) + (("large margin",) if size > 20 else ()),
                margins([sign * size]))
    add("margins-mixed", ("margins +-1 to +-800 in one batch", "large margin"),
        margins([1, -12, 37, -100, 800, -800], n=6, D=3, d=5))
    add("margins-right", ("margins +1, +12, +37, +800 in one batch", "large margin"), margins([1, 12, 37, 800]))
    add("margins-one-token", ("margins +6 and +7 with next to no rounding",), margins([6, 7], n=2, D=1, d=2))
    for size in (1, 8, 37, 100, 800, 5000):
        add(f"gap-{size}", (f"score gap {size}",) + (("large scores",) if size > 80 else ()), gap(size))
    add("gap-of-one-sample", ("scores (0, 1) in one sample, (800, 801) in another", "large scores"), _offset)
    add("equal-tokens", ("equal tokens: dW = 0",), _equal_tokens)
    add("equal-features", ("equal features, different positions",),
        lambda draw: (lambda a: {**a, "X": np.repeat(a["X"][:, :1], 5, axis=1)})(inputs(draw, 3, 5, 4)))
    add("one-token", ("D = 1: dW = 0",), lambda draw: inputs(draw, 3, 1, 4))
    add("two-tokens", ("D = 2",), lambda draw: inputs(draw, 4, 2, 3, 0.2))
    add("one-sample", ("n = 1",), lambda draw: inputs(draw, 1, 5, 4))
    add("one-feature", ("d = 1",), lambda draw: inputs(draw, 3, 5, 1, 0.2))
    add("all-one", ("n = D = d = 1",), lambda draw: inputs(draw, 1, 1, 1))
    for block in ("W11", "W12", "W21", "W22", "v1", "v2"):
        add(f"only-{block}", (f"{block} alone nonzero",),
            lambda draw, block=block: only(inputs(draw, 3, 5, 4, 0.2), block))
    add("sigma-tiny", ("sigma tiny",), lambda draw: inputs(draw, 3, 5, 4, 0.1, sigma=2.0**-10))
    add("sigma-large", ("sigma large",), _large_features)
    add("duplicated-batch", ("every sample twice",), lambda draw: _twice(inputs(draw, 2, 5, 3)))
    add("labels-plus", ("all labels +1",), lambda draw: {**inputs(draw, 3, 5, 4), "y": np.ones(3)})
    add("labels-minus", ("all labels -1",), lambda draw: {**inputs(draw, 3, 5, 4), "y": -np.ones(3)})
    add("scale-16", ("gradient of scale 16",), lambda draw: inputs(draw, 4, 3, 5, 2.0**-9, 1.0, sigma=16.0))
    add("scale-1e-6", ("gradient of scale 1e-6",), lambda draw: inputs(draw, 4, 3, 5, 0.02, 2.0**-20))
    if thorough:
        for k, (n, D, d, w) in enumerate([(7, 4, 3, 0.1), (3, 9, 2, 0.2), (6, 2, 9, 0.1), (2, 7, 5, 0.3), (12, 5, 3, 0.1),
                                          (32, 6, 5, 0.1), (5, 16, 3, 0.05), (4, 6, 24, 0.05), (24, 12, 8, 0.05)]):
            add(f"random-{n}-{D}-{d}", ("generic", "larger" if n * D * d > 100 else "small"),
                lambda draw, n=n, D=D, d=d, w=w: inputs(draw, n, D, d, w), larger=True)
        for size in (0.1, 3.0, 18.0, 50.0, 200.0):
            add(f"margins-{size:g}", (f"margins +-{size:g}",), margins([size, -size], n=4, D=5, d=3), larger=True)
        for size in (0.1, 3, 20, 60, 300, 700, 20000):
            add(f"gap-{size:g}-wide", (f"score gap {size:g}",) + (("large scores",) if size > 80 else ()),
                gap(size, n=2, D=7, d=3), larger=True)
        for n, D, d in ((1, 2, 1), (1, 1, 3), (2, 2, 2), (4, 4, 4)):
            add(f"equal-sizes-{n}-{D}-{d}", ("sizes that hide faults",), lambda draw, n=n, D=D, d=d: inputs(draw, n, D, d, 0.2),
                larger=True)
    return tuple(cases)


def rejected_cases(seed=0):
    """Inputs that an implementation must refuse; the reason is the first flag."""
    arrays = inputs(Draw(seed, "rejected"), 3, 5, 4)
    n, D, d = arrays["X"].shape
    X_nan, W_inf = arrays["X"].copy(), arrays["W"].copy()
    X_nan[1, 2, 3], W_inf[0, -1] = np.nan, np.inf
    wrong = {
        "reject-labels-01": ("labels 0 and 1", {"y": (arrays["y"] + 1) / 2}),
        "reject-label-column": ("labels of shape (n, 1)", {"y": arrays["y"][:, None]}),
        "reject-empty-batch": ("an empty batch", {"X": arrays["X"][:0], "y": arrays["y"][:0]}),
        "reject-nan": ("a NaN in X", {"X": X_nan}),
        "reject-inf": ("an infinite entry of W", {"W": W_inf}),
        "reject-shape": ("v with one entry too few", {"v": arrays["v"][:-1]}),
    }
    return tuple(Case(id, (why,), {**arrays, **change}, {"n": n, "D": D, "d": d}) for id, (why, change) in wrong.items())


def _offset(draw):
    """Scores of order 1 in sample 0, all of them larger by 784 in sample 1: the first feature is constant, 0 or 14."""
    arrays = inputs(draw, 3, 5, 4, 0.02)
    arrays["X"][:, :, 0] = np.array([0.0, 14.0, 0.0])[:, None]
    arrays["W"][0, :] = arrays["W"][:, 0] = 0.0
    arrays["W"][0, 0] = 4.0
    return arrays


def _equal_tokens(draw):
    """All tokens of a sample equal, features and positions alike."""
    arrays = inputs(draw, 3, 5, 4)
    return {**arrays, "X": np.repeat(arrays["X"][:, :1], 5, axis=1), "P": np.repeat(arrays["P"][:1], 5, axis=0)}


def _large_features(draw):
    """Features of size 56 with a W11, W12 and W21 that keep the scores moderate."""
    arrays = inputs(draw, 3, 5, 4, 0.1, 0.05, sigma=56.0)
    arrays["W"][:4] *= 2.0**-6
    arrays["W"][4:, :4] *= 2.0**-6
    arrays["W"][:4, :4] *= 2.0**-5
    return arrays


def _twice(arrays):
    return {**arrays, "X": np.repeat(arrays["X"], 2, axis=0), "y": np.repeat(arrays["y"], 2)}
