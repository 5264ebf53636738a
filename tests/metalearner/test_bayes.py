"""The Bayes rule under flipped labels: against integrals over the sphere, all flips against a sample, and no rule better."""

import numpy as np
import pytest
from scipy.integrate import quad

from gsref.metalearner.bayes import FLIPS_MOST, log_mean, log_odds, optimal_accuracy, thin
from gsref.metalearner.population import Order, error_rate
from gsref.metalearner.problem import MetaProblem


def drawn(problem, M, seed):
    rng = np.random.default_rng(seed)
    mu = problem.sample_means(1, rng)
    X, labels = problem.sample_context(mu, M, rng)
    return X[0], labels[0], rng.choice([-1.0, 1.0]) * mu[0] + rng.standard_normal(problem.d)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 50, 400])
def test_mean_over_the_sphere(k):
    z = np.array([0.0, 1e-5, 0.3, 5.0, 60.0, 900.0])
    found = log_mean(z, k)
    if k == 1:
        wanted = np.logaddexp(z, -z) - np.log(2.0)
    elif k == 3:
        wanted = np.array([0.0, *(np.log((1 - np.exp(-2 * x)) / (2 * x)) + x for x in z[1:])])
    else:
        def mean(x):
            def density(angle, y):
                return np.exp(y * (np.cos(angle) - 1.0)) * np.sin(angle) ** (k - 2)
            middle = np.arccos(min(1.0, x / (k + x)))
            parts = [[quad(density, *ends, args=(y,), epsabs=0, epsrel=1e-11, limit=200)[0]
                      for ends in ((0.0, middle), (middle, np.pi))] for y in (x, 0.0)]
            return np.log(sum(parts[0]) / sum(parts[1])) + x
        wanted = np.array([mean(x) for x in z])
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-12)


@pytest.mark.derives("meta.19")
@pytest.mark.parametrize("seed", range(4))
def test_all_flips_against_the_integral_over_directions(seed):
    problem = MetaProblem(4, 2, 1.5, 0.2)
    X, labels, x = drawn(problem, 6, seed)

    def posterior(angle, y):
        mu = 1.5 * np.array([np.cos(angle), np.sin(angle), 0.0, 0.0])
        t = labels * (X @ mu)
        return np.exp(np.logaddexp(np.log(0.8) + t, np.log(0.2) - t).sum() + y * (x @ mu))
    plus, minus = (quad(posterior, 0.0, 2.0 * np.pi, args=(y,), epsrel=1e-12, limit=400)[0] for y in (1.0, -1.0))
    found = log_odds(problem, X, labels, x)
    assert found.value == pytest.approx(np.log(plus / minus), rel=1e-9) and (found.error, found.rule) == (0.0, "flips")


@pytest.mark.derives("meta.19")
def test_rotations_of_the_subspace_change_nothing_and_the_rest_is_ignored():
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    problem, turned = MetaProblem(5, 3, 1.0, 0.1), MetaProblem(5, 3, 1.0, 0.1, np.ascontiguousarray(Q[:, :3]))
    X, labels, x = drawn(problem, 7, 1)
    value = log_odds(problem, X, labels, x).value
    assert log_odds(turned, X @ Q.T, labels, x @ Q.T).value == pytest.approx(value, rel=1e-10)
    assert log_odds(problem, X + np.array([0, 0, 0, 9.0, -3.0]), labels, x).value == pytest.approx(value, rel=1e-12)


def test_without_flips_the_sign_is_that_of_the_projected_mle():
    problem = MetaProblem(6, 3, 1.5)
    for seed in range(20):
        X, labels, x = drawn(problem, 30, seed)
        assert np.sign(log_odds(problem, X, labels, x).value) == np.sign((labels @ X)[:3] @ x[:3])


@pytest.mark.derives("meta.20")
@pytest.mark.parametrize("d, k, R, M, rho, n", [(10, 5, 1.5, 10, 0.2, 40), (8, 1, 1.0, 12, 0.3, 20), (30, 30, 1.0, 12, 0.1, 60),
                                                (20, 2, 2.0, 12, 0.45, 50)])
def test_a_sample_of_flips_against_all(d, k, R, M, rho, n):
    problem, rng = MetaProblem(d, k, R, rho), np.random.default_rng(0)
    z = []
    for seed in range(15):
        X, labels, x = drawn(problem, M, seed)
        found, exact = log_odds(problem, X, labels, x, "sequence", rng, n), log_odds(problem, X, labels, x, "flips")
        assert found.error > 0.0
        z.append((found.value - exact.value) / found.error)
    # Student's law with 7 degrees of freedom: |z| beyond 12 with odds 6e-6; the mean of 15 squares is 1.4 +- 0.9
    assert np.abs(z).max() < 12.0 and 0.1 < np.mean(np.square(z)) < 8.0


def test_a_sample_that_may_hold_all_flips_is_exact():
    problem = MetaProblem(6, 4, 1.0, 0.25)
    X, labels, x = drawn(problem, 6, 0)
    found = log_odds(problem, X, labels, x, "sequence", np.random.default_rng(0), 64)
    assert found.value == pytest.approx(log_odds(problem, X, labels, x).value, rel=1e-11) and found.error < 1e-10


@pytest.mark.derives("meta.20")
def test_thinning_is_right_on_average_and_keeps_what_is_large():
    rng = np.random.default_rng(0)
    log_w = np.log(rng.exponential(size=40) ** 4) + 700.0
    total = np.zeros(40)
    for _ in range(1500):
        kept, new = thin(log_w, 10, rng)
        assert 9 <= len(kept) <= 11 and len(set(kept)) == len(kept)
        total[kept] += np.exp(new - 700.0)
    w = np.exp(log_w - 700.0)
    large = w >= np.sort(w)[-3]                                           # certainly kept, with their own weights
    np.testing.assert_allclose(total[large] / 1500, w[large], rtol=1e-10)
    threshold = np.exp(new - 700.0).min()
    error = np.sqrt(np.maximum(w * (threshold - w), 0.0) / 1500)          # weight 1/c with probability c w
    assert (np.abs(total / 1500 - w) < 4.5 * error + 1e-10 * w).all()
    kept, new = thin(np.zeros(5), 5, rng)
    assert kept.tolist() == [0, 1, 2, 3, 4] and not new.any()


def test_no_linear_rule_does_better_and_the_accuracy_is_that_of_the_posterior():
    problem = MetaProblem(12, 12, 2.0, 0.25)
    found = optimal_accuracy(problem, 8, 400, np.random.default_rng(0), Order(1.0, 1.0))
    full = 1.0 - error_rate(problem, Order(1.0, 1.0), 8)[0]
    assert abs(found.accuracy - found.gain - full) < 4.5 * np.hypot(found.error, found.gain_error)
    assert found.gain > 4.0 * found.gain_error > 0.0 and found.quadrature == 0.0
    rng, right = np.random.default_rng(1), []
    for mu in problem.sample_means(1500, rng):                            # the rule itself, on drawn labels of queries
        X, labels = problem.sample_context(mu[None], 8, rng)
        y = rng.choice([-1.0, 1.0])
        right.append(y * log_odds(problem, X[0], labels[0], y * mu + rng.standard_normal(12)).value > 0.0)
    assert abs(np.mean(right) - found.accuracy) < 4.5 * np.hypot(np.std(right) / np.sqrt(1500), found.error)


@pytest.mark.parametrize("change, error, message", [
    ({"X": np.ones((3, 4))}, ValueError, r"X: got shape \(3, 4\), expected \(M, 3\)"),
    ({"labels": np.array([1.0, 0.0])}, ValueError, "labels: got 0 at index 1"),
    ({"x": np.ones(2)}, ValueError, "x: got shape"), ({"rule": "all"}, ValueError, "rule: got 'all', expected one of auto, flips"),
    ({"X": np.ones((FLIPS_MOST + 1, 3)), "labels": np.ones(FLIPS_MOST + 1), "rule": "flips"}, ValueError, "X: got 15 examples"),
    ({"rule": "sequence"}, TypeError, "rng: got NoneType"), ({"problem": 3}, TypeError, "problem: got int"),
    ({"rule": "sequence", "problem": MetaProblem(3, 2, 1.0)}, ValueError, "rule: got 'sequence', expected 'flips'")])
def test_bad_arguments(change, error, message):
    given = {"problem": MetaProblem(3, 2, 1.0, 0.1), "X": np.ones((2, 3)), "labels": np.ones(2), "x": np.ones(3)} | change
    with pytest.raises(error, match=message):
        log_odds(**given)
