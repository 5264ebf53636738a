"""The SVM against enumeration, the hand, and its conditions; a batch against one at a time."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

from gsref.metalearner.problem import MetaProblem
from gsref.metalearner.svm import MET, least_squares, on_support, solve_duals, svm, svms, violation


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


def duals(T, M, d, R, seed, intercept):
    """Q (T, M, M) and y (T, M) of contexts of two classes."""
    problem, rng = MetaProblem(d, d, R), np.random.default_rng(seed)
    X, y = problem.sample_context(problem.sample_means(4 * T, rng), M, rng)
    two = np.flatnonzero((y != y[:, :1]).any(axis=1) | (not intercept))[:T]
    F = y[two, :, None] * X[two]
    return F @ F.transpose(0, 2, 1), y[two]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("M, d", [(3, 3), (12, 12), (30, 40), (60, 100)])
def test_exchanges_and_least_squares_find_the_same_solution(M, d, intercept):
    Q, y = duals(20, M, d, 1.0, 0, intercept)
    alpha, b, residual = solve_duals(Q, y, intercept)
    assert residual.max() < MET
    for i in range(len(y)):
        other, b_other = least_squares(Q[i], y[i], intercept)
        np.testing.assert_allclose(alpha[i], other, rtol=1e-6, atol=1e-9 * other.max())
        assert b[i] == pytest.approx(b_other, rel=1e-6, abs=1e-9)


def test_a_batch_is_its_contexts_one_at_a_time():
    X, y = np.random.default_rng(0).standard_normal((7, 5, 9)), np.ones((7, 5))
    y[1:, 0], y[3, :2] = -1.0, -1.0                                      # the first context has one class
    for intercept in (True, False):
        rules = svms(X, y, intercept)
        for i in range(7):
            rule = svm(X[i], y[i], intercept)
            np.testing.assert_allclose(rules.w[i], rule.w, atol=1e-12)
            assert rules.b[i] == pytest.approx(rule.b, abs=1e-12)


def test_what_the_exchanges_leave_goes_to_least_squares(monkeypatch):
    Q, y = duals(10, 12, 12, 1.0, 1, True)
    wanted = solve_duals(Q, y, True)
    monkeypatch.setattr("gsref.metalearner.svm.ROUNDS", 1)
    found = solve_duals(Q, y, True)
    assert (violation(Q, y, *on_support(Q, y, np.ones_like(y) > 0, True), True) > MET).any()       # one round is not enough
    np.testing.assert_allclose(found[0], wanted[0], atol=1e-9 * wanted[0].max())


@pytest.mark.parametrize("change", [
    lambda Q, y, alpha, b: (alpha * 0.999, b), lambda Q, y, alpha, b: (alpha, b + 1e-3),
    lambda Q, y, alpha, b: (np.linalg.solve(Q, np.ones_like(alpha)[..., None])[..., 0], 0.0 * b),
    lambda Q, y, alpha, b: (alpha * np.where(y > 0, 1.001, 1.0), b)])
def test_violation_sees_what_is_not_the_solution(change):
    Q, y = duals(5, 8, 10, 1.0, 2, True)
    alpha, b, residual = solve_duals(Q, y, True)
    assert residual.max() < 1e-12 and violation(Q, y, *change(Q, y, alpha, b), True).min() > 1e-5


def test_a_context_that_nothing_solves_is_an_error(monkeypatch):
    monkeypatch.setattr("gsref.metalearner.svm.ROUNDS", 0)
    monkeypatch.setattr("gsref.metalearner.svm.least_squares", lambda Q, y, intercept: (np.ones(len(y)), 0.0))
    with pytest.raises(ArithmeticError, match="svm: a condition stays violated by"):
        svm(*context(5, 8, 1.0, 0)[:2])
