"""What does the oracle need to know of the metalearner?  Its `System`: right values, tolerances, cases.

`gsref.oracle.check(candidate, system=METALEARNER)` checks a candidate(W, X, Y, x, y) -> (loss, dW); comparison, verdict
and diagnosis are the oracle's.  Shapes: W (d, d), X (B, N, d) contexts with labels Y (B, N), x (B, d) queries with
labels y (B,), muhat (B, d), t (B,).  Source: derivations/08_metalearner.md.
"""

from types import MappingProxyType

import numpy as np

from gsref.model import logistic_factor, logistic_loss
from gsref.oracle.cases import Case, Draw
from gsref.oracle.precision import PRECISIONS
from gsref.oracle.reference import context, decimals, factor, floats, softplus
from gsref.oracle.system import System
from gsref.oracle.tolerance import LAMBDA, loss_error, repeats, sum_error

VERSION = 1          # raised whenever an input of any case changes


def evaluate(W, X, Y, x, y):
    """muhat, margin t, loss, factor s(-t) and dW in 50-digit decimals, rounded once to float64."""
    with context():
        W, X, Y, x, y = map(decimals, (W, X, Y, x, y))
        B, N, _ = X.shape
        muhat = (Y[:, :, None] * X).sum(axis=1) / N
        t = y * ((muhat @ W) * x).sum(axis=1)
        s = np.asarray(factor(t), dtype=object)
        dW = -(muhat.T @ ((s * y)[:, None] * x)) / B
        loss = np.asarray(softplus(t), dtype=object).sum() / B
        return {name: floats(value) for name, value in
                {"muhat": muhat, "margin": t, "loss": loss, "factor": s, "dW": dW}.items()}


def margin_error(W, muhat, V_muhat, x, p):
    """V of muhat . W x: the largest of (muhat W) x, muhat (W x) and one flat sum over both indices  [meta.17]."""
    d, w2 = len(W), p.operand ** 2
    t, square = np.einsum("bd,bd->b", muhat @ W, x), (muhat ** 2 @ W ** 2 * x ** 2).sum(axis=1)

    def one_order(a, W, b, V_a):
        L = a @ W
        V = sum_error(d, L, a ** 2 @ W ** 2, p.unit) + w2 * (L ** 2 + a ** 2 @ W ** 2) + p.tiny ** 2
        return (V * b ** 2).sum(axis=1) + sum_error(d, t, (L ** 2 * b ** 2).sum(axis=1), p.unit) + \
            w2 * (L ** 2 * b ** 2).sum(axis=1)
    orders = np.maximum(one_order(muhat, W, x, V_muhat), one_order(x, W.T, muhat, 0.0))
    flat = sum_error(d * d, t, square, p.unit) + (2.0 * p.unit ** 2 + w2) * square
    return np.maximum(orders, flat) + (V_muhat * (x @ W.T) ** 2).sum(axis=1) + p.tiny ** 2 * (1.0 + x.shape[1])


def tolerances(W, X, Y, x, y, p=PRECISIONS["float64"], careful=False):
    """Tolerances of every quantity of `evaluate`, and `sizes`, the sums of absolute values of terms  [meta.18].

    LAMBDA sqrt(V) repeats + (u + 2^-53) |wanted|, as for the first system. An error of muhat acts on dW
    twice, directly and through s(-t): their squares are doubled. `careful` changes nothing: no step cancels by choice of form.
    """
    B, N, d = X.shape
    u2, w2 = p.unit ** 2, p.operand ** 2
    square = (X ** 2).sum(axis=1) / N ** 2
    muhat = np.einsum("bn,bnd->bd", Y, X) / N
    V_muhat = sum_error(N, muhat, square, p.unit) + 2.0 * u2 * muhat ** 2 + w2 * square + p.tiny ** 2
    t = y * np.einsum("bd,bd->b", muhat @ W, x)
    V_t = margin_error(W, muhat, V_muhat, x, p)
    V_l, V_s = loss_error(t, V_t, p)
    l, s = logistic_loss(t), logistic_factor(t)
    scale = max(s.max(), p.tiny) / B                  # c in units of the largest: its squares must not underflow
    c = -y * s / B / scale
    V_c = V_s / scale / scale / B ** 2 + 3.0 * u2 * c ** 2 + (p.tiny / scale) ** 2
    m2, x2, c2 = muhat ** 2, x ** 2, c ** 2
    dW, terms = muhat.T @ (c[:, None] * x), m2.T @ (c2[:, None] * x2)
    V_dW = (2.0 * m2.T @ (V_c[:, None] * x2) + 2.0 * V_muhat.T @ (c2[:, None] * x2) + (3.0 * u2 + 3.0 * w2) * terms
            + sum_error(B, dW, terms, p.unit) + 2.0 * u2 * dW ** 2
            + 4.0 * (p.tiny / scale) ** 2 * (B + m2.sum(axis=0)[:, None] + x2.sum(axis=0)))
    V = {"muhat": V_muhat, "margin": V_t, "factor": V_s, "dW": V_dW * scale ** 2,
         "loss": V_l.sum() / B ** 2 + sum_error(B, l.mean(), (l ** 2).sum() / B ** 2, p.unit)}
    wanted = {"muhat": muhat, "margin": t, "loss": l.mean(), "factor": s, "dW": scale * dW}
    sizes = {name: np.abs(value) for name, value in wanted.items()} | {
        "muhat": np.abs(X).sum(axis=1), "margin": (np.abs(muhat) @ np.abs(W) * np.abs(x)).sum(axis=1),
        "dW": scale * np.abs(muhat).T @ (np.abs(c)[:, None] * np.abs(x))}
    together = LAMBDA * repeats(np.concatenate([Y[:, :, None] * X, (y[:, None] * x)[:, None, :]], axis=1))
    return {name: together * np.sqrt(V[name]) + (p.unit + 2.0 ** -53) * np.abs(wanted[name]) for name in V}, sizes


def inputs(draw, B, N, d, w=0.2, scale=1.75):
    """Generic inputs: entries of W in [-w, w), of X and x in [-scale, scale), both labels in every context."""
    def signs(*shape):
        return np.where(draw(*shape) < 0.0, -1.0, 1.0)
    y, Y = signs(B), signs(B, N)
    y[:2], Y[:, :2] = np.array([1.0, -1.0])[:B], np.array([1.0, -1.0])[:N]
    return {"W": w * draw(d, d), "X": scale * draw(B, N, d), "Y": Y, "x": scale * draw(B, d), "y": y}


def with_margins(arrays, margins):
    """The same inputs with the smallest W that gives these margins (B <= d^2, so that there is one)."""
    W, X, Y, x, y = arrays.values()
    F = np.einsum("bn,bni,bj->bij", Y, X, y[:, None] * x).reshape(len(y), -1) / Y.shape[1]
    W = np.linalg.lstsq(F, np.resize(np.asarray(margins, dtype=float), len(y)), rcond=None)[0].reshape(W.shape)
    return {**arrays, "W": np.ldexp(np.rint(np.ldexp(W, 12)), -12)}          # the same bits whatever LAPACK did


def cases(seed=0, thorough=False):
    """The cases, a tuple in a fixed order: small ones by default, with larger ones for `thorough`."""
    found = []

    def add(id, flags, make, larger=False):
        arrays = make(Draw(seed, f"metalearner-{VERSION}-{id}"))
        B, N, d = arrays["X"].shape
        for array in arrays.values():
            array.flags.writeable = False
        found.append(Case(id, flags, arrays, {"B": B, "N": N, "d": d}, larger))

    def margins(values, B=4, N=3, d=5):
        return lambda draw: with_margins(inputs(draw, B, N, d), values)
    add("generic-3-5-4", ("generic",), lambda draw: inputs(draw, 3, 5, 4))
    add("generic-4-3-5", ("generic",), lambda draw: inputs(draw, 4, 3, 5, 0.4))
    add("generic-6-7-2", ("generic",), lambda draw: inputs(draw, 6, 7, 2, 0.5, 1.0))
    add("large-W", ("margins of a few",), lambda draw: inputs(draw, 3, 5, 4, 2.0))
    add("zero-W", ("W = 0", "margin 0"), lambda draw: inputs(draw, 3, 5, 4, 0.0))
    add("tiny-W", ("W near 0",), lambda draw: inputs(draw, 3, 5, 4, 2.0 ** -20))
    for size in (1, 12, 37, 100, 800):
        for sign, side in ((1, "right"), (-1, "wrong")):
            add(f"margin-{size}-{side}", (f"margin {sign * size:+d}",) + (("large margin",) if size > 20 else ()),
                margins([sign * size]))
    add("margins-mixed", ("margins +-1 to +-800 in one batch", "large margin"),
        margins([1, -12, 37, -100, 800, -800], B=6))
    add("margins-right", ("margins +6 and +7 with next to no rounding",), margins([6, 7], B=2, N=1, d=2))
    add("one-task", ("B = 1",), lambda draw: inputs(draw, 1, 5, 4))
    add("one-example", ("N = 1",), lambda draw: inputs(draw, 4, 1, 3))
    add("one-feature", ("d = 1",), lambda draw: inputs(draw, 3, 5, 1))
    add("all-one", ("B = N = d = 1",), lambda draw: inputs(draw, 1, 1, 1))
    add("duplicated-batch", ("every task twice",),
        lambda draw: {name: array if name == "W" else np.repeat(array, 2, axis=0)
                      for name, array in inputs(draw, 2, 5, 3).items()})
    for label, name in ((1.0, "plus"), (-1.0, "minus")):
        add(f"queries-{name}", (f"all queries {label:+g}",),
            lambda draw, label=label: {**inputs(draw, 3, 5, 4), "y": np.full(3, label)})
        add(f"contexts-{name}", (f"all examples {label:+g}",),
            lambda draw, label=label: {**inputs(draw, 3, 5, 4), "Y": np.full((3, 5), label)})
    add("scale-16", ("gradient of scale 16",), lambda draw: inputs(draw, 4, 3, 5, 2.0 ** -9, 16.0))
    add("scale-1e-6", ("gradient of scale 1e-6",), lambda draw: inputs(draw, 4, 3, 5, 0.2, 2.0 ** -10))
    if thorough:
        for B, N, d in ((12, 5, 3), (32, 6, 5), (5, 40, 3), (4, 6, 24), (24, 12, 8)):
            add(f"random-{B}-{N}-{d}", ("generic", "larger"), lambda draw, B=B, N=N, d=d: inputs(draw, B, N, d), larger=True)
        for B, N, d in ((2, 2, 2), (4, 4, 4)):
            add(f"equal-sizes-{B}-{N}-{d}", ("sizes that hide faults",), lambda draw, B=B, N=N, d=d: inputs(draw, B, N, d),
                larger=True)
    return tuple(case for case in found if thorough or not case.thorough)


def rejected(seed=0):
    """Inputs that an implementation must refuse; the reason is the first flag."""
    arrays = inputs(Draw(seed, "metalearner-rejected"), 3, 5, 4)
    X_nan = arrays["X"].copy()
    X_nan[1, 2, 3] = np.nan
    wrong = {"reject-labels-01": ("query labels 0 and 1", {"y": (arrays["y"] + 1) / 2}),
             "reject-context-labels-01": ("context labels 0 and 1", {"Y": (arrays["Y"] + 1) / 2}),
             "reject-empty-batch": ("no task", {name: arrays[name][:0] for name in ("X", "Y", "x", "y")}),
             "reject-nan": ("a NaN in X", {"X": X_nan}),
             "reject-shape": ("W that is not square", {"W": arrays["W"][:, :-1]})}
    return tuple(Case(id, (why,), {**arrays, **change}, {"B": 3, "N": 5, "d": 4}) for id, (why, change) in wrong.items())


def _faults():
    from gsref.metalearner.oracle_faults import FAULTS          # only a failure or `mutants` needs the table
    return FAULTS


def _known_wrong(dtype):
    from gsref.metalearner.oracle_faults import known_wrong
    return known_wrong(dtype)


METALEARNER = System(
    name="metalearner", where="gsref.metalearner.oracle:METALEARNER", version=VERSION,
    inputs=("W", "X", "Y", "x", "y"), outputs=("loss", "dW"), steps=("muhat", "margin", "loss", "factor", "dW"),
    labels=MappingProxyType({"dW": "dW"}), evaluate=evaluate, tolerances=tolerances, blocks=lambda values, d: dict(values),
    split="x", cases=cases, faults=_faults, known_wrong=_known_wrong, rejected=rejected,
    conventions=MappingProxyType({
        "inputs": "W (d, d), X (B, N, d) context examples, Y (B, N) their labels, x (B, d) queries, y (B,) their labels",
        "context mean": "muhat = sum over n of Y[b, n] X[b, n, :], divided by N",
        "margin": "t[b] = y[b] (muhat[b] . W x[b])",
        "labels": "Y and y are -1 or +1",
        "reduction": "loss = mean over b of log(1 + exp(-t)), natural logarithm; dW is its derivative",
        "orientation": "dW[i, j] = d loss / d W[i, j], i on the side of muhat and j on the side of x",
        "axis order": "C order: the last axis runs fastest"}))
