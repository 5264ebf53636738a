"""The limit of population training: the theorem's statements, one by one."""

import numpy as np
import pytest

from gsref.metalearner.limit import descend_population, limit_of_training, second_moment
from gsref.metalearner.population import Order, error_rate, population
from gsref.metalearner.problem import MetaProblem
from gsref.metalearner.training import train

PROBLEMS = [(MetaProblem(20, 3, 2.0), 10), (MetaProblem(6, 6, 1.0, 0.2), 5), (MetaProblem(500, 30, 3.0), 40)]


@pytest.mark.derives("meta.9")
@pytest.mark.parametrize("problem, N", PROBLEMS)
def test_first_step_and_direction(problem, N):
    orders, losses = descend_population(problem, 0.01, 20, N)
    first = 0.01 * (1.0 - 2.0 * problem.label_noise) * problem.R ** 2 / (2.0 * problem.k)
    assert orders[1, 0] == pytest.approx(first, rel=1e-12)
    assert (orders[:, 1] == 0.0).all() and (np.diff(orders[:, 0]) > 0).all() and (np.diff(losses) < 0).all()


@pytest.mark.derives("meta.9")
@pytest.mark.parametrize("problem, N", PROBLEMS)
def test_increases_to_the_root_at_the_monotone_rate(problem, N):
    limit = limit_of_training(problem, N)
    orders, losses = descend_population(problem, limit.monotone_rate, 40, N)
    assert (np.diff(orders[:, 0]) > -1e-13).all() and (orders[:, 0] <= limit.p + limit.error + 1e-12).all()
    assert (np.diff(losses) < 1e-13).all() and limit.loss - 1e-12 <= losses[-1] < losses[0] - 0.9 * (losses[0] - limit.loss)
    assert limit.error < 1e-10
    assert abs(population(problem, Order(limit.p), N).velocity.p) < 1e-12
    # the minimum in p, and in q: what is off the subspace decays from either side
    for other in (Order(0.99 * limit.p), Order(1.01 * limit.p), Order(limit.p, 0.01), Order(limit.p, -0.01)):
        if other.q == 0.0 or problem.d > problem.k:
            assert population(problem, other, N).loss > limit.loss
    if problem.d > problem.k:
        down, up = (population(problem, Order(limit.p, q), N).velocity.q for q in (0.01, -0.01))
        assert down < 0.0 < up


def test_rate_beyond_the_bound_is_not_monotone():
    problem, N = PROBLEMS[0]
    limit = limit_of_training(problem, N)
    orders, _ = descend_population(problem, 60.0 * limit.monotone_rate, 3, N)
    assert (orders[:, 0] > limit.p).any()


@pytest.mark.derives("meta.9")
def test_second_moment_against_samples():
    for problem, N in PROBLEMS[:2]:
        tasks = problem.sample_tasks(100_000, N, np.random.default_rng(0))
        A2 = np.einsum("bk,bk->b", problem.coordinates(tasks.muhat), problem.coordinates(tasks.y[:, None] * tasks.x)) ** 2
        assert abs(A2.mean() - second_moment(problem, N)) < 4.0 * A2.std() / np.sqrt(len(A2))


def test_after_one_step_the_classifier_is_the_projected_mle():
    problem, N = PROBLEMS[0]
    orders, _ = descend_population(problem, 0.01, 2, N)
    rates = [error_rate(problem, Order(*order), 7)[0] for order in orders[1:]] + [error_rate(problem, Order(1.0), 7)[0]]
    np.testing.assert_allclose(rates, rates[0], rtol=1e-12)


def test_training_on_many_tasks_follows_the_population():
    problem, N, B, eta, steps = MetaProblem(8, 2, 2.0), 10, 20_000, 0.05, 30
    orders, _ = descend_population(problem, eta, steps, N)
    fits = []
    for seed in range(8):
        trained = train(problem.sample_tasks(B, N, np.random.default_rng(seed)), eta, steps)
        order, rest = Order.from_matrix(trained.W, problem)
        fits.append((order.p, order.q, rest))
    mean, error = np.mean(fits, axis=0), np.std(fits, axis=0, ddof=1) / np.sqrt(8)
    assert abs(mean[0] - orders[-1, 0]) < 6.0 * error[0]                 # Student's t, 7 degrees: false alarm 5e-4
    assert abs(mean[1]) < 6.0 * error[1]
    # what is off the manifold is noise: of order 1/sqrt(B)
    _, rest = Order.from_matrix(train(problem.sample_tasks(4 * B, N, np.random.default_rng(9)), eta, steps).W, problem)
    assert 0.3 * mean[2] < rest < 0.7 * mean[2]
