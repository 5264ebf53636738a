"""The SVM against enumeration, the hand, and its conditions; the optimal rule against the posterior itself."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from gsref.metalearner.baselines import FULL_MLE, PROJECTED_MLE, optimal_rule, svm
from gsref.metalearner.population import Order, error_rate
from gsref.metalearner.problem import MetaProblem


def context(M, d, R, seed):
    problem = MetaProblem(d, d, R)
    rng = np.random.default_rng(seed)
    mu = problem.sample_means(1, rng)
    X, y = problem.sample_context(mu, M, rng)
    return X[0], y[0], mu[0]


def enumerated(X, y, intercept):
    """The SVM by trying every support: the admissible one."""
    M, d = X.shape
    for size in range(1, M + 1):
        for on in itertools.combinations(range(M), size):
            F = y[list(on), None] * X[list(on)]
            if intercept:
                system = np.block([[F @ F.T, y[list(on), None]], [y[None, list(on)], np.zeros((1, 1))]])
                found, *_ = np.linalg.lstsq(system, np.append(np.ones(size), 0.0), rcond=None)
                if np.abs(system @ found - np.append(np.ones(size), 0.0)).max() > 1e-9:
                    continue
                alpha, b = found[:-1], found[-1]
            else:
                alpha, b = np.linalg.solve(F @ F.T, np.ones(size)), 0.0
            w = alpha @ F
            if (alpha > -1e-10).all() and (y * (X @ w + b) >= 1.0 - 1e-8).all():
                return w, b
    raise AssertionError("no admissible support")


@pytest.mark.derives("meta.14")
@given(M=st.integers(2, 6), extra=st.integers(0, 5), R=st.floats(0.1, 5.0), seed=st.integers(0, 10**6), intercept=st.booleans())
def test_svm_is_the_admissible_support(M, extra, R, seed, intercept):
    X, y, _ = context(M, M + extra, R, seed)
    if intercept and (y == y[0]).all():
        return
    w, b = enumerated(X, y, intercept)
    rule = svm(X, y, intercept)
    np.testing.assert_allclose(rule.w, w, atol=1e-6 * np.linalg.norm(w))
    assert rule.b == pytest.approx(b, abs=1e-6 * (1.0 + abs(b))) and rule.residual < 1e-9


@pytest.mark.derives("meta.14")
def test_svm_by_hand():
    # one point of each class: the plane halfway between
    rule = svm(np.array([[3.0, 1.0], [1.0, 1.0]]), np.array([1.0, -1.0]))
    np.testing.assert_allclose(rule.w, [1.0, 0.0], atol=1e-12)
    assert rule.b == pytest.approx(-2.0)
    # without intercept the classes are on both sides of the origin only after a turn
    rule = svm(np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([1.0, -1.0]), intercept=False)
    np.testing.assert_allclose(rule.w, [-0.5, 0.5], atol=1e-12)


@pytest.mark.parametrize("M", [10, 60])
def test_svm_meets_its_conditions_at_size(M):
    for seed in range(5):
        X, y, _ = context(M, 100, 2.0, seed)
        for intercept in (True, False):
            rule = svm(X, y, intercept)
            t = y * (X @ rule.w + rule.b)
            assert t.min() > 1.0 - 1e-9 and rule.residual < 1e-9
            alpha = np.linalg.lstsq((y[:, None] * X).T, rule.w, rcond=None)[0]
            assert alpha.min() > -1e-9 * alpha.max() and np.abs(alpha * (t - 1.0)).max() < 1e-8 * alpha.max()
            assert abs(alpha @ y) < 1e-8 * alpha.sum() or not intercept


def test_one_class_answers_with_it():
    X, _, mu = context(4, 6, 2.0, 0)
    for label in (1.0, -1.0):
        rule = svm(X, np.full(4, label))
        assert not rule.w.any() and rule.b == label and rule.accuracy(mu) == 0.5
    assert svm(X, np.ones(4), intercept=False).w.any()


def test_accuracy_of_a_rule_against_sampled_queries():
    X, y, mu = context(8, 12, 1.5, 3)
    rule = svm(X, y)
    rng, n = np.random.default_rng(0), 200_000
    labels = rng.choice([-1.0, 1.0], n)
    right = labels * (rng.standard_normal((n, 12)) @ rule.w + labels * (mu @ rule.w) + rule.b) > 0
    p = rule.accuracy(mu)
    assert abs(right.mean() - p) < norm.isf(1e-6) * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("X, y, error, message", [
    (np.ones((3, 2)), np.array([1.0, -1.0, 1.0]), ValueError, "X: got 3 examples of dimension 2, expected at most 2"),
    (np.ones((2, 2)), np.array([1.0, 0.0]), ValueError, "y: got 0 at index 1"),
    (np.full((2, 2), np.inf), np.array([1.0, -1.0]), ValueError, "X: got inf"),
    (np.ones((2, 2)) * 1j, np.array([1.0, -1.0]), TypeError, "X: got dtype complex128"),
])
def test_bad_context(X, y, error, message):
    with pytest.raises(error, match=message):
        svm(X, y)


def posterior_rule(context_sum, x, R):
    """The Bayes rule in a plane by the integral over directions of mu: the log odds' sign."""
    def weight(angle, y):
        return np.exp(R * (np.cos(angle) * (context_sum + y * x)[0] + np.sin(angle) * (context_sum + y * x)[1]))
    plus, minus = (quad(weight, 0.0, 2.0 * np.pi, args=(y,))[0] for y in (1.0, -1.0))
    return np.sign(plus - minus)


@pytest.mark.derives("meta.10")
def test_bayes_rule_of_a_plane_is_the_projected_mle():
    problem, M = MetaProblem(4, 2, 1.0), 5
    rng = np.random.default_rng(0)
    for _ in range(100):
        mu = problem.sample_means(1, rng)
        X, y = problem.sample_context(mu, M, rng)
        query = rng.standard_normal(4)
        mean = y[0] @ X[0] / M
        order = optimal_rule(problem)
        assert posterior_rule(M * mean[:2], query[:2], problem.R) == np.sign(mean @ order.to_matrix(problem) @ query)


@pytest.mark.derives("meta.10")
def test_no_other_order_does_better():
    problem = MetaProblem(30, 5, 1.5)
    for M in (1, 4, 20):
        best = error_rate(problem, PROJECTED_MLE, M)[0]
        assert all(error_rate(problem, Order(1.0, q), M)[0] > best for q in (-0.5, -0.05, 0.05, 0.5, 1.0))
    # with the subspace unknown, k = d in effect: the full MLE has the error rate of a projected MLE on all of R^d
    assert error_rate(problem, FULL_MLE, 4)[0] == pytest.approx(error_rate(MetaProblem(30, 30, 1.5), PROJECTED_MLE, 4)[0], rel=1e-10)


def test_optimal_rule_refuses_flipped_labels():
    with pytest.raises(ValueError, match="label_noise: got 0.1, expected 0"):
        optimal_rule(MetaProblem(3, 2, 1.0, 0.1))
    with pytest.raises(TypeError, match="problem: got int"):
        optimal_rule(3)
