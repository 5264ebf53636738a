"""Which W separates the training tasks with the largest margin, and how does gradient descent approach it?

Hard margin: least |W|_F with t_i = <W, F_i> >= 1 for all tasks, F_i = muhat_i (y_i x_i)^T.  Where it exists, gradient
descent on the logistic loss converges to its direction, at a logarithmic rate.

Shapes: K (B, B) the kernel of the features, alpha, t (B,), W = sum_i alpha_i F_i.
Source: derivations/08_metalearner.md.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh, solve_triangular
from scipy.optimize import nnls

from gsref.arguments import instance, real, real_array
from gsref.descent import euler_steps, follow_flow
from gsref.metalearner.problem import MEMORY, Tasks, check_memory
from gsref.model import logistic_factor, logistic_loss


@dataclass(frozen=True)
class MaxMargin:
    """alpha (B,) >= 0 and margins t = K alpha, with the residuals of the Karush-Kuhn-Tucker conditions:

    primal max(1 - t_i, 0), dual max(-alpha_i, 0) / max alpha, slackness max alpha_i (t_i - 1) / sum alpha, and the
    relative duality gap | |W|^2 - sum alpha | / |W|^2.
    """

    alpha: np.ndarray
    margins: np.ndarray
    primal: float
    dual: float
    slackness: float
    gap: float

    @property
    def norm(self):
        """|W|_F of the solution; 1/norm is the largest margin at unit norm."""
        return math.sqrt(float(self.alpha @ self.margins))

    @property
    def support(self):
        """Boolean (B,): the tasks that hold the solution."""
        return self.alpha > 0


def full_kernel(tasks, memory=MEMORY):
    """K (B, B), K[i, j] = <F_i, F_j> = y_i y_j (muhat_i . muhat_j)(x_i . x_j).  MemoryError beyond `memory` bytes."""
    B = len(instance("tasks", tasks, Tasks))
    check_memory(f"the kernel of {B} tasks", 8 * 3 * B * B, memory)
    xy = tasks.y[:, None] * tasks.x
    return (tasks.muhat @ tasks.muhat.T) * (xy @ xy.T)


def nonnegative_quadratic(K, r):
    """alpha >= 0 that minimises alpha.K alpha/2 - r.alpha, K (n, n) positive definite: least squares on its factor.

    With K = L L^T this is |L^T alpha - L^-1 r|^2/2 up to a constant, for scipy's `nnls` (Lawson and Hanson's active
    set). The support it finds is exact; the numbers on it are then those of the normal equations K alpha = r, which
    saves the digits that the factor loses. Where their solution on all of 1..n is positive there is nothing to find.
    Raises LinAlgError if K is not positive definite.
    """
    L = cholesky(K, lower=True)
    alpha = cho_solve((L, True), r)
    if (alpha > 0).all():
        return alpha
    alpha, _ = nnls(L.T, solve_triangular(L, r, lower=True), maxiter=max(1000, 10 * len(K)))
    on = np.flatnonzero(alpha > 0)
    if len(on):
        polished = cho_solve(cho_factor(K[np.ix_(on, on)]), r[on])
        if (polished > 0).all():
            alpha[on] = polished
    return alpha


def max_margin(K):
    """The hard-margin solution on the kernel K (B, B), positive definite: a `MaxMargin`  [meta.12].

    Its dual is min alpha.K alpha/2 - sum alpha over alpha >= 0; alpha solves it if and only if t = K alpha >= 1 with
    equality wherever alpha_i > 0.  Exact by a library solver (thousands of tasks).
    Raises ValueError if K is not positive definite to rounding: the features are then linearly dependent
    (certainly so for B > d^2), and a separating W need not exist.
    """
    K = real_array("K", K, ("B", "B"))
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"K: got shape {K.shape}, expected a square matrix")
    scale = float(np.trace(K)) / len(K)
    least = float(eigh(K, eigvals_only=True, subset_by_index=[0, 0])[0])
    if not least > 1e-12 * scale:
        raise ValueError(f"K: got smallest eigenvalue {least:.3g} at mean diagonal {scale:.3g}, expected a positive "
                         f"definite kernel; {len(K)} tasks with dependent features need not be separable")
    alpha = nonnegative_quadratic(K / scale, np.ones(len(K))) / scale
    t = K @ alpha
    square = float(alpha @ t)
    return MaxMargin(alpha, t, float(np.maximum(1.0 - t, 0.0).max()), float(np.maximum(-alpha, 0.0).max() / alpha.max()),
                     float(np.abs(alpha * (t - 1.0)).max() / alpha.sum()), abs(square - alpha.sum()) / square)


def direction_gap(K, alpha, beta):
    """| W/|W| - V/|V| |_F of W = sum alpha_i F_i and V = sum beta_i F_i: 2 sin of half the angle between them."""
    def unit(a):
        return a / math.sqrt(float(a @ K @ a))
    difference = unit(alpha) - unit(beta)
    return math.sqrt(max(float(difference @ K @ difference), 0.0))


def offset(K, solution, eta):
    """W_n - log(n) W_hat in the limit, where every task is on the support: coefficients beta (B,)  [meta.13].

    alpha_hat_i = (eta/B) exp(-<W_off, F_i>), so K beta = -log(B alpha_hat / eta), and the gap to the direction of
    W_hat goes to |W_off orthogonal to W_hat| / (|W_hat| log n).  ValueError if some task is off the support.
    """
    if not solution.support.all():
        raise ValueError(f"solution: got {int((~solution.support).sum())} tasks off the support, expected none")
    return cho_solve(cho_factor(K), -np.log(len(K) * solution.alpha / eta))


@dataclass(frozen=True)
class _TaskPoint:
    loss: float
    velocity: np.ndarray


def descend_on_kernel(K, eta, stops, exact_steps=300, rtol=1e-9):
    """alpha (n, B) of gradient descent from zero on the kernel K after each of `stops` steps (rising integers).

    Up to `exact_steps` by single steps, beyond by the flow through them in log time (`descent.follow_flow`), which
    reaches 1e12 steps and more.  Raises TypeError or ValueError.
    """
    K, eta = real_array("K", K, ("B", "B")), real("eta", eta, 0.0, open_least=True)
    B = len(K)

    def evaluate(alpha):
        t = K @ alpha
        return _TaskPoint(float(logistic_loss(t).mean()), logistic_factor(t) / B)
    rows = {}
    wanted = set(stops)

    def observe(step, alpha, point):
        if step in wanted:
            rows[step] = alpha
    step, alpha = euler_steps(evaluate, np.zeros(B), eta, min(exact_steps, max(stops)), observe)
    later = [stop for stop in stops if stop > step]
    if later:
        rows.update(zip(later, follow_flow(evaluate, alpha, eta, step, later, rtol)))
    return np.array([rows[stop] for stop in stops])
