"""The closed-form gradient of the metalearner against complex step, Richardson, Taylor slopes and plain loops."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gsref.differences import complex_step, richardson, taylor_slope
from gsref.metalearner import model
from gsref.metalearner.model import logit, loss_and_gradient

EPS = np.finfo(float).eps


def case(B, d, seed, margin):
    """(W, muhat, x, y) whose largest margin is `margin` in absolute value; W not symmetric."""
    rng = np.random.default_rng(seed)
    W, muhat, x = rng.standard_normal((d, d)), rng.standard_normal((B, d)), rng.standard_normal((B, d))
    y = rng.choice([-1.0, 1.0], size=B)
    return W * margin / np.abs(model._margins(W, muhat, x, y)).max(), muhat, x, y


def scale(muhat, x, c):
    """The gradient with absolute values of its terms: what its errors are relative to."""
    return (np.abs(muhat).T @ (c[:, None] * np.abs(x)) / len(x)).max()


cases = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6),
                  st.sampled_from([1e-8, 1.0, 12.0, 37.0, 100.0, 800.0]))


@pytest.mark.derives("meta.2", "meta.3")
@given(cases)
def test_gradient_is_the_complex_step(drawn):
    W, muhat, x, y = case(*drawn)
    _, dW = loss_and_gradient(W, muhat, x, y)
    wanted, = complex_step(lambda W: model._loss(W, muhat, x, y), [W])
    c = 1.0 / (1.0 + np.exp(np.clip(model._margins(W, muhat, x, y), -700.0, 700.0)))
    # a margin is off by EPS times the absolute values of its terms, and c with it relatively
    terms = (np.abs(muhat) @ np.abs(W) * np.abs(x)).sum(axis=1)
    tolerance = 8 * EPS * (1 + W.shape[0]) * scale(muhat, x, c * (1 + terms)) + 1e-280
    assert np.abs(dW - wanted).max() <= tolerance


@pytest.mark.parametrize("margin", [0.01, 1.0, 12.0])
def test_gradient_against_richardson_and_taylor(margin):
    W, muhat, x, y = case(5, 4, 3, margin)
    _, dW = loss_and_gradient(W, muhat, x, y)

    def f(W):
        return model._loss(W, muhat, x, y)
    (wanted,), (error,) = richardson(f, [W])
    assert (np.abs(dW - wanted) <= 3 * error + 1e-15).all()
    direction = [np.random.default_rng(1).standard_normal((4, 4))]
    found = taylor_slope(f, [W], [dW], direction)
    assert abs(found.slope - 2.0) <= found.error
    assert taylor_slope(f, [W], [1.01 * dW], direction).slope < 1.5


def test_plain_loops():
    W, muhat, x, y = case(3, 2, 0, 2.0)
    loss, dW, B, d = 0.0, np.zeros((2, 2)), 3, 2
    for i in range(B):
        t = y[i] * sum(muhat[i, a] * W[a, b] * x[i, b] for a in range(d) for b in range(d))
        loss += np.log(1.0 + np.exp(-t)) / B
        for a in range(d):
            for b in range(d):
                dW[a, b] -= y[i] * muhat[i, a] * x[i, b] / (1.0 + np.exp(t)) / B
    got_loss, got_dW = loss_and_gradient(W, muhat, x, y)
    np.testing.assert_allclose(got_loss, loss, rtol=1e-14)
    np.testing.assert_allclose(got_dW, dW, rtol=1e-13)


@given(cases)
def test_duplicating_the_tasks_changes_nothing(drawn):
    W, muhat, x, y = case(*drawn)
    one = loss_and_gradient(W, muhat, x, y)
    two = loss_and_gradient(W, *(np.concatenate([a, a]) for a in (muhat, x, y)))
    np.testing.assert_allclose(two[0], one[0], rtol=1e-14)
    np.testing.assert_allclose(two[1], one[1], rtol=0, atol=1e-14 * scale(muhat, x, np.ones(len(x))))


@given(cases)
def test_flip_of_label_and_query_changes_nothing(drawn):
    W, muhat, x, y = case(*drawn)
    one, two = loss_and_gradient(W, muhat, x, y), loss_and_gradient(W, muhat, -x, -y)
    assert one[0] == two[0] and np.array_equal(one[1], two[1])


def test_at_zero():
    _, muhat, x, y = case(4, 3, 1, 1.0)
    loss, dW = loss_and_gradient(np.zeros((3, 3)), muhat, x, y)
    assert loss == pytest.approx(np.log(2.0), abs=1e-16)
    np.testing.assert_allclose(dW, -muhat.T @ (y[:, None] * x) / 8.0, rtol=1e-14)


def test_large_margins_stay_finite():
    muhat, x, y = np.eye(1), np.ones((1, 1)), np.ones(1)
    for t, loss, factor in ((800.0, 0.0, 0.0), (-800.0, 800.0, 1.0)):
        got = loss_and_gradient(np.array([[t]]), muhat, x, y)
        assert got[0] == pytest.approx(loss, abs=1e-300) and got[1][0, 0] == pytest.approx(-factor, abs=1e-300)


@given(cases, st.booleans())
def test_layout_and_inputs_are_left_alone(drawn, fortran):
    arrays = [np.array(a, order="F" if fortran else "C") for a in case(*drawn)]
    before = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    got, wanted = loss_and_gradient(*arrays), loss_and_gradient(*before)
    np.testing.assert_allclose(got[1], wanted[1], rtol=0, atol=1e-13 * scale(before[1], before[2], np.ones(len(before[2]))))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before))


def test_logit_predicts():
    W, muhat, x, y = case(5, 3, 2, 3.0)
    np.testing.assert_allclose(y * logit(W, muhat, x), model._margins(W, muhat, x, y), rtol=1e-15)


@pytest.mark.parametrize("change, error, message", [
    ({0: np.zeros((2, 2))}, ValueError, r"W: got shape \(2, 2\), expected \(3, 3\)"),
    ({1: np.zeros((0, 3))}, ValueError, "muhat: got shape .* empty axis"),
    ({2: np.zeros((4, 3))}, ValueError, "x: got shape"),
    ({3: np.zeros(5)}, ValueError, "y: got 0 at index 0, expected labels -1 or \\+1"),
    ({3: np.ones((5, 1))}, ValueError, "y: got shape"),
    ({2: np.full((5, 3), np.nan)}, ValueError, "x: got nan at index"),
    ({0: np.eye(3) * 1j}, TypeError, "W: got dtype complex128"),
    ({1: np.full((5, 3), None)}, TypeError, "muhat: got dtype object"),
])
def test_bad_input(change, error, message):
    arguments = list(case(5, 3, 2, 3.0))
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(error, match=message):
        loss_and_gradient(*arguments)


def test_a_wrong_gradient_would_be_seen():
    W, muhat, x, y = case(5, 3, 2, 3.0)
    wanted, = complex_step(lambda W: model._loss(W, muhat, x, y), [W])
    for wrong in (lambda dW: dW.T, lambda dW: 1.001 * dW, lambda dW: dW * len(y)):
        assert np.abs(wrong(loss_and_gradient(W, muhat, x, y)[1]) - wanted).max() > 1e-4 * np.abs(wanted).max()
