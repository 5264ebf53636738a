"""What is the optimal rule of a learner that knows the law and the subspace, when labels of the context are flipped?

The posterior odds of the query's label, as a sum over all flips (exact), or over points of the sphere drawn near the
posterior (with a standard error).  Without flips the rule is the projected MLE, see `baselines`.

Shapes: X (M, d) the examples of a context, labels (M,), x (d,) the query; u (n, k) points of the unit sphere.
Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import expit, gammaln, ive, logsumexp
from scipy.stats import vonmises_fisher

from gsref.arguments import choice, instance, integer, labels as labels_of, real_array
from gsref.metalearner.problem import MetaProblem

FLIPS_MOST = 14                                # of so many examples all 2^M flips are summed
TERMS = 400                                    # of the series of `log_mean`, where the Bessel function underflows
WIDER = 0.9                                    # the proposal's concentration as a share of the posterior's; empirical


@dataclass(frozen=True)
class Odds:
    """log P(y = +1 | context, x) - log P(y = -1 | context, x), its standard error (0: exact), and the rule's name."""

    value: float
    error: float
    rule: str


def log_mean(z, k):
    """log E exp(z u_1), u uniform on the unit sphere of R^k: Gamma(k/2) (2/z)^(k/2-1) I_{k/2-1}(z); z >= 0, any shape."""
    z, nu = np.asarray(z, dtype=float), k / 2.0 - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = ive(nu, z)
        found = gammaln(k / 2.0) - nu * np.log(z / 2.0) + np.log(scaled) + z
    small = ~(scaled > 1e-280) | (z < 1e-3)    # sum over j of (z^2/4)^j / (j! (k/2)_j): all terms positive
    if small.any():
        j = np.arange(TERMS)
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = np.where(j > 0, 2.0 * j * np.log(z[small][:, None] / 2.0), 0.0)
        found = np.array(found)
        found[small] = logsumexp(powers - gammaln(j + 1.0) - gammaln(k / 2.0 + j) + gammaln(k / 2.0), axis=1)
    return found


def log_odds(problem, X, labels, x, rule="auto", rng=None, n=2000):
    """The posterior log odds of the query's label: an `Odds`  [meta.19].

    `rule`: "flips" sums over all 2^M flips of the context's labels (M <= 14), "sphere" over n points drawn near the
    posterior with `rng`; "auto" takes the first where it can.
    Raises TypeError or ValueError, naming the argument.
    """
    instance("problem", problem, MetaProblem)
    X = real_array("X", X, ("M", problem.d))
    labels, x = labels_of("labels", labels, len(X)), real_array("x", x, (problem.d,))
    a, b = problem.coordinates(labels[:, None] * X), problem.coordinates(x)
    if choice("rule", rule, ("auto", "flips", "sphere")) == "auto":
        rule = "flips" if len(X) <= FLIPS_MOST else "sphere"
    if rule == "flips":
        if len(X) > FLIPS_MOST:
            raise ValueError(f"X: got {len(X)} examples, expected at most {FLIPS_MOST} to sum over all flips")
        return Odds(_over_flips(problem, a, b), 0.0, rule)
    n = integer("n", n, 2)
    return Odds(*_over_sphere(problem, a, b, instance("rng", rng, np.random.Generator), n), rule)


def _over_flips(problem, a, b):
    M, rho = len(a), problem.label_noise
    f = np.array(list(product((1.0, -1.0), repeat=M if rho > 0.0 else 0))).reshape(-1, M) if rho > 0.0 else np.ones((1, M))
    wrong = (f < 0).sum(axis=1)
    log_weight = wrong * np.log(rho) + (M - wrong) * np.log1p(-rho) if rho > 0.0 else np.zeros(1)
    plus, minus = (logsumexp(log_weight + log_mean(problem.R * np.linalg.norm(f @ a + y * b, axis=1), problem.k))
                   for y in (1.0, -1.0))
    return float(plus - minus)


def posterior_direction(problem, a, most=200):
    """(m, kappa): the von Mises-Fisher law exp(kappa m . u) that is nearest to the posterior at its mode.

    Each flip is replaced by its mean given mu, sum_i tanh(a_i . mu + c) a_i with tanh(c) = 1 - 2 rho, until mu stays.
    Without flips this is the posterior itself.
    """
    rho, R = problem.label_noise, problem.R
    c = np.inf if rho == 0.0 else 0.5 * np.log((1.0 - rho) / rho)
    total = (1.0 - 2.0 * rho) * a.sum(axis=0)
    for _ in range(most):
        size = np.linalg.norm(total)
        if size == 0.0:
            break
        before, total = total, np.tanh(a @ (R * total / size) + c) @ a
        if np.linalg.norm(total - before) <= 1e-6 * size:
            break
    size = np.linalg.norm(total)
    return (total / size, R * size) if size > 0.0 else (np.eye(problem.k)[0], 0.0)


def _over_sphere(problem, a, b, rng, n):
    """Self-normalised importance sampling  [meta.20]: the log odds and their standard error (delta method)."""
    k, R, rho = problem.k, problem.R, problem.label_noise
    m, kappa = posterior_direction(problem, a)
    kappa *= WIDER if rho > 0.0 else 1.0
    if k == 1:
        u, log_proposal = np.array([[1.0], [-1.0]]), np.zeros(2)                   # the whole sphere: exact
    elif kappa > 0.0:
        u = vonmises_fisher(m, kappa, seed=rng).rvs(n).reshape(n, k)
        log_proposal = kappa * (u @ m) - log_mean(np.array([kappa]), k)[0]
    else:
        u = rng.standard_normal((n, k))
        u, log_proposal = u / np.linalg.norm(u, axis=1, keepdims=True), np.zeros(n)
    t = R * (u @ a.T)                                                              # (n, M)
    log_w = np.logaddexp(np.log1p(-rho) + t, (np.log(rho) if rho > 0.0 else -np.inf) - t).sum(axis=1) - log_proposal
    by_query = R * (u @ b)
    plus, minus = log_w + by_query, log_w - by_query
    log_plus, log_minus = logsumexp(plus), logsumexp(minus)
    change = np.exp(plus - log_plus) - np.exp(minus - log_minus)
    error = 0.0 if k == 1 else float(np.sqrt(len(u) / (len(u) - 1.0) * (change ** 2).sum()))
    return float(log_plus - log_minus), error


@dataclass(frozen=True)
class OptimalAccuracy:
    """Accuracy of the Bayes rule and of a linear rule on the same tasks, and by how much the first is better (paired).

    `error`, `gain_error`: standard errors over tasks; `quadrature`: what errors of the log odds can add to `accuracy`.
    """

    accuracy: float
    error: float
    gain: float
    gain_error: float
    quadrature: float


def optimal_accuracy(problem, M, T, rng, order, n=2000):
    """The Bayes rule's accuracy after M examples against that of sign(muhat . W x), W of `order`: `OptimalAccuracy`.

    Given context and query a rule that answers `a` is right with probability expit(a log odds): T contexts with a query
    each, and no label of a query is drawn.  Raises TypeError or ValueError.
    """
    M, T, W = integer("M", M), integer("T", T, 2), order.to_matrix(instance("problem", problem, MetaProblem))
    best, gain, off = np.empty((3, T))
    for i, mu in enumerate(problem.sample_means(T, rng)):
        X, shown = (array[0] for array in problem.sample_context(mu[None], M, rng))
        x = rng.choice([-1.0, 1.0]) * mu + rng.standard_normal(problem.d)
        odds = log_odds(problem, X, shown, x, rng=rng, n=n)
        best[i] = expit(abs(odds.value))
        gain[i] = best[i] - expit(odds.value * np.sign(shown @ X @ W @ x))
        off[i] = odds.error * best[i] * (1.0 - best[i])
    root = np.sqrt(T)
    return OptimalAccuracy(float(best.mean()), float(best.std(ddof=1) / root), float(gain.mean()),
                           float(gain.std(ddof=1) / root), float(off.mean()))
