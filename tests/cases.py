"""Inputs for the tests of model and gradient, and the scales that errors of the gradient are relative to."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from gsref.model import logistic_factor
from gsref.problem import positions

BLOCKS = ("v1", "v2", "W11", "W12", "W21", "W22")


def blocks(dv, dW, d):
    """{name: part} of a gradient."""
    return dict(zip(BLOCKS, (dv[:d], dv[d:], dW[:d, :d], dW[:d, d:], dW[d:, :d], dW[d:, d:])))


def scales(v, W, X, y, P, formed_from_f=False):
    """{block: scale} of the gradient: its sum with absolute values of the terms (derivations/02_gradients.md, Scales).

    `formed_from_f`: the scale of methods that form f first.
    """
    n, D, d = X.shape
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    A = np.einsum("nia,ab,njb->nij", Z, W, Z)
    E = np.exp(A - A.max(axis=1, keepdims=True))
    S = E / E.sum(axis=1, keepdims=True)
    c = logistic_factor(y * np.einsum("nij,ni->n", S, Z @ v)) / n
    U = np.abs(Z) @ np.abs(v)
    Ubar = np.einsum("nij,ni->nj", S, U)
    if formed_from_f:
        H = S * (U[:, :, None] + Ubar[:, None, :])
    else:
        pairs = S[:, :, None, :] * S[:, None, :, :] * (U[:, :, None] + U[:, None, :])[..., None]     # i, l, j
        pairs[:, np.arange(D), np.arange(D)] = 0
        H = pairs.sum(axis=2)
    dv = np.einsum("n,nij,nia->a", c, S, np.abs(Z))
    dW = np.einsum("n,nij,nia,njb->ab", c, H, np.abs(Z), np.abs(Z))
    return {name: part.max() for name, part in blocks(dv, dW, d).items()}


def margin_error(v, W, X, P):
    """Size of a rounding error of each margin, in units of eps: sum_ij S (U_i + 2 max Q |u_i - ubar_j|)."""
    n, D, d = X.shape
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    A = np.einsum("nia,ab,njb->nij", Z, W, Z)
    E = np.exp(A - A.max(axis=1, keepdims=True))
    S = E / E.sum(axis=1, keepdims=True)
    u, U = Z @ v, np.abs(Z) @ np.abs(v)
    Q = np.einsum("nia,ab,njb->nij", np.abs(Z), np.abs(W), np.abs(Z)).max(axis=1)
    spread = np.abs(u[:, :, None] - np.einsum("nij,ni->nj", S, u)[:, None, :])
    return np.einsum("nij,nij->n", S, U[:, :, None] + 2 * Q[:, None, :] * spread)


def failures(got, wanted, tolerance):
    """Blocks of two gradients that differ by more than `tolerance` (a dict, absolute), as messages; NaN fails."""
    lines = []
    for name in BLOCKS:
        off = np.abs(got[name] - wanted[name])
        if not (off <= tolerance[name]).all():                           # `not <=` and never `>`: NaN must fail
            where = np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off - tolerance[name])), off.shape)
            lines.append(f"{name}{[int(k) for k in where]}: got {got[name][where]!r}, wanted {wanted[name][where]!r}, "
                         f"allowed {np.broadcast_to(tolerance[name], off.shape)[where]:.3g}")
    return lines


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "reversed": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "strided": lambda a: np.repeat(a, 3, axis=-1)[..., ::3],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),              # stride 0; all samples, rows, .. alike
    "read-only": lambda a: _locked(a.copy()),
}
DTYPES = ("float64", "float32", "int64", "int16")


def _locked(a):
    a.flags.writeable = False
    return a


@dataclass
class Case:
    """v, W, X, y, P of some dtype and layout."""

    v: np.ndarray
    W: np.ndarray
    X: np.ndarray
    y: np.ndarray
    P: np.ndarray
    text: str

    @property
    def args(self):
        return self.v, self.W, self.X, self.y, self.P

    @property
    def floats(self):
        """The same numbers in float64, C layout."""
        return tuple(np.array(a, dtype=np.float64) for a in self.args)

    def __repr__(self):
        return self.text


def make(n, D, d, seed=0, v_norm=1.0, gap=1.0, margin=None, layout="C", dtype="float64", free_positions=False):
    """A case with no symmetry: |v| = v_norm, or the largest |margin| is |margin|; the largest score gap is `gap`."""
    text = f"make({n}, {D}, {d}, {seed}, {v_norm!r}, {gap!r}, {margin!r}, {layout!r}, {dtype!r}, {free_positions})"
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D, d))
    P = rng.standard_normal((D, D)) if free_positions else positions(D)
    v, W = rng.standard_normal(d + D), rng.standard_normal((d + D, d + D))
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    if dtype.startswith("int"):
        X = np.rint(2 * X)
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    A = np.einsum("nia,ab,njb->nij", Z, W, Z)
    widest = np.ptp(A, axis=1).max()
    W *= gap / widest if widest > 0 else 1.0
    v *= v_norm / np.linalg.norm(v)
    if margin is not None:
        E = np.exp((A - A.max(axis=1, keepdims=True)) * (gap / widest if widest > 0 else 1.0))
        f = np.einsum("nij,ni->n", E / E.sum(axis=1, keepdims=True), Z @ v)
        k = np.argmax(np.abs(f))
        v *= abs(margin) / abs(f[k]) if f[k] else 0.0
        y[k] = np.sign(f[k] * margin) or 1.0
    if dtype.startswith("int"):
        v, W = np.rint(v), np.rint(W)
    kinds = (dtype, dtype, dtype, dtype, "float64" if dtype.startswith("int") else dtype)
    return Case(*(LAYOUTS[layout](a.astype(kind)) for a, kind in zip((v, W, X, y, P), kinds)), text)


@st.composite
def cases(draw, largest=5, dtypes=DTYPES):
    """Cases over shapes, scales, layouts and dtypes."""
    n, D, d = (draw(st.integers(1, largest), label=name) for name in "nDd")
    return make(n, D, d, seed=draw(st.integers(0, 2 ** 32 - 1)),
                v_norm=draw(st.sampled_from([0.0, 1e-8, 1e-3, 1.0, 100.0]) | st.floats(1e-8, 100)),
                gap=draw(st.sampled_from([0.0, 1.0, 40.0, 800.0]) | st.floats(1e-8, 800)),
                margin=draw(st.none() | st.sampled_from([-800.0, -100.0, -38.0, 38.0, 100.0, 800.0])
                            | st.floats(-800, 800)),
                layout=draw(st.sampled_from(sorted(LAYOUTS))), dtype=draw(st.sampled_from(dtypes)),
                free_positions=draw(st.booleans()))
