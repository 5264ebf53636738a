"""What is the optimal rule of a learner that knows the law and the subspace, when labels of the context are flipped?

The posterior odds of the query's label, as a sum over all flips (exact), or over a sample of them that grows with the
context (with a standard error).  Without flips the rule is the projected MLE, see `baselines`.

Shapes: X (M, d) the examples of a context, labels (M,), x (d,) the query; sums (n, k) of examples, each flipped or not.
Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, ive, logsumexp

from gsref.arguments import choice, instance, integer, labels as labels_of, real_array
from gsref.metalearner.population import Order
from gsref.metalearner.problem import MetaProblem

FLIPS_MOST = 14                                # of so many examples all 2^M flips are summed
TERMS = 400                                    # of the series of `log_mean`, where the Bessel function underflows
REPEATS = 8                                    # independent passes, whose scatter is the error
ROUNDING = 1e-14                               # of a logarithm of the evidence, relative


@dataclass(frozen=True)
class Odds:
    """log P(y = +1 | context, x) - log P(y = -1 | context, x), its standard error (0: exact to rounding), the rule's name."""

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


def log_odds(problem, X, labels, x, rule="auto", rng=None, n=500):
    """The posterior log odds of the query's label: an `Odds`  [meta.19].

    `rule`: "flips" sums over all 2^M flips of the context's labels (M <= 14), "sequence" over n of them at a time, thinned
    with `rng`; "auto" takes the first where it can.
    Raises TypeError or ValueError, naming the argument.
    """
    instance("problem", problem, MetaProblem)
    X = real_array("X", X, ("M", problem.d))
    labels, x = labels_of("labels", labels, len(X)), real_array("x", x, (problem.d,))
    a, b = problem.coordinates(labels[:, None] * X), problem.coordinates(x)
    if choice("rule", rule, ("auto", "flips", "sequence")) == "auto":
        rule = "flips" if len(X) <= FLIPS_MOST or problem.label_noise == 0.0 else "sequence"
    if rule == "flips":
        if len(X) > FLIPS_MOST and problem.label_noise > 0.0:
            raise ValueError(f"X: got {len(X)} examples, expected at most {FLIPS_MOST} to sum over all flips")
        return Odds(_over_flips(problem, a, b), 0.0, rule)
    if problem.label_noise == 0.0:
        raise ValueError("rule: got 'sequence', expected 'flips' or 'auto' without flipped labels")
    return Odds(*_in_sequence(problem, a, b, instance("rng", rng, np.random.Generator), integer("n", n, 2)), rule)


def _over_flips(problem, a, b):
    """The log odds from all 2^M sums of the examples, a (M, k) the examples times their labels, b (k,) the query."""
    if problem.label_noise == 0.0:
        sums, log_v = a.sum(axis=0)[None], np.zeros(1)
    else:
        sums, log_v = np.zeros((1, problem.k)), np.zeros(1)
        for example in a:
            sums, log_v = _with_flips(problem, sums, log_v, example)
    plus, minus = _log_evidence(problem, sums, log_v, b)
    return plus - minus


def _with_flips(problem, sums, log_v, example):
    """Every sum with the example as labelled and flipped: twice as many sums, and the logarithms of their weights."""
    log_v = np.concatenate([log_v + np.log1p(-problem.label_noise), log_v + np.log(problem.label_noise)])
    return np.concatenate([sums + example, sums - example]), log_v


def _log_evidence(problem, sums, log_v, b):
    """log of sum_f v_f I(R |S_f + y b|) for y = +1 and -1."""
    return [float(logsumexp(log_v + log_mean(problem.R * np.linalg.norm(sums + y * b, axis=1), problem.k)))
            for y in (1.0, -1.0)]


def thin(log_w, n, rng):
    """Indices of at most n of the weights w, and the logarithms of their new weights, each right on average.

    What is above a threshold 1/c stays as it is; of the rest each stays with probability c w, and then weighs 1/c
    (Fearnhead and Clifford's resampling). c is such that n are expected.
    """
    w = np.exp(log_w - logsumexp(log_w))
    if len(w) <= n:
        return np.arange(len(w)), log_w
    down = np.sort(w)[::-1]
    rest = np.append(np.cumsum(down[::-1])[::-1][1:], 0.0)                          # the sum below each
    kept = int(np.argmax(down[:n] * (n - np.arange(n)) <= down[:n] + rest[:n]))     # so many are above the threshold
    threshold = (down[kept] + rest[kept]) / (n - kept)
    large = w > threshold
    places = np.flatnonzero(~large)
    marks = np.cumsum(w[places]) / threshold
    chosen = places[np.diff(np.floor(marks + rng.random()), prepend=0.0) > 0.0]
    new = np.concatenate([log_w[large], np.full(len(chosen), np.log(threshold) + logsumexp(log_w))])
    return np.concatenate([np.flatnonzero(large), chosen]), new


def _in_sequence(problem, a, b, rng, n):
    """The log odds and their standard error, from REPEATS independent passes over the examples  [meta.20]."""
    evidence = np.empty((REPEATS, 2))
    for r in range(REPEATS):
        sums, log_v = np.zeros((1, problem.k)), np.zeros(1)
        for example in a[rng.permutation(len(a))]:
            sums, log_v = _with_flips(problem, sums, log_v, example)
            log_mu = log_mean(problem.R * np.linalg.norm(sums, axis=1), problem.k)
            kept, log_w = thin(log_v + log_mu, n, rng)
            sums, log_v = sums[kept], log_w - log_mu[kept]
        evidence[r] = _log_evidence(problem, sums, log_v, b)
    total = logsumexp(evidence, axis=0)
    change = np.exp(evidence - total) @ np.array([1.0, -1.0])                       # relative, plus against minus
    error = np.sqrt(REPEATS / (REPEATS - 1.0) * (change ** 2).sum()) + ROUNDING * np.abs(evidence).max()
    return float(total[0] - total[1]), float(error)


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


def optimal_accuracy(problem, M, T, rng, order, n=500):
    """The Bayes rule's accuracy after M examples against that of sign(muhat . W x), W of `order`: `OptimalAccuracy`.

    Given context and query a rule that answers `a` is right with probability expit(a log odds): T contexts with a query
    each, and no label of a query is drawn.  Raises TypeError or ValueError.
    """
    M, T = integer("M", M), integer("T", T, 2)
    W = instance("order", order, Order).to_matrix(instance("problem", problem, MetaProblem))
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
