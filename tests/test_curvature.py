"""Hessian times direction against complex step of the plain gradient's loss, and against differences; norms."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cases import cases, make
from gsref import curvature, gradients, loss_and_gradient
from gsref.model import _loss, logistic_factor
from test_gradients import SHAPES

EPS = np.finfo(float).eps


def direction(case, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(case.v.shape), rng.standard_normal(case.W.shape)


def product(case, a, B, **options):
    Hv, HW = loss_and_gradient(*case.args, direction=(a, B), **options)[-1]
    return np.concatenate([Hv, HW.ravel()])


def difference(case, a, B, h):
    """Central difference of the plain closed-form gradient along (a, B), extrapolated once: error of order h^4."""
    v, W, X, y, P = case.floats

    def gradient(e):
        _, dv, dW = gradients.loss_and_gradient(v + e * a, W + e * B, X, y, P)
        return np.concatenate([dv, dW.ravel()])
    coarse, fine = ((gradient(e) - gradient(-e)) / (2 * e) for e in (2 * h, h))
    return fine + (fine - coarse) / 3


@pytest.mark.derives("hvp.1", "hvp.2", "hvp.3", "hvp.4", "hvp.6")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gap", [1.0, 6.0])
def test_equals_differences_of_the_gradient(shape, gap):
    case = make(*shape, seed=7, gap=gap, v_norm=1.5)
    a, B = direction(case)
    got, steps = product(case, a, B), [2.0 ** -k for k in range(6, 13)]
    errors = [np.abs(difference(case, a, B, h) - got).max() for h in steps]
    assert min(errors) <= 1e-9 * max(1.0, np.abs(got).max())


def test_differences_refuse_a_wrong_product(monkeypatch):
    case = make(4, 3, 2, seed=7, gap=3.0, v_norm=1.5)
    a, B = direction(case)
    right = product(case, a, B)
    for name, planted in [("factor_derivative", lambda y, t, fdot: 0 * fdot),
                          ("score_gradient_derivative", lambda S, Sdot, u, udot, ubardot: 0 * S),
                          ("centred", lambda S, Y: S * (1 - S) * Y)]:
        with monkeypatch.context() as patch:
            patch.setattr(curvature, name, planted)
            assert np.abs(product(case, a, B) - right).max() > 1e-3 * np.abs(right).max(), name


@given(cases(dtypes=("float64",), largest=4), st.integers(0, 2 ** 16))
def test_hessian_is_symmetric(case, seed):
    one, other = direction(case, seed), direction(case, seed + 1)

    def pair(x, y):
        H = product(case, *x)
        y = np.concatenate([y[0], y[1].ravel()])
        return H @ y, np.abs(H) @ np.abs(y)
    (left, size), (right, other_size) = pair(one, other), pair(other, one)
    # entries are rounded sums of terms of second order in u, in scores and in tokens
    v, W, X, y, P = case.floats
    Z = np.concatenate([X, np.broadcast_to(P, (*X.shape[:2], X.shape[1]))], axis=2)
    Q = np.abs(Z).sum(axis=2).max() ** 2
    f = np.abs(Z).sum(axis=2).max() * X.shape[1] * (1 + np.abs(v).max())
    scale = (Q * np.abs(W).max() + f + 1) * (1 + f) ** 2 * (1 + Q) ** 2 * np.abs(one[0]).max() ** 2
    assert abs(left - right) <= 64 * EPS * (size + other_size + scale) * case.W.size


@given(cases(dtypes=("float64",), largest=4))
def test_product_is_linear_in_the_direction(case):
    a, B = direction(case)
    # doubling is exact but for an underflow: one unit of the smallest subnormal number
    np.testing.assert_allclose(product(case, 2 * a, 2 * B), 2 * product(case, a, B), rtol=0, atol=2 * 2.0**-1074)
    assert (product(case, 0 * a, 0 * B) == 0).all()


@pytest.mark.parametrize("gap", [64.0, 512.0])
def test_dominated_scores_keep_their_digits(gap):
    # D = 2, one query in effect: G[k, j] = -S (1 - S) u, and Gdot = -(1 - 2 S) S (1 - S) Adot u with u = 1
    u, A = np.array([[0.0, 1.0]]), np.array([[[gap, 0.0], [gap, 0.0]]])
    S = np.exp(A - gap)
    S = S / S.sum(axis=2, keepdims=True)
    Adot = np.array([[[0.0, 1.0], [0.0, 1.0]]])
    e = np.exp(-gap) / (1 + np.exp(-gap)) ** 2
    Sdot = curvature.centred(S, Adot)
    np.testing.assert_allclose(Sdot[0, 0], [-e, e], rtol=4 * EPS)
    ubardot, _ = curvature.logit_derivative(S, Sdot, u, 0 * u)
    Gdot = curvature.score_gradient_derivative(S, Sdot, u, 0 * u, ubardot)
    np.testing.assert_allclose(Gdot[0, 0], [-e * (1 - np.exp(-gap)), e * (1 - np.exp(-gap))], rtol=8 * EPS)


@pytest.mark.derives("hvp.5")
@given(cases(dtypes=("float64",)), st.integers(1, 3))
def test_squared_norms_are_those_of_single_samples(case, size):
    v, W, X, y, P = case.floats
    norms = loss_and_gradient(v, W, X, y, P, squared_norms=True, chunk=size)[3]
    assert norms.shape == y.shape and (norms >= 0).all()
    for k in range(len(y)):
        _, dv, dW = loss_and_gradient(v, W, X[k:k + 1], y[k:k + 1], P)
        wanted = (dv ** 2).sum() + (dW ** 2).sum()
        scale = _size(v, W, X[k], P) ** 2 * np.minimum(1, _factor(v, W, X[k:k + 1], y[k:k + 1], P)) ** 2
        assert abs(norms[k] - wanted) <= 64 * EPS * (wanted + scale) + np.finfo(float).tiny


def _size(v, W, X, P):
    Z = np.abs(np.concatenate([X, P], axis=1))
    return (Z.sum() + (Z @ np.abs(v)).max() * Z.sum() ** 2) * (1 + Z.sum() ** 2 * np.abs(W).max())


def _factor(v, W, X, y, P):
    from gsref.model import _states
    return float(logistic_factor(y * _states(v, W, X, P)[3])[0])


def test_everything_at_once_is_the_same_as_one_by_one():
    case = make(30, 4, 3, seed=2, gap=3.0)
    a, B = direction(case)
    loss, dv, dW, norms, (Hv, HW) = loss_and_gradient(*case.args, direction=(a, B), squared_norms=True, chunk=7)
    for got, wanted in zip((loss, dv, dW), loss_and_gradient(*case.args)):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())
    f = lambda e: _loss(case.v + e * a, case.W + e * B, *case.args[2:])       # noqa: E731
    curve = (f(1e-3) - 2 * f(0.0) + f(-1e-3)) / 1e-6
    assert abs(curve - (a @ Hv + (B * HW).sum())) <= 1e-4 * abs(curve)
