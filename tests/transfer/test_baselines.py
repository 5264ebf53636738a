"""Baselines: the best of the grid is what it says, maximum likelihood is one, separable data are called so."""

import numpy as np
import pytest

from gsref import Problem
from gsref.model import logistic_factor
from gsref.transfer.baselines import LINEAR_STEPS, from_zero_unit, linear_unit, logistic_sgd, maximum_likelihood, sgd_from_zero
from gsref.transfer.sgd import train_attention, train_linear
from gsref.transfer.task import DownstreamTask

TASK = DownstreamTask(Problem(3, 2), [0.6, 0.8, 0.0], "gaussian", 0.5)


def score(run):
    return run.mistakes[:, -1].mean()


def test_logistic_sgd_is_the_best_run_of_the_grid():
    seeds = [3, 4, 5]
    best, run, scores = logistic_sgd(TASK, seeds, [10, 200], score)
    alone = {multiple: train_linear(TASK, multiple * linear_unit(3, 2), seeds, [10, 200]) for multiple in LINEAR_STEPS}
    assert scores == {multiple: score(one) for multiple, one in alone.items()} and len(set(scores.values())) > 1
    assert best == min(scores, key=scores.get)
    assert (run.mistakes == alone[best].mistakes).all() and (run.states[-1][0] == alone[best].states[-1][0]).all()


def test_sgd_from_zero_is_the_best_run_of_the_grid():
    best, run, scores = sgd_from_zero(TASK, [3, 4], [100], score)
    alone = train_attention(TASK, np.zeros(5), np.zeros((5, 5)), best * from_zero_unit(3, 2), [3, 4], [100])
    assert scores[best] == min(scores.values()) and (run.mistakes == alone.mistakes).all()


def noisy(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2, 3))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0, 1])), 1.0, -1.0)


def test_maximum_likelihood_is_that_of_newtons_method():
    X, y = noisy()
    fit = maximum_likelihood(X, y, gtol=1e-9)
    x, w = y[:, None] * X.reshape(len(X), -1), np.zeros(6)
    for _ in range(30):
        s = logistic_factor(x @ w)
        w += np.linalg.solve((x * (s * (1 - s))[:, None]).T @ x, x.T @ s)
    assert fit.converged and not fit.separates
    np.testing.assert_allclose(fit.w.reshape(-1), w, atol=1e-6)          # gtol over the curvature, which is above 1e-2


def test_separable_data_are_called_so_and_the_loss_goes_to_zero():
    X, y = TASK.sample(30, np.random.default_rng(0))
    rough, fine = (maximum_likelihood(X, y, gtol) for gtol in (1e-3, 1e-6))
    assert fine.separates and fine.loss < 1e-2 * rough.loss and np.linalg.norm(fine.w) > np.linalg.norm(rough.w)


@pytest.mark.parametrize("call, text", [
    (lambda: maximum_likelihood(np.ones((3, 2)), np.ones(3)), "X: got shape"),
    (lambda: maximum_likelihood(np.ones((3, 2, 2)), np.zeros(3)), "y: got 0"),
    (lambda: maximum_likelihood(*noisy(), gtol=0.0), "gtol: got 0"),
])
def test_bad_arguments_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
