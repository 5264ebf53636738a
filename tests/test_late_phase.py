"""The late laws against exact expectations: the constant, the orders of their corrections, and that they can fail."""

import numpy as np
import pytest
from scipy.integrate import quad

from gsref import OrderParameters, Problem, descend, population
from gsref.late_phase import LATE_CONSTANT, late_alpha, late_leak, late_loss, late_time


def test_constant_is_both_integrals():
    # t = 0 .. 60: the rest is below 1e-25
    first = quad(lambda x: np.log1p(np.exp(-x)), 0, 60, epsabs=1e-13)[0]
    second = quad(lambda x: x / (1 + np.exp(x)), 0, 60, epsabs=1e-13)[0]
    np.testing.assert_allclose(np.sqrt(2 / np.pi) * np.array([first, second]), LATE_CONSTANT, rtol=1e-12)


def locked(D, alpha):
    """All attention on the relevant group, to e^-200."""
    return OrderParameters(alpha=alpha, m_rr=200, m_ro=200, m_oo=-200 / (D - 1))


@pytest.mark.derives("late.1")
@pytest.mark.parametrize("D, sigma", [(4, 1.0), (64, 0.3)])
def test_loss_law_with_its_second_order_correction(D, sigma):
    problem = Problem(3, D, sigma)
    h = np.array([10.0, 20.0, 40.0])
    alpha = h / (D * sigma)
    exact = np.array([population(problem, locked(D, x), mode="position_only").loss for x in alpha])
    gap = 1 - exact / late_loss(problem, alpha)
    bound = 7 * np.pi**2 / (60 * h**2)
    assert np.all(gap > 0) and np.all(gap < bound) and np.all(gap > 0.9 * bound)         # a bound, and nearly attained
    slope = np.diff(np.log(gap)) / np.diff(np.log(h))
    np.testing.assert_allclose(slope, -2, atol=0.05)
    # planted: with a constant off by one per cent the gap does not close
    assert np.all(np.abs(1 - exact / (1.01 * late_loss(problem, alpha)))[1:] > 5e-3)


@pytest.mark.derives("late.2", "late.3")
@pytest.mark.parametrize("D", [4, 16])
def test_alpha_and_time_approach_their_laws(D):
    problem, eta = Problem(2, D), 0.5 / D
    path = descend(problem, eta, 10**9, mode="position_only", rtol=1e-6, flow=1e-3)
    at = [int(np.searchsorted(path.step, t)) for t in (10**5, 10**7, 10**9)]
    alpha = np.abs(path.order[at, 0] / late_alpha(problem, eta, path.step[at]) - 1)
    time = np.abs(path.step[at] / late_time(problem, eta, path.loss[at]) - 1)
    for gap in (alpha, time):
        assert np.all(gap[1:] < 0.5 * gap[:-1]) and gap[-1] < 5e-3, gap


@pytest.mark.derives("late.4")
@pytest.mark.parametrize("D, sigma, eta", [(4, 1.0, 0.1), (16, 1.0, 0.1), (16, 0.2, 0.3), (256, 1.0, 0.002)])
def test_leak_approaches_its_law_at_every_learning_rate(D, sigma, eta):
    problem = Problem(2, D, sigma)
    path = descend(problem, eta, 10**12, mode="position_only", rtol=1e-6, flow=1e-3, max_exact=10**4)
    h = sigma * D * path.order[:, 0]
    at = [int(np.searchsorted(h, x)) for x in (100, 1000)]
    gap = np.abs(path.leak[at] / late_leak(problem, path.order[at, 0]) - 1)
    assert gap[1] < 1e-3 and gap[1] < 0.2 * gap[0], gap
    # planted: without the share of the irrelevant groups (beta = 0) the law is off by tens of per cent
    plain = 2 * (D - 1) / (problem.kappa * path.order[at[1], 0])**2
    assert abs(path.leak[at[1]] / plain - 1) > 0.1
