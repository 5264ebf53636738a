"""What are the right values?  The model and its gradient in 50-digit decimal arithmetic, rounded once to float64.

Shapes as in `gsref.model` and `gsref.gradients`; arrays hold Decimal objects, so the formulas read as they do there.
Python's decimal has no fixed exponent range: exp(-5000) keeps its 50 digits, on every platform.
Source: derivations/07_oracle.md.
"""

import decimal
from decimal import Decimal

import numpy as np

DIGITS = 50

_exact = np.frompyfunc(lambda x: +Decimal(float(x)), 1, 1)       # the unary plus rounds to the digits of the context
_exp = np.frompyfunc(lambda x: x.exp(), 1, 1)
_float = np.frompyfunc(float, 1, 1)


def context(digits=DIGITS):
    """A decimal context without an exponent limit that matters; nothing global changes."""
    return decimal.localcontext(decimal.Context(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN,
                                                rounding=decimal.ROUND_HALF_EVEN,
                                                traps=[decimal.InvalidOperation, decimal.DivisionByZero]))


def decimals(x):
    """An array of Decimals equal to x (to the digits of the context)."""
    return np.asarray(_exact(np.asarray(x, dtype=np.float64)), dtype=object)


def floats(x):
    """The float64 array nearest to an array of Decimals."""
    return np.asarray(_float(np.asarray(x, dtype=object)), dtype=np.float64)


def _log1p(x):
    """log(1 + x), 0 <= x <= 1, to the digits of the context: 1 + x is taken with twice as many."""
    digits = decimal.getcontext().prec
    if x.adjusted() < -digits:
        return x * (1 - x / 2)
    with decimal.localcontext() as wide:
        wide.prec = 2 * digits + 2
        log = (1 + x).ln()
    return +log


softplus = np.frompyfunc(lambda t: max(-t, Decimal(0)) + _log1p((-abs(t)).exp()), 1, 1)      # log(1 + exp(-t))
factor = np.frompyfunc(lambda t: (1 if t < 0 else (-t).exp()) / (1 + (-abs(t)).exp()), 1, 1)  # 1 / (1 + exp(t))


def evaluate(v, W, X, y, P, digits=DIGITS):
    """Every quantity along the computation, as arrays of Decimals  [oracle.1].

    Returns a mapping with `scores` A, `attention` S, `values` u, `logit` f, `loss`, `factor` s(-y f), `G`, `dv`, `dW`.
    G is written from the strongest key, as in `gsref.gradients.score_gradient`, so no digit cancels.
    """
    with context(digits):
        v, W, X, y, P = map(decimals, (v, W, X, y, P))
        n, D, d = X.shape
        Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
        A = (Z @ W) @ Z.transpose(0, 2, 1)
        E = np.asarray(_exp(A - A.max(axis=1, keepdims=True)), dtype=object)
        S = E / E.sum(axis=1, keepdims=True)
        u = Z @ v
        f = (S * u[:, :, None]).sum(axis=(1, 2))
        t = y * f
        s = np.asarray(factor(t), dtype=object)
        k = A.argmax(axis=1)
        from_k = u[:, :, None] - np.take_along_axis(u, k, axis=1)[:, None, :]
        G = S * (from_k - (S * from_k).sum(axis=1, keepdims=True))
        c = -y * s / n
        dv = (c[:, None, None] * S.sum(axis=2)[:, :, None] * Z).sum(axis=(0, 1))
        dW = (c[:, None, None] * (Z.transpose(0, 2, 1) @ G @ Z)).sum(axis=0)
        loss = np.asarray(softplus(t), dtype=object).sum() / n
    return {"scores": A, "attention": S, "values": u, "logit": f, "loss": loss, "factor": s, "G": G, "dv": dv, "dW": dW}


def reference(v, W, X, y, P):
    """`evaluate`, each value rounded to the nearest float64, with dv and dW cut into their blocks."""
    values = {name: floats(x) for name, x in evaluate(v, W, X, y, P).items()}
    return blocks(values, X.shape[2])


def blocks(values, d):
    """A mapping with `dv` and `dW` replaced by dv1, dv2, dW11, dW12, dW21, dW22 (views), the rest as it is."""
    out = {name: x for name, x in values.items() if name not in ("dv", "dW")}
    if "dv" in values:
        out["dv1"], out["dv2"] = values["dv"][:d], values["dv"][d:]
    if "dW" in values:
        dW = values["dW"]
        out.update(dW11=dW[:d, :d], dW12=dW[:d, d:], dW21=dW[d:, :d], dW22=dW[d:, d:])
    return out
