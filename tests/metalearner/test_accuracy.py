"""Accuracy given a context is a normal probability: against sampled queries, and curves against exact values."""

import numpy as np
import pytest
from scipy.stats import norm

from gsref.metalearner.accuracy import Contexts, accuracy_given_context, linear_accuracy
from gsref.metalearner.population import Order, error_rate
from gsref.metalearner.problem import MetaProblem


def rotation(d, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


@pytest.mark.derives("meta.11")
def test_against_sampled_queries():
    rng, n = np.random.default_rng(0), 200_000
    W, muhat, mu = rng.standard_normal((4, 4)), rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    for p, m, mean in zip(accuracy_given_context(W, muhat, mu), muhat, mu):
        y = rng.choice([-1.0, 1.0], n)
        x = y[:, None] * mean + rng.standard_normal((n, 4))
        right = (np.sign(x @ W.T @ m) == y).mean()
        assert abs(right - p) < norm.isf(1e-6) * np.sqrt(p * (1 - p) / n)
        assert abs(right - accuracy_given_context(W.T, m[None], mean[None])[0]) > 0.01


def test_no_rule_is_right_half_of_the_time():
    assert accuracy_given_context(np.zeros((2, 2)), np.ones((1, 2)), np.ones((1, 2))).tolist() == [0.5]
    assert linear_accuracy(np.zeros(2), 1.0, np.ones(2)) == 0.5
    assert linear_accuracy(np.array([1.0, 0.0]), 0.0, np.array([30.0, 0.0])) == 1.0


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("order", [Order(1.0, 0.0), Order(1.0, 1.0), Order(0.5, -0.2)])
def test_curves_of_symmetric_w_are_the_population_values(order, noise):
    problem = MetaProblem(12, 3, 1.5, noise, np.ascontiguousarray(rotation(12, 1)[:, :3]))
    curve = Contexts(problem, 20_000, np.random.default_rng(2)).curve(order.to_matrix(problem), (1, 4, 30))
    for M, mean, error in zip(curve.M, curve.mean, curve.error):
        assert abs(mean - (1.0 - error_rate(problem, order, M)[0])) < 4.5 * error
    assert abs(curve.mean[1] - (1.0 - error_rate(problem, order, 6)[0])) > 4.5 * curve.error[1]


def test_curve_is_the_formula_on_the_context_means():
    problem, rng = MetaProblem(5, 2, 1.0), np.random.default_rng(0)
    contexts, W = Contexts(problem, 50, rng), rng.standard_normal((5, 5))
    for M in (1, 2.5, 100):
        wanted = accuracy_given_context(W, contexts.mu + contexts.g / np.sqrt(M), contexts.mu)
        np.testing.assert_allclose(contexts.curve(W, [M]).each[:, 0], wanted, rtol=1e-10)


def test_rotating_the_subspace_changes_nothing():
    plain, Q, W = MetaProblem(5, 2, 1.0), rotation(5, 3), np.random.default_rng(0).standard_normal((5, 5))
    turned = MetaProblem(5, 2, 1.0, basis=np.ascontiguousarray(Q[:, :2]))
    one, two = Contexts(plain, 100, np.random.default_rng(1)), Contexts(turned, 100, np.random.default_rng(1))
    two.g = one.g @ Q.T                                              # the same contexts, turned
    np.testing.assert_allclose(two.mu, one.mu @ Q.T, atol=1e-14)
    np.testing.assert_allclose(two.curve(Q @ W @ Q.T, [3]).each, one.curve(W, [3]).each, rtol=1e-10)


def test_same_contexts_for_every_w_and_length():
    problem = MetaProblem(5, 2, 1.0, 0.3)
    contexts = Contexts(problem, 30, np.random.default_rng(0))
    one, two = (contexts.curve(np.eye(5), [4, 8]).each for _ in range(2))
    assert np.array_equal(one, two) and np.array_equal(contexts.curve(np.eye(5), [8]).each[:, 0], one[:, 1])
    assert len(contexts.without([0, 3]).mu) == 28 and len(contexts.mu) == 30


@pytest.mark.parametrize("call, error, message", [
    (lambda c: c.curve(np.eye(3), [1]), ValueError, r"W: got shape \(3, 3\), expected \(4, 4\)"),
    (lambda c: c.curve(np.eye(4), [0]), ValueError, "M: got 0.0"),
    (lambda c: Contexts(c.problem, 1, np.random.default_rng(0)), ValueError, "T: got 1, expected an integer >= 2"),
    (lambda c: Contexts(c.problem, 5, 7), TypeError, "rng: got int"),
    (lambda c: Contexts(c.problem, 5, np.random.default_rng(0), memory=10), MemoryError, "5 contexts of dimension 4: needs"),
    (lambda c: accuracy_given_context(np.eye(2), np.ones((3, 4)), np.ones((3, 4))), ValueError, "W: got shape"),
    (lambda c: accuracy_given_context(np.eye(4), np.ones((3, 4)), np.full((3, 4), np.nan)), ValueError, "mu: got nan"),
])
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(Contexts(MetaProblem(4, 2, 1.0), 5, np.random.default_rng(0)))
