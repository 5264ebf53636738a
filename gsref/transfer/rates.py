"""How often is a predictor wrong on the downstream task?  Exact where there is a closed form; always with an error.

A value is wrong if y f <= 0: a logit of exactly 0 is wrong, as in the claim.  Every function returns (value, error):
for exact values the error is a bound on rounding, for sampled ones the standard error.
Source: derivations/09_transfer.md.
"""

import numpy as np
from scipy.special import expit, log_ndtr, ndtr, owens_t, softmax, logsumexp

from gsref.arguments import instance, integer, real_array
from gsref.model import _attention, _scores, _values
from gsref.transfer.task import DownstreamTask

REACH, INTERVALS, BISECTIONS = 9.0, 24, 50     # beyond 9 standard deviations there is 1e-18 of the mass


def linear_error(task, w):
    """Error of the predictor f = sum_ji w[j, i] X[j, i] on a Gaussian task, w (D, d), as (value, error)  [transfer.5].

    Without margin it is an angle, arccos(cos(w, v~*))/pi; with one, Owen's T function.
    Raises ValueError if the task is not Gaussian or w is zero (a zero predictor is always wrong).
    """
    instance("task", task, DownstreamTask)
    if task.law != "gaussian":
        raise ValueError(f"task: got the {task.law} law, expected gaussian (use sampled_error)")
    w = real_array("w", w, (task.D, task.d))
    along = w[task.relevant] @ task.direction
    rest = w.copy()
    rest[task.relevant] -= along * task.direction
    across = np.linalg.norm(rest)
    if along == 0 and across == 0:
        raise ValueError("w: got zero, expected a predictor that depends on the data")
    error = 4 * np.finfo(float).eps
    if across == 0:
        return float(along < 0), 0.0
    a, h = abs(along) / across, task.margin
    if h == 0:
        value = np.arctan2(across, abs(along)) / np.pi
    elif a <= 1:
        value = 0.5 - owens_t(h, a) / ndtr(-h)
    else:                                      # the same by T(h, a) + T(ah, 1/a): a small value keeps its digits
        value = (owens_t(a * h, 1 / a) - (ndtr(h) - 0.5) * ndtr(-a * h)) / ndtr(-h)
    return float(value if along >= 0 else 1 - value), error / (ndtr(-h) if h > 0 else 1.0)


def attention_error(task, v, W, n, rng):
    """Error of the attention model (v, W) on a Gaussian task, as (value, standard error)  [transfer.6].

    Given everything but s = <x_r, v~*>, the set of s on which the model is wrong is a union of intervals whose ends are
    zeros of f(s); its conditional normal probability is exact once the zeros are known.  They are bracketed on a grid
    of s and bisected.  The mean over `n` draws of the rest has a standard error that shrinks with the value itself; the
    difference from a grid of twice the spacing (an interval with two zeros is not seen) is added to it.
    """
    instance("task", task, DownstreamTask)
    if task.law != "gaussian":
        raise ValueError(f"task: got the {task.law} law, expected gaussian (use sampled_error)")
    d, D, n = task.d, task.D, integer("n", n, 2)
    v, W = real_array("v", v, (d + D,)), real_array("W", W, (d + D, d + D))
    logit = _LogitAlongLabel(task, v, W, instance("rng", rng, np.random.Generator).standard_normal((n, D, d)))
    grid = task.margin + REACH * np.linspace(0.0, 1.0, INTERVALS + 1)
    fine = coarse = 0.0
    for y in (1.0, -1.0):
        f = y * logit(y * np.broadcast_to(grid, (n, len(grid))))
        fine = fine + _wrong_mass(lambda rows, s: y * logit(y * s, rows), f, grid) / 2
        coarse = coarse + _wrong_mass(lambda rows, s: y * logit(y * s, rows), f[:, ::2], grid[::2]) / 2
    return float(fine.mean()), float(fine.std(ddof=1) / np.sqrt(n) + abs(fine.mean() - coarse.mean()))


class _LogitAlongLabel:
    """f as a function of s = <x_r, v~*>, everything else of n samples being fixed  [transfer.7].

    s enters the scores A[r, j] and A[i, r] linearly and A[r, r] quadratically; all other scores are computed once.
    """

    def __init__(self, task, v, W, X):
        P, r, e = task.problem.positions, task.relevant, np.zeros(len(v))
        n, D, d = X.shape
        self.r, e[:d] = r, task.direction
        X[:, r] -= np.multiply.outer(X[:, r] @ task.direction, task.direction)
        A, u, others = _scores(W, X, P), _values(v, X, P), np.arange(D) != r
        We, eW = W @ e, e @ W
        # columns of irrelevant queries: log-sum and mean over irrelevant keys, and the line of the relevant key
        rest = A[:, others][:, :, others]
        self.L = logsumexp(rest, axis=1)
        self.mean = np.einsum("nij,ni->nj", _attention(rest), u[:, others]) if D > 1 else np.zeros((n, 0))
        self.A_r, self.A_r_slope = A[:, r, others], (X @ eW[:d] + P @ eW[d:])[:, others]
        # column of the relevant query
        self.A_q, self.A_q_slope = A[:, :, r].copy(), X @ We[:d] + P @ We[d:]
        self.A_q_slope[:, r] += (X @ eW[:d] + P @ eW[d:])[:, r]
        self.A_rr_curve = e @ We
        self.u, self.u_slope = u, v @ e

    def __call__(self, s, rows=slice(None)):
        """f at s (m, k) for the samples `rows` (m of them)."""
        s = s[:, :, None]
        u_r = self.u[rows, None, self.r, None] + self.u_slope * s
        S = expit(self.A_r[rows, None] + self.A_r_slope[rows, None] * s - self.L[rows, None])
        mean = self.mean[rows, None]
        f = (mean + S * (u_r - mean)).sum(axis=2)
        A = self.A_q[rows, None] + self.A_q_slope[rows, None] * s
        A[:, :, self.r] += self.A_rr_curve * s[:, :, 0]**2
        S = softmax(A, axis=2)
        return f + np.einsum("mki,mi->mk", S, self.u[rows]) + S[:, :, self.r] * self.u_slope * s[:, :, 0]


def _wrong_mass(f, values, grid):
    """Conditional probability, given s >= grid[0], of the part of s >= grid[0] where f <= 0; shape (n,).

    `values` (n, k) is f on the grid, `f(rows, s)` evaluates it for samples `rows` at s (m, 1).
    """
    wrong = ~(values > 0)
    start, end = wrong[:, :-1], wrong[:, 1:]
    rows, cells = np.nonzero(start != end)
    a, b, left = grid[cells].copy(), grid[cells + 1].copy(), start[rows, cells]
    if len(rows):
        for _ in range(BISECTIONS):
            middle = (a + b) / 2
            same = ~(f(rows, middle[:, None])[:, 0] > 0) == left
            a, b = np.where(same, middle, a), np.where(same, b, middle)
    # in logs: far out in the tail both are tiny, their ratio is not
    tail, tail_zero = np.exp(log_ndtr(-grid) - log_ndtr(-grid[0])), np.exp(log_ndtr(-a) - log_ndtr(-grid[0]))
    mass = (start & end) @ (tail[:-1] - tail[1:])
    np.add.at(mass, rows, np.where(left, tail[cells] - tail_zero, tail_zero - tail[cells + 1]))
    return mass


def sampled_error(task, predict, n, rng):
    """Share of n samples on which predict(X) (n,) is wrong, as (value, standard error), for any law  [transfer.8].

    The standard error is that of (k + 1)/(n + 2) for k wrong ones, so that it does not vanish with k.
    """
    n = integer("n", n)
    X, y = task.sample(n, rng)
    k = np.count_nonzero(~(y * predict(X) > 0))
    p = (k + 1) / (n + 2)
    return k / n, float(np.sqrt(p * (1 - p) / n))


def relevant_attention(task, W, n, rng):
    """Mean over n samples and all queries j of S[r, j], as (value, standard error); W (d+D, d+D)."""
    W = real_array("W", W, (task.d + task.D, task.d + task.D))
    X, _ = task.sample(integer("n", n, 2), rng)
    S = _attention(_scores(W, X, task.problem.positions))[:, task.relevant].mean(axis=1)
    return float(S.mean()), float(S.std(ddof=1) / np.sqrt(n))
