"""Blocks of the second derivative against differences of the gradient, tensor rules and closed forms."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit

from gsref.gradients import loss_and_gradient
from gsref.order import OrderParameters
from gsref.problem import Problem
from gsref.quadrature import half_normal_rule, normal_rule
from gsref.second_derivative import (KINDS, Points, blocks_at, copies, directions, law_points, name_of, points_of,
                                     position_integrals, position_only_blocks, sampled_blocks, second_derivative,
                                     uneven_moments)

ALL = ("path", *KINDS)
STATE = OrderParameters(0.7, -0.3, 0.15, 0.9, 0.5, -0.4)


def closed_sample(problem, n, rng):
    """A sample with all images under the permutations of irrelevant groups and the rotations by 2 pi/5 (d = 3).

    Ten rotations and reflections of the plane across v* suffice: under five-fold symmetry no vector and no traceless
    quadratic form is left fixed, and the two are different representations.
    """
    D, d, v_star = problem.D, problem.d, problem.direction
    X, y = problem.sample(n, rng)
    frame = np.linalg.svd(v_star[None])[2][1:]
    images = []
    for turn, mirror in itertools.product(range(5), (1.0, -1.0)):
        angle = 2 * np.pi * turn / 5
        plane = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag([1, mirror])
        Q = np.outer(v_star, v_star) + frame.T @ plane @ frame
        images.append(X @ Q.T)
    others = np.delete(np.arange(D), problem.relevant)
    X = []
    for permuted in itertools.permutations(others):
        place = np.arange(D)
        place[others] = permuted
        X += [image[:, place] for image in images]
    X = np.concatenate(X)
    y = np.tile(y, len(X) // n)
    return np.concatenate([X, -X]), np.concatenate([y, -y])


def full_second_derivative(problem, order, X, y, h=1e-4):
    """The whole matrix by central differences of the closed-form gradient, one Richardson step."""
    v, W = order.to_params(problem)
    theta = np.concatenate([v, W.ravel()])

    def gradient(x):
        _, dv, dW = loss_and_gradient(x[:len(v)], x[len(v):].reshape(W.shape), X, y, problem.positions)
        return np.concatenate([dv, dW.ravel()])

    def central(h):
        return np.array([(gradient(theta + h * e) - gradient(theta - h * e)) / (2 * h) for e in np.eye(len(theta))])
    H = (4 * central(h / 2) - central(h)) / 3
    return (H + H.T) / 2


@pytest.mark.derives("stability.1", "stability.2", "stability.3")
@pytest.mark.parametrize("D", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_blocks_with_their_copies_are_the_whole_spectrum(D):
    direction = np.array([0.6, 0.0, 0.8])
    problem = Problem(3, D, 0.9, relevant=2, direction=direction)
    X, y = closed_sample(problem, 3, np.random.default_rng(D))
    exact = np.linalg.eigvalsh(full_second_derivative(problem, STATE, X, y))
    found = []
    for kind, _, H in blocks_at(problem, STATE, points_of(problem, X, y), kinds=ALL):
        found += copies(problem, kind) * np.linalg.eigvalsh(H).tolist()
    assert len(found) == len(exact)
    found = np.sort(found)
    # Richardson at h = 1e-4: rounding 1e-16/1e-4 times the gradient, and h^4 times fifth derivatives
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-11 * np.abs(exact).max() * len(exact))


def test_one_copy_short_is_noticed():
    # the check above can fail: another matrix of the same size has another spectrum
    problem = Problem(3, 4, 0.9, relevant=2, direction=np.array([0.6, 0.0, 0.8]))
    X, y = problem.sample(50, np.random.default_rng(0))    # not closed: the blocks of the law do not hold for it
    exact = np.linalg.eigvalsh(full_second_derivative(problem, STATE, X, y))
    found = np.sort(np.concatenate([copies(problem, kind) * np.linalg.eigvalsh(H).tolist() for kind, _, H in
                                    blocks_at(problem, STATE, points_of(problem, X, y), kinds=ALL)]))
    assert np.abs(found - exact).max() > 1e-3


@pytest.mark.derives("stability.2")
@given(st.integers(1, 40), st.integers(1, 40))
def test_copies_add_up_to_the_dimension(d, D):
    problem = Problem(d, D)
    points = Points(np.ones((1, D)), np.ones((1, D)), np.ones((1, D)), np.ones((1, D, D)), np.ones(1))
    total = sum(copies(problem, kind) * len(directions(problem, points, kind)) for kind in ALL if copies(problem, kind))
    assert total == (d + D) + (d + D) ** 2


@pytest.mark.derives("stability.3")
@pytest.mark.parametrize("kind", ["W22 uneven", "symmetric pairs", "antisymmetric pairs"])
@given(D=st.integers(5, 12))
@settings(max_examples=5)
def test_directions_of_W22_are_orthonormal(kind, D):
    problem = Problem(2, D)
    points = Points(np.ones((1, D)), np.ones((1, D)), np.ones((1, D)), np.ones((1, D, D)), np.ones(1))
    flat = np.array([array[0].ravel() / problem.kappa for _, array in directions(problem, points, kind)])
    np.testing.assert_allclose(flat @ flat.T, np.eye(len(flat)), atol=1e-14)


def tensor_points(D, n, Q, sigma):
    """The law at d = 2 by a product rule: Q nodes for the relevant feature along v*, n for each irrelevant one.

    Across v*, H is a quadratic polynomial in e (attention does not depend on it), so D orthogonal vectors are exact.
    """
    m_r, w_r = half_normal_rule(Q, 1.0)
    x, w = normal_rule(n)
    grids = np.meshgrid(m_r, *[x] * (D - 1), indexing="ij")
    weights = w_r
    for _ in range(D - 1):
        weights = np.multiply.outer(weights, w)
    m = sigma * np.stack([grid.ravel() for grid in grids], axis=1)
    rng = np.random.default_rng(0)
    e = sigma * np.linalg.qr(rng.standard_normal((D, D)))[0] * np.sqrt(D)      # mean of e e^T = I
    m, weights = np.repeat(m, D, axis=0), np.repeat(weights.ravel(), D) / D
    e = np.tile(e, (len(m) // D, 1))
    return Points(m, e, 0 * e, np.zeros((len(m), D, D)), weights)


@pytest.mark.derives("stability.5", "stability.6")
@pytest.mark.parametrize("D, n, alpha", [(2, 24, 0.25), (2, 24, -0.25), (3, 18, 0.25), (4, 10, -0.25), (5, 6, 0.25)])
def test_closed_forms_of_position_only_mode_against_a_tensor_rule(D, n, alpha):
    problem = Problem(2, D, 0.7)
    order = OrderParameters(alpha, 0, 0, 0.9, 0.5, -0.5 if D == 2 else 0.3)
    exact, rough = ({kind: H for kind, _, H in blocks_at(problem, order, tensor_points(D, *nodes, problem.sigma),
                                                         "position_only")} for nodes in ((n, 30), (n - 2, 24)))
    blocks = position_only_blocks(problem, order)
    assert len(blocks) == len(exact)
    for block, (kind, H) in zip(blocks, exact.items()):
        error = np.abs(H - rough[kind]).max() + block.error + 1e-13
        assert error < 1e-5
        np.testing.assert_allclose(block.matrix, H, rtol=0, atol=error, err_msg=kind)


@given(st.integers(2, 60), st.floats(-3, 3), st.floats(-5, 30), st.floats(0.1, 10))
def test_value_block_when_every_query_gives_the_relevant_group_the_same_attention(D, log_alpha, gap, sigma):
    # largest curvature of v2: E'' D^2 (D+1)/2 [S^2 + (1-S)^2/(D-1)], with f in E'' = E s'(f) like a centred normal
    problem = Problem(1, D, sigma)
    S = 1 / (1 + (D - 1) * np.exp(-gap))
    weight = D**2 * (S**2 + (1 - S) ** 2 / (D - 1))
    beta = 10**log_alpha * np.sqrt(weight)
    curve = quad(lambda z: expit(beta * z) * expit(-beta * z) * np.sqrt(2 / np.pi) * np.exp(-z * z / 2),
                 0, min(40.0, 40 / beta), epsabs=0, epsrel=1e-12, limit=200)[0]
    m = gap * (D - 1) / D
    order = OrderParameters(10**log_alpha / sigma, 0, 0, m, m, -m if D == 2 else -gap / D)
    block = [b for b in position_only_blocks(problem, order) if b.name == "v2"][0]
    assert block.curvatures[-1] == pytest.approx(curve * (D + 1) / 2 * weight, rel=1e-10)
    assert abs(block.curvatures[0]) <= 1e-12 * block.curvatures[-1]


def test_start_of_training_has_the_curvature_D_D_plus_1_over_8():
    for D in (2, 3, 8, 100):
        top = max(b.curvatures[-1] for b in second_derivative(Problem(1, D), OrderParameters(), "position_only"))
        assert top == pytest.approx(D * (D + 1) / 8, rel=1e-12)


@pytest.mark.derives("stability.4")
def test_sampled_errors_are_honest():
    rng, ratios = np.random.default_rng(4), []
    for seed in range(24):
        D = int(rng.integers(2, 8))
        problem = Problem(int(rng.integers(1, 4)), D, 10 ** rng.uniform(-0.5, 0.5))
        m_ro = rng.uniform(0, 4)
        order = OrderParameters(10 ** rng.uniform(-1, 0.7) / problem.sigma, 0, 0, rng.uniform(0, 5), m_ro,
                                -m_ro if D == 2 else rng.uniform(-1, 1))
        exact = position_only_blocks(problem, order)
        found = sampled_blocks(problem, order, 0.03, 2**13, seed, "position_only")
        ratios += [np.linalg.norm(a.matrix - b.matrix) / b.error for a, b in zip(exact, found) if b.error > 1e-12]
    ratios = np.array(ratios)
    assert len(ratios) > 60
    assert np.mean(ratios <= 1) >= 0.95 and ratios.max() <= 3
    assert np.median(ratios) > 0.02                        # and they are not empty promises


def test_many_features_use_fewer_coordinates_and_agree():
    # Bartlett's form of the Gram matrix (d = 12) against explicit features: one and the same law
    problem = Problem(12, 4)
    found = sampled_blocks(problem, STATE, 0.02, 2**14)
    wide = law_points(problem, STATE, 0, 4096, 0)
    rho = wide.weight @ np.einsum("nii->ni", wide.K)
    np.testing.assert_allclose(rho, 11, rtol=0.02)
    rng = np.random.default_rng(1)
    z = rng.standard_normal((16, 500, 4, 12))
    for block in found:
        drawn = []
        for part in z:
            part = part.copy()
            part[..., 0] *= np.where(np.arange(4) == 0, np.sign(part[:, :1, 0]), 1.0)
            across = part[..., 1:]
            points = Points(part[..., 0], across[..., 0], across[..., 1], across @ across.transpose(0, 2, 1),
                            np.full(500, 1 / 500))
            drawn += [H for kind, letters, H in blocks_at(problem, STATE, points)
                      if name_of(kind, letters) == block.name]
        drawn = np.array(drawn)
        error = drawn.std(axis=0, ddof=1) / 4
        # 16 batches: Student's t, two-sided 1e-5 for each entry, about 90 entries
        assert np.all(np.abs(drawn.mean(axis=0) - block.matrix) <= 6.5 * error + block.error), block.name


@pytest.mark.parametrize("arguments, message", [
    ({"mode": "half"}, "mode: got 'half'"), ({"rtol": 0.0}, "rtol: got 0.0"), ({"max_nodes": 1}, "max_nodes: got 1"),
    ({"order": OrderParameters(1, 0.1), "mode": "position_only"}, "order: got a = 0.1")])
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        second_derivative(**{"problem": Problem(2, 3), "order": OrderParameters(), **arguments})


def test_uneven_moments_by_brute_force():
    # stability.6 from its definition: all columns of attention, one uneven pattern t
    k = 6
    problem, order = Problem(1, k + 1), OrderParameters(0.3, 0, 0, 0.9, 0.5, 0.3)
    S = position_integrals(problem, order)[0]
    matrix = np.full((k + 1, k + 1), S.io)
    np.fill_diagonal(matrix, S.oo)
    matrix[0], matrix[:, 0] = S.ro, S.orr
    matrix[0, 0] = S.rr
    points = Points(*[np.ones((1, k + 1))] * 3, np.ones((1, k + 1, k + 1)), np.ones(1))
    patterns = [array[0] / problem.kappa for _, array in directions(problem, points, "W22 uneven")]
    apart = [N - (matrix * N).sum(axis=0) for N in patterns]
    t = np.zeros(k + 1)
    t[1:3] = np.array([1, -1]) / np.sqrt(2)
    h, q = uneven_moments(S, k)
    np.testing.assert_allclose(h, [t @ (matrix * N).sum(axis=1) for N in apart], atol=1e-14)
    brute = [[(matrix[0] * (a * b - (matrix * a * b).sum(axis=0))[0]).sum() for b in apart] for a in apart]
    np.testing.assert_allclose(q, brute, atol=1e-14)
