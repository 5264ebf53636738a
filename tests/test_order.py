"""Order parameters to and from (v, W): a linear space, an orthogonal projection on it, and its symmetries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsref.model import _scores
from gsref.order import OrderParameters, position_scores
from gsref.problem import Problem

numbers = st.floats(-10, 10, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-3)


@st.composite
def points(draw, smallest_D=3):
    d, D = draw(st.integers(1, 5)), draw(st.integers(smallest_D, 7))
    direction = np.array(draw(st.lists(st.floats(0.1, 1), min_size=d, max_size=d)))
    problem = Problem(d, D, relevant=draw(st.integers(0, D - 1)), direction=direction / np.linalg.norm(direction))
    values = draw(st.lists(numbers, min_size=6, max_size=6))
    if d == 1:
        values[2] = 0.0
    return problem, OrderParameters(*values)


@pytest.mark.derives("symmetry.1", "symmetry.2")
@given(points())
def test_params_have_the_symmetric_form(point):
    problem, order = point
    v, W = order.to_params(problem)
    d, v_star = problem.d, problem.direction
    assert not v[d:].any() and not W[:d, d:].any() and not W[d:, :d].any()
    np.testing.assert_allclose(v[:d], order.alpha * v_star, rtol=0, atol=1e-14 * 10)
    np.testing.assert_allclose(W[:d, :d] @ v_star, order.a * v_star, rtol=0, atol=1e-13)
    across = np.eye(d) - np.outer(v_star, v_star)
    np.testing.assert_allclose(across @ W[:d, :d] @ across, order.b * across, rtol=0, atol=1e-13)


@pytest.mark.derives("symmetry.3", "symmetry.4")
@given(points())
def test_position_scores_have_five_entries_and_zero_column_sums(point):
    problem, order = point
    M, r, D = position_scores(problem, order), problem.relevant, problem.D
    others = [j for j in range(D) if j != r]
    assert M[r, r] == order.m_rr
    assert all(M[r, j] == order.m_ro and M[j, j] == order.m_oo for j in others)
    np.testing.assert_allclose(M.sum(axis=0), 0, atol=1e-13 * D)
    _, W = order.to_params(problem)
    A = _scores(W, np.zeros((1, D, problem.d)), problem.positions)[0]
    np.testing.assert_allclose(A, M, rtol=0, atol=2e-13)


@given(points())
def test_round_trip_and_zero_residual(point):
    problem, order = point
    v, W = order.to_params(problem)
    back, residual = OrderParameters.from_params(v, W, problem)
    np.testing.assert_allclose(back.to_array(), order.to_array(), rtol=0, atol=1e-12)
    assert residual <= 1e-13 * (1 + np.linalg.norm(W))


@given(points(), st.integers(0, 2**32 - 1))
def test_from_params_is_the_orthogonal_projection(point, seed):
    """No symmetric (v, W) is closer, and what is left is orthogonal to all of them."""
    problem, order = point
    rng = np.random.default_rng(seed)
    n = problem.d + problem.D
    v, W = rng.standard_normal(n), rng.standard_normal((n, n))
    found, residual = OrderParameters.from_params(v, W, problem)
    v_on, W_on = found.to_params(problem)
    v_other, W_other = order.to_params(problem)
    inner = (v - v_on) @ v_other + np.sum((W - W_on) * W_other)
    assert abs(inner) <= 1e-12 * residual * (1 + np.linalg.norm(v_other) + np.linalg.norm(W_other))
    np.testing.assert_allclose(residual, np.hypot(np.linalg.norm(v - v_on), np.linalg.norm(W - W_on)), rtol=1e-14)


def test_a_column_shift_is_off_the_manifold():
    """Columns of M must sum to zero: a shift of a whole column changes no attention and is all residual."""
    problem = Problem(2, 4)
    order = OrderParameters(1, 0.2, 0.1, 0.5, 0.4, -0.3)
    v, W = order.to_params(problem)
    shift = np.outer(np.ones(4), [1.0, -2.0, 0.5, 3.0])
    W[2:, 2:] += problem.positions.T @ shift @ problem.positions / problem.kappa**2
    found, residual = OrderParameters.from_params(v, W, problem)
    np.testing.assert_allclose(found.to_array(), order.to_array(), atol=1e-14)
    np.testing.assert_allclose(residual, np.linalg.norm(shift) / problem.kappa, rtol=1e-12)


@pytest.mark.parametrize("D, order", [(2, (1, 0.2, 0.1, 0.5, 0.4, -0.4)), (1, (1, 0.2, 0.1, 0, 0, 0))])
def test_small_D(D, order):
    problem, order = Problem(2, D), OrderParameters(*order)
    back, residual = OrderParameters.from_params(*order.to_params(problem), problem)
    np.testing.assert_allclose(back.to_array(), order.to_array(), atol=1e-15)
    assert residual < 1e-15


def test_vector_arithmetic():
    x, y = OrderParameters(1, 2, 3, 4, 5, 6), OrderParameters(m_oo=1)
    assert x + 2 * y == x + y * 2 == x + np.float64(2) * y == OrderParameters(1, 2, 3, 4, 5, 8)
    assert OrderParameters.from_array(x.to_array()) == x
    with pytest.raises(TypeError):
        x + 1
    for wrong in (None, "2", 1j, np.ones(6)):
        with pytest.raises(TypeError, match="^scalar: got .*, expected a real number"):
            x * wrong


@pytest.mark.parametrize("problem, order, message", [
    (Problem(1, 3), OrderParameters(b=0.1), r"order\.b: got 0\.1, expected 0"),
    (Problem(2, 1), OrderParameters(m_rr=1), r"order\.m_rr, m_ro, m_oo: expected 0"),
    (Problem(2, 2), OrderParameters(m_ro=1), r"order\.m_oo: got 0\.0, expected -m_ro = -1\.0"),
])
def test_what_does_not_exist_is_refused(problem, order, message):
    with pytest.raises(ValueError, match=message):
        order.to_params(problem)


@pytest.mark.parametrize("call, error, message", [
    (lambda: OrderParameters(alpha=np.nan), ValueError, "alpha: got nan, expected a finite number"),
    (lambda: OrderParameters(a="1"), TypeError, "a: got '1', expected a real number"),
    (lambda: OrderParameters(b=1j), TypeError, "b: got 1j"),
    (lambda: OrderParameters.from_array(np.zeros(5)), ValueError, r"array: got shape \(5,\), expected \(6,\)"),
    (lambda: OrderParameters().to_params(None), TypeError, "problem: got NoneType, expected Problem"),
    (lambda: OrderParameters.from_params(np.zeros(4), np.zeros((5, 5)), Problem(2, 3)), ValueError, r"v: got shape \(4,\)"),
    (lambda: OrderParameters.from_params(np.zeros(5), np.zeros((5, 4)), Problem(2, 3)), ValueError, r"W: got shape \(5, 4\)"),
])
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
