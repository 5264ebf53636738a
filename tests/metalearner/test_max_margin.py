"""The max-margin solution by hand, by independent solvers and by its conditions; gradient descent goes there."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from gsref.metalearner.max_margin import (descend_on_kernel, direction_gap, full_kernel, max_margin, nonnegative_quadratic,
                                          offset)
from gsref.metalearner.problem import MetaProblem, Tasks
from gsref.metalearner.training import train


def sample(B, d, k, R, N, seed):
    return MetaProblem(d, k, R).sample_tasks(B, N, np.random.default_rng(seed))


def assert_solves(K, solution, tolerance=1e-9):
    assert max(solution.primal, solution.dual, solution.slackness, solution.gap) < tolerance
    assert (solution.alpha >= 0).all() and (K @ solution.alpha > 1.0 - tolerance).all()


@pytest.mark.derives("meta.12")
def test_by_hand():
    # features (1, 0) and (1, 2) as d = 2 tasks would give them: w = (1, 0) has both margins 1
    K = np.array([[1.0, 1.0], [1.0, 5.0]])
    solution = max_margin(K)
    np.testing.assert_allclose(solution.alpha, [1.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(solution.margins, [1.0, 1.0], atol=1e-14)
    assert solution.norm == pytest.approx(1.0) and solution.support.tolist() == [True, False]
    # orthogonal features of lengths 1 and 2: both on the support, alpha = 1/length^2
    solution = max_margin(np.diag([1.0, 4.0]))
    np.testing.assert_allclose(solution.alpha, [1.0, 0.25], rtol=1e-14)


@pytest.mark.derives("meta.12")
@given(st.integers(1, 7), st.integers(3, 6), st.integers(0, 10**6))
def test_against_every_support(B, d, seed):
    """The dual's optimum is the largest value over all supports whose solution is admissible: try them all."""
    K = full_kernel(sample(B, d, 2, 1.0, 3, seed))
    assume(np.linalg.eigvalsh(K)[0] > 1e-8 * np.trace(K))
    found = []
    for size in range(1, B + 1):
        for on in itertools.combinations(range(B), size):
            alpha = np.zeros(B)
            alpha[list(on)] = np.linalg.solve(K[np.ix_(on, on)], np.ones(size))
            if (alpha >= -1e-12).all() and (K @ alpha >= 1.0 - 1e-9).all():
                found.append(alpha)
    assert found
    solution = max_margin(K)
    np.testing.assert_allclose(K @ solution.alpha, K @ found[0], atol=1e-7)
    assert_solves(K, solution)


def test_against_an_independent_solver():
    t = sample(25, 6, 2, 2.0, 5, 4)
    features = np.einsum("ba,bc->bac", t.muhat, t.y[:, None] * t.x).reshape(25, -1)
    primal = minimize(lambda w: w @ w / 2.0, 1e-2 * np.ones(36), jac=lambda w: w, method="SLSQP",
                      constraints={"type": "ineq", "fun": lambda w: features @ w - 1.0, "jac": lambda w: features},
                      options={"maxiter": 1000, "ftol": 1e-15})
    assert primal.success
    solution = max_margin(full_kernel(t))
    assert solution.norm == pytest.approx(np.linalg.norm(primal.x), rel=1e-7)
    np.testing.assert_allclose(solution.alpha @ features, primal.x, atol=1e-6 * np.abs(primal.x).max())


@pytest.mark.parametrize("B, d", [(300, 400), (400, 25)])
def test_conditions_at_hundreds_of_tasks(B, d):
    K = full_kernel(sample(B, d, 3, 2.0, 10, 0))
    solution = max_margin(K)
    assert_solves(K, solution)
    assert (solution.support.all()) == (d == 400)


@pytest.mark.slow
def test_conditions_at_thousands_of_tasks():
    K = full_kernel(sample(3000, 80, 5, 2.0, 40, 0))
    assert_solves(K, max_margin(K))


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_nonnegative_quadratic_meets_its_conditions(seed, n):
    rng = np.random.default_rng(seed)
    A, r = rng.standard_normal((n, n + 2)), rng.standard_normal(n)
    K = A @ A.T
    alpha = nonnegative_quadratic(K, r)
    slope = K @ alpha - r
    size = np.abs(K).max() * max(alpha.max(), 1.0) + 1.0
    assert (alpha >= 0).all() and (slope > -1e-9 * size).all() and (np.abs(alpha * slope) < 1e-9 * size * max(alpha.max(), 1.0)).all()


def test_spoilt_solutions_fail_the_conditions():
    K = full_kernel(sample(30, 8, 2, 2.0, 5, 1))
    alpha = max_margin(K).alpha
    for spoilt in (1.01 * alpha, alpha + 1e-4 * alpha.max(), np.roll(alpha, 1)):
        t = K @ spoilt
        assert max((1.0 - t).max(), np.abs(spoilt * (t - 1.0)).max() / spoilt.sum()) > 1e-6


def test_dependent_features_are_refused():
    t = sample(3, 4, 2, 1.0, 3, 0)
    twice = Tasks(*(np.concatenate([a, a[:1]]) for a in (t.muhat, t.x, t.y, t.mu)))
    with pytest.raises(ValueError, match="K: got smallest eigenvalue .* 4 tasks with dependent features"):
        max_margin(full_kernel(twice))
    with pytest.raises(ValueError, match="10 tasks with dependent features"):        # B > d^2
        max_margin(full_kernel(sample(10, 3, 2, 1.0, 3, 0)))
    with pytest.raises(LinAlgError):
        nonnegative_quadratic(np.ones((2, 2)), np.ones(2))


@pytest.mark.parametrize("K, message", [(np.ones((2, 3)), "K: got shape"), ([[np.nan]], "K: got nan")])
def test_bad_kernel(K, message):
    with pytest.raises(ValueError, match=message):
        max_margin(K)


def test_kernel_refuses_more_memory_than_allowed():
    with pytest.raises(MemoryError, match="the kernel of 30 tasks: needs 2.16e-05 GB, allowed are 1e-06 GB"):
        full_kernel(sample(30, 4, 2, 1.0, 3, 0), memory=1e3)


def test_exact_steps_are_those_of_training():
    t = sample(30, 8, 2, 2.0, 5, 1)
    alphas = descend_on_kernel(full_kernel(t), 0.5, [1, 7, 40])
    for alpha, steps in zip(alphas, (1, 7, 40)):
        W = train(t, 0.5, steps, "direct").W
        np.testing.assert_allclose(np.einsum("b,ba,bc->ac", alpha * t.y, t.muhat, t.x), W, rtol=0, atol=1e-13 * np.abs(W).max())


def test_flow_takes_over_from_the_steps():
    K = full_kernel(sample(20, 8, 2, 2.0, 5, 1))
    steps, = descend_on_kernel(K, 1.0, [3000], exact_steps=3000)
    flow, = descend_on_kernel(K, 1.0, [3000], exact_steps=300)
    assert np.abs(flow - steps).max() < 1e-6 * np.abs(steps).max()


@pytest.mark.derives("meta.13")
def test_direction_goes_to_the_max_margin_at_the_derived_rate():
    K = full_kernel(sample(20, 40, 4, 2.0, 40, 2))
    solution = max_margin(K)
    assert solution.support.all()
    steps = [10**j for j in range(2, 13, 2)]
    gaps = np.array([direction_gap(K, a, solution.alpha) for a in descend_on_kernel(K, 1.0, steps)])
    beta = offset(K, solution, 1.0)
    law = np.array([direction_gap(K, np.log(n) * solution.alpha + beta, solution.alpha) for n in steps])
    off = np.abs(gaps / law - 1.0)
    assert (np.diff(gaps) < 0).all() and (np.diff(off) < 0).all() and off[-1] < 1e-3 * off[0]
    wrong = np.array([direction_gap(K, np.log(n) * solution.alpha + 1.05 * beta, solution.alpha) for n in steps])
    assert abs(gaps[-1] / wrong[-1] - 1.0) > 10.0 * off[-1]


def test_offset_needs_every_task_on_the_support():
    K = np.array([[1.0, 1.0], [1.0, 5.0]])
    with pytest.raises(ValueError, match="solution: got 1 tasks off the support"):
        offset(K, max_margin(K), 1.0)


def test_direction_gap_of_known_vectors():
    K = np.diag([1.0, 4.0])                                       # orthogonal features of lengths 1 and 2
    assert direction_gap(K, np.array([1.0, 0.0]), np.array([0.0, 3.0])) == pytest.approx(np.sqrt(2.0))
    assert direction_gap(K, np.array([1.0, 1.0]), np.array([2.0, 2.0])) == 0.0
