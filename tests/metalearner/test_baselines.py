"""The optimal rule against the posterior itself."""

import numpy as np
import pytest
from scipy.integrate import quad

from gsref.metalearner.baselines import FULL_MLE, PROJECTED_MLE, optimal_rule
from gsref.metalearner.population import Order, error_rate
from gsref.metalearner.problem import MetaProblem


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
