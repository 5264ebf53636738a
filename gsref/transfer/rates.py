"""How often is a predictor wrong on the downstream task?  Exact where there is a closed form; always with an error.

A value is wrong if y f <= 0: a logit of exactly 0 is wrong, as in the claim.  Every function returns (value, error):
for exact values the error is a bound on rounding, for sampled ones the standard error.
Source: derivations/09_transfer.md.
"""

import numpy as np
from scipy.integrate import quad
from scipy.special import expit, log_ndtr, logsumexp, ndtr, owens_t

from gsref.arguments import instance, integer, real_array
from gsref.model import _attention, _scores, _values
from gsref.transfer.task import DownstreamTask

TAIL = 2.0                                     # margins beyond which Owen's T cancels: it is right to 1e-16, not to a share
REACH, INTERVALS, BISECTIONS = 9.0, 24, 18     # beyond 9 standard deviations there is 1e-18 of the mass


def linear_error(task, w):
    """Error of the predictor f = sum_ji w[j, i] X[j, i] on a Gaussian task, w (D, d), as (value, error)  [transfer.8].

    Without margin it is an angle, arccos(cos(w, v~*))/pi; with one, Owen's T function; beyond TAIL its integral.
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
    if task.margin > 37:
        raise ValueError(f"task: got the margin {task.margin:g}, expected <= 37 (float64 has no normal tail beyond)")
    if across == 0:
        return float(along < 0), 0.0
    a, h = abs(along) / across, task.margin
    if h == 0:
        value = np.arctan2(across, abs(along)) / np.pi
    elif h > TAIL:
        value, error = _tail_error(h, a)
        return (value, error) if along >= 0 else (1 - value, error)
    elif a <= 1:
        value = 0.5 - owens_t(h, a) / ndtr(-h)
    else:                                      # the same by T(h, a) + T(ah, 1/a): a small value keeps its digits
        value = (owens_t(a * h, 1 / a) - (ndtr(h) - 0.5) * ndtr(-a * h)) / ndtr(-h)
    # the special functions are right to a few units in the last place of numbers of size ndtr(-h) or 1/2
    return float(value if along >= 0 else 1 - value), 4 * np.finfo(float).eps * float(0.5 / ndtr(-h))


def _tail_error(h, a):
    """Prob(Y > a X | X > h) of independent normals, as (value, error), by an integral of positive numbers.

    With the factor exp(-h^2 (1 + a^2)/2) taken out, t runs from a to where the rest is exp(-45).
    """
    end = np.sqrt(a**2 + 90 / h**2)
    rest, error = quad(lambda t: np.exp(-(h**2) * (t - a) * (t + a) / 2) / (1 + t * t), a, end, epsabs=0, epsrel=1e-12)
    scale = np.exp(-(h**2) * (1 + a * a) / 2 - log_ndtr(-h)) / (2 * np.pi)
    # an exponent x is rounded by eps x: that is a share of the value
    return float(scale * rest), float(scale * (error + 4 * np.finfo(float).eps * (1 + h**2 * (1 + a * a)) * rest))


def attention_error(task, v, W, n, rng):
    """Error of the attention model (v, W) on a Gaussian task, as (value, standard error); see `attention_errors`."""
    value, error = attention_errors(task, np.asarray(v)[None], np.asarray(W)[None], n, rng)
    return float(value[0]), float(error[0])


def attention_errors(task, v, W, n, rng):
    """Errors of B attention models v (B, d+D), W (B, d+D, d+D) on a Gaussian task: (values, errors), (B,)  [transfer.9].

    Given everything but s = <x_r, v~*>, the set of s on which the model is wrong is a union of intervals whose ends are
    zeros of f(s); its conditional normal probability is exact once the zeros are known.  They are bracketed on a grid
    of s, bisected, and found by a chord.  The mean over `n` draws of the rest has a standard error that shrinks with the value itself; the
    difference from a grid of twice the spacing (an interval with two zeros is not seen) is added to it.
    Raises TypeError or ValueError, naming the argument.
    """
    instance("task", task, DownstreamTask)
    if task.law != "gaussian":
        raise ValueError(f"task: got the {task.law} law, expected gaussian (use sampled_error)")
    size, n = task.d + task.D, integer("n", n, 2)
    v, W = real_array("v", v, ("B", size)), real_array("W", W, (len(v), size, size))
    rng = instance("rng", rng, np.random.Generator)
    logit = _LogitAlongLabel(task, v, W, rng.standard_normal((len(v), n, task.D, task.d)))
    grid = task.margin + REACH * np.linspace(0.0, 1.0, INTERVALS + 1)
    fine, coarse = np.zeros(len(v) * n), np.zeros(len(v) * n)
    for y in (1.0, -1.0):
        f = y * logit(y * grid)
        fine += _wrong_mass(lambda rows, s: y * logit(y * s, rows), f, grid) / 2
        coarse += _wrong_mass(lambda rows, s: y * logit(y * s, rows), f[:, ::2], grid[::2]) / 2
    fine, coarse = fine.reshape(-1, n), coarse.reshape(-1, n)
    return fine.mean(axis=1), fine.std(axis=1, ddof=1) / np.sqrt(n) + np.abs((fine - coarse).mean(axis=1))


class _LogitAlongLabel:
    """f as a function of s = <x_r, v~*>, everything else of a sample being fixed  [transfer.10].

    s enters the scores A[r, j] and A[i, r] linearly and A[r, r] quadratically; all other scores are computed once.
    Rows are the samples X (B, n, D, d) of all models, B n of them.
    """

    def __init__(self, task, v, W, X):
        r, self.r = task.relevant, task.relevant
        X[:, :, r] -= np.multiply.outer(X[:, :, r] @ task.direction, task.direction)
        columns = zip(*(self._fixed_part(task, *model) for model in zip(v, W, X)))
        (self.L, self.mean, self.A_r, self.A_r_slope, self.A_q, self.A_q_slope, self.A_rr_curve, self.u,
         self.u_slope) = (np.concatenate(part) for part in columns)

    @staticmethod
    def _fixed_part(task, v, W, X):
        P, r, (n, D, d) = task.problem.positions, task.relevant, X.shape
        e = np.zeros(len(v))
        e[:d] = task.direction
        A, u, others = _scores(W, X, P), _values(v, X, P), np.arange(D) != r
        rest = A[:, others][:, :, others]      # columns of irrelevant queries: log-sum and mean over irrelevant keys
        mean = np.einsum("nij,ni->nj", _attention(rest), u[:, others]) if D > 1 else np.zeros((n, 0))
        L = logsumexp(rest, axis=1) if D > 1 else np.zeros((n, 0))
        as_query, as_key = W @ e, e @ W
        up, down = X @ as_key[:d] + P @ as_key[d:], X @ as_query[:d] + P @ as_query[d:]
        down[:, r] += up[:, r]
        return (L, mean, A[:, r, others], up[:, others], A[:, :, r], down, np.full(n, e @ as_query), u,
                np.full(n, v @ e))

    def __call__(self, s, rows=slice(None)):
        """f at s, (k,) or (m, k), for the samples `rows` (m of them); shape (m, k)."""
        s = np.atleast_2d(s)[:, :, None]
        u, slope = self.u[rows, None], self.u_slope[rows, None]
        u_r = u[:, :, self.r] + slope * s[:, :, 0]
        mean = self.mean[rows, None]
        S = expit(self.A_r[rows, None] + self.A_r_slope[rows, None] * s - self.L[rows, None])
        f = (mean + S * (u_r[:, :, None] - mean)).sum(axis=2)
        A = self.A_q[rows, None] + self.A_q_slope[rows, None] * s
        A[:, :, self.r] += self.A_rr_curve[rows, None] * s[:, :, 0]**2
        E = np.exp(A - A.max(axis=2, keepdims=True))
        top = np.einsum("mki,mi->mk", E, u[:, 0]) + E[:, :, self.r] * slope * s[:, :, 0]
        return f + top / E.sum(axis=2)


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
        # the bracket is 1e-6 wide: a chord finds the zero to the square of that
        f_a, f_b = (f(rows, end[:, None])[:, 0] for end in (a, b))
        a = a - (b - a) * f_a / (f_b - f_a)
    # in logs: far out in the tail both are tiny, their ratio is not
    tail, tail_zero = np.exp(log_ndtr(-grid) - log_ndtr(-grid[0])), np.exp(log_ndtr(-a) - log_ndtr(-grid[0]))
    mass = (start & end) @ (tail[:-1] - tail[1:])
    np.add.at(mass, rows, np.where(left, tail[cells] - tail_zero, tail_zero - tail[cells + 1]))
    return mass


def sampled_error(task, predict, n, rng):
    """Share of n samples on which predict(X) (n,) is wrong, as (value, standard error), for any law."""
    X, y = task.sample(integer("n", n), rng)
    return wrong_share(y * predict(X))


def wrong_share(t):
    """Share of the margins t = y f (n,) that are wrong, as (value, standard error).

    The standard error is that of (k + 1)/(n + 2) for k wrong ones, so that it does not vanish with k.
    """
    n, k = len(t), np.count_nonzero(~(t > 0))
    p = (k + 1) / (n + 2)
    return k / n, float(np.sqrt(p * (1 - p) / n))


def relevant_attention(task, W, n, rng):
    """Mean over n samples and all queries j of S[r, j], as (value, standard error); W (d+D, d+D)."""
    W = real_array("W", W, (task.d + task.D, task.d + task.D))
    X, _ = task.sample(integer("n", n, 2), rng)
    S = _attention(_scores(W, X, task.problem.positions))[:, task.relevant].mean(axis=1)
    return float(S.mean()), float(S.std(ddof=1) / np.sqrt(n))
