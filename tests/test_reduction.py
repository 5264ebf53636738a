"""The six-scalar recursion is gradient descent on (v, W): with the expectation exact, and with fresh samples.

The full-space expectation is a tensor rule over all D d normals of the input, which shares no code with
`gsref.population`: it evaluates the model and the closed-form gradient on weighted inputs.
"""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss

from gsref import OrderParameters, Problem, loss_and_gradient, population
from gsref.gradients import query_key_gradient, score_gradient, value_gradient
from gsref.model import _attention, _logit, _scores, _values, logistic_factor, logistic_loss


def tensor_inputs(problem, n, n_label):
    """Weighted inputs (X, y, weight): n-node Hermite rules, a Legendre rule on either side of the label boundary."""
    d, D = problem.d, problem.D
    x, w = hermegauss(n)
    w = w / w.sum()
    t, w_t = leggauss(n_label)
    t, w_t = 4.5 * (t + 1), 4.5 * w_t
    w_t = w_t * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)
    rules = [(np.concatenate([-t, t]), np.concatenate([w_t, w_t]))] + [(x, w)] * (D * d - 1)
    grid = np.stack([g.ravel() for g in np.meshgrid(*(r[0] for r in rules), indexing="ij")], axis=1)
    weight = np.ones(())
    for r in rules:
        weight = np.multiply.outer(weight, r[1])
    X = problem.sigma * grid.reshape(-1, D, d)
    if d > 1:                                  # first coordinate along v*, the rest across: turn into feature space
        basis, _ = np.linalg.qr(np.column_stack([problem.direction, np.eye(d)]))
        basis[:, 0] *= np.sign(basis[:, 0] @ problem.direction)
        X = X @ basis[:, :d].T
    X[:, [0, problem.relevant]] = X[:, [problem.relevant, 0]]
    return X, np.where(grid[:, 0] > 0, 1.0, -1.0), weight.ravel()


def exact_gradient(v, W, X, y, weight, P):
    loss, dv, dW = 0.0, 0.0, 0.0
    for part in np.array_split(np.arange(len(X)), max(1, len(X) // 20000)):
        x, z, w = X[part], y[part], weight[part]
        A = _scores(W, x, P)
        S, u = _attention(A), _values(v, x, P)
        margin = z * _logit(S, u)
        c = -z * logistic_factor(margin) * w
        loss += w @ logistic_loss(margin)
        dv = dv + value_gradient(c, S, x, P)
        dW = dW + query_key_gradient(c, score_gradient(A, S, u), x, P)
    return loss, dv, dW


@pytest.mark.slow
@pytest.mark.derives("population.4")
@pytest.mark.parametrize("problem, n, n_label, eta", [
    (Problem(2, 2, sigma=0.8, relevant=1, direction=[0.6, 0.8]), 26, 26, 0.15),
    (Problem(1, 3, sigma=0.9, relevant=1), 40, 30, 0.1),
])
def test_full_space_descent_follows_the_recursion(problem, n, n_label, eta):
    X, y, weight = tensor_inputs(problem, n, n_label)
    np.testing.assert_allclose(weight.sum(), 1, rtol=1e-13)
    v, W = np.zeros(problem.d + problem.D), np.zeros((problem.d + problem.D,) * 2)
    order = OrderParameters()
    for _ in range(30):
        found = population(problem, order, rule="tensor", rtol=1e-11, max_nodes=2**25)
        loss, dv, dW = exact_gradient(v, W, X, y, weight, problem.positions)
        assert abs(loss - found.loss) < 1e-9
        v, W, order = v - eta * dv, W - eta * dW, order + eta * found.velocity
        on, residual = OrderParameters.from_params(v, W, problem)
        np.testing.assert_allclose(on.to_array(), order.to_array(), rtol=0, atol=1e-9)
        assert residual < 1e-12 * np.hypot(np.linalg.norm(v), np.linalg.norm(W))
    assert order.m_ro > 0.1                    # the attention has moved: thirty steps are not nothing


@pytest.mark.derives("population.4")
@pytest.mark.parametrize("problem, n, n_label, order", [
    (Problem(2, 2, sigma=0.8, relevant=1, direction=[0.6, 0.8]), 16, 20, (0.9, -0.3, 0.15, 0.7, 0.5, -0.5)),
    (Problem(1, 3, sigma=0.9, relevant=1), 24, 24, (0.8, -0.25, 0, 0.6, 0.9, 0.1)),
])
def test_one_step_away_from_the_path(problem, n, n_label, order):
    """The same at a generic symmetric point, so that every velocity is far from zero."""
    order = OrderParameters(*order)
    loss, dv, dW = exact_gradient(*order.to_params(problem), *tensor_inputs(problem, n, n_label), problem.positions)
    found = population(problem, order, rule="tensor", rtol=1e-10, max_nodes=2**25)
    velocity, residual = OrderParameters.from_params(-dv, -dW, problem)
    assert abs(loss - found.loss) < 2e-9
    np.testing.assert_allclose(found.velocity.to_array(), velocity.to_array(), rtol=0, atol=1e-8)
    assert residual < 1e-12 * np.linalg.norm(dW)
    assert np.all(np.abs(velocity.to_array()[[0, 1, 3, 4]]) > 1e-3)


def test_sampled_descent_follows_the_recursion():
    """Fresh batches on (v, W) at D = 4: the mean of 16 runs lies within 5 standard errors of the recursion.

    False alarms: 6 looks at 5 standard errors of 16 runs (Student, 15 degrees) are about 1e-3 in all.
    """
    problem, eta, steps, batch, runs = Problem(2, 4, relevant=2), 0.3, 25, 512, 16
    order = OrderParameters()
    for _ in range(steps):
        order = order + eta * population(problem, order, rtol=1e-2).velocity
    ends = []
    for seed in range(runs):
        rng = np.random.default_rng([20, seed])
        v, W = np.zeros(6), np.zeros((6, 6))
        for _ in range(steps):
            _, dv, dW = loss_and_gradient(v, W, *problem.sample(batch, rng), problem.positions)
            v, W = v - eta * dv, W - eta * dW
        ends.append(OrderParameters.from_params(v, W, problem)[0].to_array())
    ends = np.array(ends)
    error = ends.std(axis=0, ddof=1) / np.sqrt(runs)
    # a batch of n moves the mean path by a second-order term of the size of the variance of a run
    second_order = ends.var(axis=0, ddof=1)
    assert np.all(np.abs(ends.mean(axis=0) - order.to_array()) < 5 * error + 3 * second_order)
    assert order.m_ro > 20 * error[4]          # the comparison is not between zeros
    wrong = order.to_array() * 1.1             # planted: a recursion that is off by a tenth is seen
    assert np.any(np.abs(ends.mean(axis=0) - wrong) > 5 * error + 3 * second_order)
