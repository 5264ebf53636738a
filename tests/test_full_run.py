"""Runs of all parameters on a sample that is closed under the symmetries, beside what the multipliers predict."""

import numpy as np
import pytest

from gsref.full_run import closed_sample, full_run, growth_compared, predicted_growth
from gsref.gradients import loss_and_gradient
from gsref.order import OrderParameters
from gsref.problem import Problem


def rows(X, y):
    """The samples as a sorted array, to compare sets; rounded where images differ in the last bits."""
    flat = np.concatenate([X.reshape(len(X), -1), y[:, None]], axis=1).round(9)
    return flat[np.lexsort(flat.T)]


@pytest.mark.derives("stability.10")
@pytest.mark.parametrize("d", [1, 2, 3])
def test_closed_sample_is_closed_and_its_gradient_has_the_symmetries(d):
    direction = np.array([0.6, 0.8, 0.0])[:d] if d > 1 else np.ones(1)
    problem = Problem(d, 8, 0.8, relevant=3, direction=direction)
    X, y = closed_sample(problem, 3, 1)
    assert len(X) == 3 * 42 * 2 * {1: 1, 2: 2, 3: 8}[d]
    np.testing.assert_array_equal(y, np.where(X[:, 3] @ direction >= 0, 1.0, -1.0))
    np.testing.assert_allclose(rows(-X, -y), rows(X, y), atol=2e-9)
    place, others = np.arange(8), np.delete(np.arange(8), 3)
    for p, q in ((3, 0), (1, 1)):                          # generators of the 42 maps
        place[others] = others[(p * np.arange(7) + q) % 7]
        np.testing.assert_allclose(rows(X[:, place], y), rows(X, y), atol=2e-9)
    v, W = OrderParameters(0.7, -0.3, 0.2 if d > 1 else 0.0, 0.9, 0.5, -0.4).to_params(problem)
    _, dv, dW = loss_and_gradient(v, W, X, y, problem.positions)
    order, residual = OrderParameters.from_params(-dv, -dW, problem)
    assert residual < 1e-14 * len(dv) * np.abs(dW).max() and abs(order.alpha) > 1e-3
    # an open sample leaves the manifold at once
    X, y = problem.sample(len(X), np.random.default_rng(0))
    _, dv, dW = loss_and_gradient(v, W, X, y, problem.positions)
    assert OrderParameters.from_params(-dv, -dW, problem)[1] > 1e-3


def test_a_kick_grows_by_the_largest_multiplier_of_the_sample():
    problem, eta = Problem(2, 8), 0.5
    X, y = closed_sample(problem, 16)
    kicked = full_run(problem, X, y, eta, 14, kick=1e-10)
    path = full_run(problem, X, y, eta, 14, project=True)
    predicted = predicted_growth(problem, X, y, eta, path)
    growth = kicked.residual[8:] / kicked.residual[7:-1]
    # by then the steepest direction is alone (others fall behind by a factor of three a step and more)
    np.testing.assert_allclose(growth, np.abs(predicted.multiplier[7:-1]), rtol=0.01)


def test_rounding_grows_in_float64_as_the_sample_predicts():
    problem, eta, steps = Problem(2, 8), 0.5, 34
    X, y = closed_sample(problem, 16)
    run = full_run(problem, X, y, eta, steps, until_broken=True)
    path = full_run(problem, X, y, eta, steps, project=True)
    predicted = predicted_growth(problem, X, y, eta, path)
    first, last, measured, said = growth_compared(run, predicted)
    assert said > 1e6 and abs(measured / said - 1) < 0.01 and run.broken == last + 1
    assert path.loss[run.broken] < np.log(2)               # the projected run knows nothing of it


def test_rounding_stays_where_no_multiplier_grows():
    problem, eta, steps = Problem(2, 8), 0.15, 36
    X, y = closed_sample(problem, 16)
    run = full_run(problem, X, y, eta, steps, until_broken=True)
    predicted = predicted_growth(problem, X, y, eta, full_run(problem, X, y, eta, steps, project=True), every=6)
    assert predicted.broken is None and run.broken is None and run.residual[-1] < 1e-13
    assert np.abs(predicted.multiplier).max() < 1.7
    assert growth_compared(run, predicted) is None


@pytest.mark.parametrize("problem", [Problem(1, 7), Problem(4, 8)])
def test_other_sizes_are_refused(problem):
    with pytest.raises(ValueError, match="expected D = 8 and d <= 3"):
        closed_sample(problem, 2)
