"""The argument of derivations/03_symmetry.md, step by step: equivariance, the fixed space and its dimension, the path.

A symmetry is a pair: a map of data and a linear map of parameters that makes up for it.  Everything here is exact for
every batch; only the last test takes a mean, over a batch completed by its images.
"""

from itertools import permutations, product

import numpy as np
import pytest

from gsref import OrderParameters, Problem, loss_and_gradient
from gsref.order import position_block, position_scores

EPS = np.finfo(float).eps


def problem_of(d, D, seed=0):
    direction = np.random.default_rng(seed).standard_normal(d)
    return Problem(d, D, relevant=D // 2, direction=direction / np.linalg.norm(direction))


def acting(left):
    """The map of parameters v -> left v, W -> left W left^T."""
    return lambda v, W: (left @ v, left @ W @ left.T)


def flip(problem):
    """(data map, parameter map)."""
    R = np.diag([-1.0] * problem.d + [1.0] * problem.D)
    return (lambda X, y: (-X, -y)), lambda v, W: (-R @ v, R @ W @ R)


def rotation(problem, Q):
    """`Q` orthogonal with Q v* = v*."""
    O = np.eye(problem.d + problem.D)
    O[:problem.d, :problem.d] = Q
    return (lambda X, y: (X @ Q.T, y)), acting(O)


def permutation(problem, order):
    """Token order[j] comes to position j; order[r] = r."""
    P, O = problem.positions, np.eye(problem.d + problem.D)
    O[problem.d:, problem.d:] = P @ np.eye(problem.D)[list(order)] @ P / problem.kappa
    return (lambda X, y: (X[:, list(order)], y)), acting(O)


def frame(problem):
    """Orthogonal (d, d), first column v*."""
    basis = np.linalg.qr(np.column_stack([problem.direction, np.eye(problem.d)]))[0]
    return basis * np.sign(basis[:, 0] @ problem.direction)


def rotations(problem):
    """The finite group of signed permutations of the axes of `frame` that fix the first, as matrices Q."""
    B, k = frame(problem), problem.d - 1
    for order, signs in product(permutations(range(k)), product([1.0, -1.0], repeat=k)):
        inner = np.eye(problem.d)
        inner[1:, 1:] = np.eye(k)[list(order)] * signs
        yield B @ inner @ B.T


def orders(problem):
    r, D = problem.relevant, problem.D
    for rest in permutations([j for j in range(D) if j != r]):
        yield [*rest[:r], r, *rest[r:]]


def symmetries(problem):
    """Enough of each kind to generate all: the flip, all signed axes, all permutations of the irrelevant groups."""
    return [flip(problem), *(rotation(problem, Q) for Q in rotations(problem)),
            *(permutation(problem, order) for order in orders(problem))]


@pytest.mark.derives("symmetry.1", "symmetry.2", "symmetry.3")
@pytest.mark.parametrize("d, D", [(3, 4), (2, 3), (1, 3), (3, 2), (2, 1), (1, 1)])
def test_gradient_is_equivariant(d, D):
    problem, rng = problem_of(d, D), np.random.default_rng(1)
    X, y = problem.sample(5, rng)
    v, W = rng.standard_normal(d + D), 0.3 * rng.standard_normal((d + D, d + D))
    loss, dv, dW = loss_and_gradient(v, W, X, y, problem.positions)
    for data, parameters in symmetries(problem):
        moved = loss_and_gradient(*parameters(v, W), *data(X, y), problem.positions)
        wanted = loss, *parameters(dv, dW)
        for got, want in zip(moved, wanted):                             # scores and margins are below 10 here
            assert np.abs(got - want).max() <= 100 * (d + D) * EPS * max(1, np.abs(want).max())
        assert abs(np.linalg.norm(wanted[2]) - np.linalg.norm(dW)) <= 100 * EPS * np.linalg.norm(dW)
        labels = np.where(data(X, y)[0][:, problem.relevant] @ problem.direction >= 0, 1.0, -1.0)
        assert (labels == data(X, y)[1]).all()                            # the law of the labels is kept as well


def test_equivariance_refuses_a_planted_map():
    # positions left where they are while tokens move; and the flip without its sign on v
    problem, rng = problem_of(3, 4), np.random.default_rng(1)
    X, y = problem.sample(5, rng)
    v, W = rng.standard_normal(7), 0.3 * rng.standard_normal((7, 7))
    loss = loss_and_gradient(v, W, X, y, problem.positions)[0]
    order = list(orders(problem))[-1]
    assert abs(loss_and_gradient(v, W, X[:, order], y, problem.positions)[0] - loss) > 1e-3
    R = np.diag([-1.0] * 3 + [1.0] * 4)
    assert abs(loss_and_gradient(R @ v, R @ W @ R, -X, -y, problem.positions)[0] - loss) > 1e-3


def fixed_space(problem, maps):
    """Orthonormal basis (size, dimension) of the parameters that all `maps` fix and whose M has zero column sums."""
    d, D = problem.d, problem.D
    m = d + D

    def conditions(theta):
        v, W = theta[:m], theta[m:].reshape(m, m)
        moved = [np.concatenate([a - v, (b - W).ravel()]) for a, b in (parameters(v, W) for _, parameters in maps)]
        return np.concatenate([*moved, (problem.positions @ W[d:, d:] @ problem.positions.T).sum(axis=0)])
    equations = np.column_stack([conditions(e) for e in np.eye(m + m * m)])
    _, values, rows = np.linalg.svd(equations)
    assert not ((values > 1e-10) & (values < 1e-3)).any(), "the rank is not clear"
    return rows[(values > 1e-6).sum():].T


BASIS = {   # the order parameters that exist at each size, as unit moves; at D = 2, m_oo = -m_ro
    "alpha": {"alpha": 1.0}, "a": {"a": 1.0}, "b": {"b": 1.0}, "m_rr": {"m_rr": 1.0}, "m_ro": {"m_ro": 1.0},
    "m_oo": {"m_oo": 1.0}, "m_ro_D2": {"m_ro": 1.0, "m_oo": -1.0}}
SIZES = [((3, 4), "alpha a b m_rr m_ro m_oo"), ((2, 3), "alpha a b m_rr m_ro m_oo"), ((1, 4), "alpha a m_rr m_ro m_oo"),
         ((3, 2), "alpha a b m_rr m_ro_D2"), ((1, 2), "alpha a m_rr m_ro_D2"), ((2, 1), "alpha a b"),
         ((1, 1), "alpha a")]


@pytest.mark.derives("symmetry.1", "symmetry.2", "symmetry.3", "symmetry.4")
@pytest.mark.parametrize("size, scalars", SIZES)
def test_fixed_space_is_spanned_by_the_order_parameters(size, scalars):
    problem = problem_of(*size)
    space = fixed_space(problem, symmetries(problem))
    moves = [OrderParameters(**BASIS[name]).to_params(problem) for name in scalars.split()]
    ours = np.column_stack([np.concatenate([v, W.ravel()]) for v, W in moves])
    assert np.linalg.matrix_rank(ours) == ours.shape[1] == space.shape[1]
    assert np.abs(ours - space @ (space.T @ ours)).max() <= 1e-12


@pytest.mark.parametrize("left_out, dimension", [
    # d = 3, D = 4; counted by hand, block by block: v1, v2, W11, W12, W21, W22 (with zero column sums of M)
    ("flip", 1 + 2 + 2 + 2 + 2 + 3), ("rotations", 3 + 0 + 9 + 0 + 0 + 3), ("permutations", 1 + 0 + 2 + 0 + 0 + 12)])
def test_without_one_symmetry_more_is_free(left_out, dimension):
    problem = problem_of(3, 4)
    maps = symmetries(problem)
    count = len(list(rotations(problem)))
    kept = {"flip": maps[1:], "rotations": [maps[0], *maps[1 + count:]], "permutations": maps[:1 + count]}[left_out]
    assert fixed_space(problem, kept).shape[1] == dimension


@pytest.mark.derives("symmetry.3", "symmetry.4")
@pytest.mark.parametrize("D", [2, 3, 5])
def test_position_scores_have_five_distinct_entries_and_zero_column_sums(D):
    problem = problem_of(2, D)
    order = OrderParameters(m_rr=0.7, m_ro=-0.4, m_oo=0.4 if D == 2 else 1.1)
    M, r = position_scores(problem, order), problem.relevant
    for i, j in product(range(D), repeat=2):
        if i == j:
            wanted = order.m_rr if i == r else order.m_oo
        elif i == r:
            wanted = order.m_ro
        else:
            wanted = -order.m_rr / (D - 1) if j == r else -(order.m_ro + order.m_oo) / (D - 2)
        assert M[i, j] == wanted
    assert np.abs(M.sum(axis=0)).max() <= 4 * D * EPS
    W22 = position_block(M, problem)
    assert np.abs(problem.positions @ W22 @ problem.positions.T - M).max() <= 20 * D * EPS * np.abs(M).max()
    assert np.linalg.norm(M) == pytest.approx(problem.kappa * np.linalg.norm(W22), rel=20 * D * EPS)


def descend(problem, X, y, eta, n_steps):
    v, W = np.zeros(problem.d + problem.D), np.zeros((problem.d + problem.D,) * 2)
    for _ in range(n_steps):
        _, dv, dW = loss_and_gradient(v, W, X, y, problem.positions)
        v, W = v - eta * dv, W - eta * dW
    return OrderParameters.from_params(v, W, problem), np.hypot(np.linalg.norm(v), np.linalg.norm(W))


@pytest.mark.derives("symmetry.1", "symmetry.2", "symmetry.3", "symmetry.4")
@pytest.mark.parametrize("d, D", [(3, 3), (2, 4), (1, 3)])
def test_descent_on_a_batch_completed_by_its_images_stays_on_the_manifold(d, D):
    problem = problem_of(d, D)
    X, y = problem.sample(3, np.random.default_rng(4))
    images = [(X, y)]
    for family in ([(lambda X, y: (X, y), None), flip(problem)], [rotation(problem, Q) for Q in rotations(problem)],
                   [permutation(problem, order) for order in orders(problem)]):
        images = [data(*pair) for pair in images for data, _ in family]      # each family holds the identity once
    whole = np.concatenate([a for a, _ in images]), np.concatenate([b for _, b in images])
    (order, residual), norm = descend(problem, *whole, eta=0.5, n_steps=30)
    assert residual <= 1e-12 * norm and abs(order.alpha) > 0.1 and abs(order.m_ro) > 1e-3
    (_, residual), norm = descend(problem, X, y, eta=0.5, n_steps=30)      # the batch alone leaves it at once
    assert residual > 0.1 * norm
