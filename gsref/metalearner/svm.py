"""Which hyperplane separates the examples of a context with the largest margin?  Exactly, for thousands of contexts.

Shapes: X (T, M, d) examples, y (T, M) labels, Q (T, M, M) with Q_ij = y_i y_j x_i . x_j, alpha, t (T, M), w (T, d),
b (T,).  Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve

from gsref.arguments import labels, real_array
from gsref.metalearner.accuracy import linear_accuracy
from gsref.metalearner.max_margin import nonnegative_quadratic
from gsref.threads import SINGLE_BLAS

MET = 1e-9                                     # the largest violation of a condition that a solution may have
ROUNDS = 40                                    # exchanges of whole sets before the rest goes to least squares; empirical


@dataclass(frozen=True)
class LinearRule:
    """The rules sign(w . x + b), w (..., d), b (...), and the largest violation of the conditions that make each the
    solution, residual (...)."""

    w: np.ndarray
    b: np.ndarray
    residual: np.ndarray

    def accuracy(self, mu):
        """P(y (w . x + b) > 0) for x = y mu + z; a constant rule (w = 0) is right half of the time."""
        return linear_accuracy(self.w, self.b, mu)


def svm(X, y, intercept=True):
    """Hard-margin SVM of one context: least |w| with y_i (w . x_i + b) >= 1, a `LinearRule`.  Errors as `svms`."""
    X = real_array("X", X, ("M", "d"))
    rule = svms(X[None], labels("y", y, len(X))[None], intercept)
    return LinearRule(rule.w[0], float(rule.b[0]), float(rule.residual[0]))


def svms(X, y, intercept=True):
    """Hard-margin SVMs of T contexts: a `LinearRule` of arrays.

    w = sum alpha_i y_i x_i, alpha >= 0, sum alpha_i y_i = 0, which needs inner products of the M examples only.
    Without intercept b = 0, and there is no condition on sum alpha_i y_i.  With an intercept a context of one class
    answers with that class (w = 0, b = that label).  A solution is accepted if it violates no condition by more than
    MET, and only then.
    Raises TypeError or ValueError, also for M > d examples; ArithmeticError for a context that no way solves.
    """
    X = real_array("X", X, ("T", "M", "d"))
    T, M, d = X.shape
    y = labels("y", np.reshape(y, -1), T * M).reshape(T, M)
    if M > d:
        raise ValueError(f"X: got {M} examples of dimension {d}, expected at most {d}: a separating plane need not "
                         "exist")
    F = y[:, :, None] * X
    alpha, b, residual = np.zeros((T, M)), y[:, 0].copy(), np.zeros(T)
    two = (y != y[:, :1]).any(axis=1) if intercept else np.ones(T, dtype=bool)
    with SINGLE_BLAS:                          # thousands of small systems: threads inside each only get in the way
        Q = F @ F.transpose(0, 2, 1)
        alpha[two], b[two], residual[two] = solve_duals(Q[two], y[two], intercept)
    return LinearRule(np.einsum("tm,tmd->td", alpha, F), b, residual)


def solve_duals(Q, y, intercept):
    """alpha (T, M), b (T,) and residuals (T,) of the dual problems, each of two classes if there is an intercept.

    Guess a support: alpha and b are then the solution of a linear system. Where that leaves a negative alpha or a
    margin below 1, the examples concerned change sides, all at once (Kostreva's exchanges). It ends where every
    condition holds, nearly always after a few rounds; contexts that are left go to `least_squares`.
    """
    T, M = y.shape
    alpha, b, residual = np.zeros((T, M)), np.zeros(T), np.full(T, np.inf)
    on = np.ones((T, M), dtype=bool)
    left = np.arange(T)
    for _ in range(ROUNDS):
        left = left[on[left].any(axis=1)]
        if not len(left):
            break
        alpha[left], b[left] = on_support(Q[left], y[left], on[left], intercept)
        residual[left] = violation(Q[left], y[left], alpha[left], b[left], intercept)
        left = left[residual[left] > MET]
        t = margins(Q[left], y[left], alpha[left], b[left])
        on[left] ^= np.where(on[left], alpha[left] < 0.0, t < 1.0)
    for i in np.flatnonzero(residual > MET):
        alpha[i], b[i] = least_squares(Q[i], y[i], intercept)
        residual[i] = violation(Q[i:i + 1], y[i:i + 1], alpha[i:i + 1], b[i:i + 1], intercept)[0]
        if residual[i] > MET:
            raise ArithmeticError(f"svm: a condition stays violated by {residual[i]:.3g} (M = {M})")
    return alpha, b, residual


def margins(Q, y, alpha, b):
    """t_i = y_i (w . x_i + b), (T, M)."""
    return np.einsum("tij,tj->ti", Q, alpha) + b[:, None] * y


def violation(Q, y, alpha, b, intercept):
    """The largest violation (T,) of  t >= 1,  alpha >= 0,  alpha_i (t_i - 1) = 0,  sum alpha_i y_i = 0, the last three in
    units of sum |alpha|."""
    t, size = margins(Q, y, alpha, b), np.abs(alpha).sum(axis=1)
    balance = np.abs(np.sum(alpha * y, axis=1)) if intercept else np.zeros(len(t))
    worst = np.maximum(np.maximum(-alpha.min(axis=1), np.abs(alpha * (t - 1.0)).max(axis=1)), balance)
    return np.maximum((1.0 - t).max(axis=1), worst / np.where(size > 0, size, 1.0))


def on_support(Q, y, on, intercept):
    """alpha, b with t_i = 1 on the support `on` (T, M), not empty, alpha_i = 0 off it (and sum alpha_i y_i = 0)."""
    T, M = y.shape
    on = on.astype(float)
    A, r = np.zeros((T, M + 1, M + 1)), np.zeros((T, M + 1))
    A[:, :M, :M] = Q * on[:, :, None] * on[:, None, :]
    A[:, range(M), range(M)] += 1.0 - on
    A[:, :M, M] = A[:, M, :M] = y * on if intercept else 0.0
    A[:, M, M] = 0.0 if intercept else 1.0
    r[:, :M] = on
    found = np.linalg.solve(A, r[:, :, None])[:, :, 0]
    return found[:, :M], found[:, M]


def least_squares(Q, y, intercept, most=20):
    """alpha (M,), b of one dual, Q (M, M), y (M,), by non-negative least squares  [meta.14].

    Without intercept this is one call of `nonnegative_quadratic`. A free intercept fits no least-squares problem as it
    is: a proximal term (b - b_0)^2/(2c) makes one, whose support gives alpha and b by one linear system; if that breaks
    a condition, the intercept found becomes the next b_0. Proximal steps converge, and end where every condition holds
    to rounding.
    """
    M = len(y)
    if not intercept:
        return nonnegative_quadratic(Q, np.ones(M)), 0.0
    c = 10.0 * np.trace(Q) / M
    b = 0.0
    for _ in range(most):
        alpha = nonnegative_quadratic(Q + c * np.outer(y, y), 1.0 - b * y)
        b = b + c * float(y @ alpha)
        on = np.flatnonzero(alpha > 0)
        exact = solve(np.block([[Q[np.ix_(on, on)], y[on, None]], [y[None, on], np.zeros((1, 1))]]),
                      np.append(np.ones(len(on)), 0.0), assume_a="sym")
        found = np.zeros(M)
        found[on] = exact[:-1]
        if violation(Q[None], y[None], found[None], exact[-1:], intercept)[0] < MET:
            break
    return found, float(exact[-1])
