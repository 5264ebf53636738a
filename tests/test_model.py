"""The model: its equations one by one, at every size of score and margin, and its answers to bad input."""

import inspect
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cases import cases, make
from gsref import forward
from gsref.gradients import loss_and_gradient
from gsref.model import _attention, _logit, _scores, _values, logistic_factor, logistic_loss, loss

EPS = np.finfo(float).eps


def tokens(X, P):
    return np.concatenate([X, np.broadcast_to(P, (len(X), *P.shape))], axis=2)


@pytest.mark.derives("model.1", "model.3")
@given(cases())
def test_scores_and_values_are_those_of_whole_tokens(case):
    # taken block by block against z_i . W z_j in one piece, right to (d + D) eps of the sum of absolute values
    v, W, X, y, P = case.floats
    Z, size = tokens(X, P), len(v)
    Q = np.einsum("nia,ab,njb->nij", np.abs(Z), np.abs(W), np.abs(Z))
    assert (np.abs(_scores(W, X, P) - np.einsum("nia,ab,njb->nij", Z, W, Z)) <= 4 * size * EPS * Q).all()
    assert (np.abs(_values(v, X, P) - Z @ v) <= 2 * size * EPS * (np.abs(Z) @ np.abs(v))).all()


def test_scores_have_keys_first():
    # one sample, W with one entry: A[i, j] = x_i[0] * x_j[1]
    W = np.zeros((4, 4))
    W[0, 1] = 1.0
    X = np.array([[[2.0, 3.0], [5.0, 7.0]]])
    assert _scores(W, X, np.eye(2))[0].tolist() == [[6.0, 14.0], [15.0, 35.0]]
    assert _scores(W.T, X, np.eye(2))[0].tolist() == [[6.0, 15.0], [14.0, 35.0]]         # rows 3: transposed, it shows


@pytest.mark.derives("model.2")
@given(cases())
def test_columns_of_attention_sum_to_one(case):
    # row 2: over keys, not queries
    f, S = forward(case.v, case.W, case.X, case.P)
    n, D, _ = case.X.shape
    assert S.shape == (n, D, D) and f.shape == (n,) and (S >= 0).all()
    assert (np.abs(S.sum(axis=1) - 1) <= (D + 2) * EPS).all()


def test_rows_of_attention_do_not_sum_to_one():
    S = forward(*(make(3, 2, 3, gap=2.0).args[k] for k in (0, 1, 2, 4)))[1]
    assert (np.abs(S.sum(axis=2) - 1) > 1e-2).any()


@pytest.mark.derives("model.2")
@pytest.mark.parametrize("gap", [0.0, 1.0, 37.0, 700.0, 744.0, 800.0, 1e300])
def test_attention_is_right_at_any_gap(gap):
    for shift in (0.0, 512.0, -4096.0):
        if gap > 1e6 and shift:
            continue
        A = np.array([[[0.0, gap], [gap, 0.0]]]) + shift
        S = _attention(A)[0]
        with localcontext() as context:
            context.prec = 400
            small = Decimal(-gap).exp() if gap < 1e4 else Decimal(0)
            exact = float(small / (1 + small)), float(1 / (1 + small))
        np.testing.assert_allclose(S, [[exact[0], exact[1]], [exact[1], exact[0]]], rtol=4 * EPS, atol=5e-324)


def test_every_query_has_its_own_shift():
    # row 13: scores (0, 1) in one sample, (800, 801) and (-800, -801) in others, and in columns of one sample
    A = np.array([[[0.0, 800.0], [1.0, 801.0]], [[-800.0, 0.0], [-801.0, -1.0]]])
    low, high = 1 / (1 + np.e), np.e / (1 + np.e)
    np.testing.assert_allclose(_attention(A), [[[low, low], [high, high]], [[high, high], [low, low]]], rtol=4 * EPS)
    E = np.exp(A - A.max())                      # one maximum for the batch, planted: 0/0
    with np.errstate(invalid="ignore"):
        assert np.isnan(E / E.sum(axis=1, keepdims=True)).any()


@pytest.mark.derives("model.4")
@given(cases())
def test_logit_is_the_sum_of_the_mean_values(case):
    v, W, X, y, P = case.floats
    f, S = forward(v, W, X, P)
    u = _values(v, X, P)
    D = X.shape[1]
    expected = sum(S[:, i, j] * u[:, i] for i in range(D) for j in range(D))
    assert (np.abs(f - expected) <= 2 * D * D * EPS * np.einsum("nij,ni->n", S, np.abs(u)) + 5e-324).all()
    assert (_logit(np.full_like(S, 1 / D), np.ones_like(u)) == pytest.approx(D))


# the loss

def exact_loss(t):
    with localcontext() as context:
        context.prec = 400
        return (1 + Decimal(-t).exp()).ln(), 1 / (1 + Decimal(t).exp())


@pytest.mark.derives("model.5", "model.6")
@pytest.mark.parametrize("t", [0.0, -0.0, 1e-300, 1e-8, -1e-8, 0.5, -0.5, 1.0, -1.0, 37.5, -37.5, 50.0, -50.0, 100.0,
                               -100.0, 708.0, -708.0, 745.0, 800.0, -800.0])
def test_loss_and_factor_are_right_at_any_margin(t):
    # rows 10, 11; relative, so that small ones are right too; 5e-324 is the spacing where they become subnormal
    wanted = exact_loss(t)
    for got, exact in zip((logistic_loss(t), logistic_factor(t)), wanted):
        assert np.isfinite(got)
        assert abs(Decimal(float(got)) - exact) <= Decimal(3 * EPS) * exact + Decimal(5e-324)


def test_factor_at_margin_zero_is_a_half():
    assert logistic_factor(0.0) == 0.5 == logistic_factor(-0.0)
    assert logistic_loss(0.0) == np.log(2) == logistic_loss(-0.0)


@pytest.mark.parametrize("planted", [
    lambda t: np.log(1 + np.exp(-t)), lambda t: np.log1p(np.exp(-t)) if t > -700 else 700.0])
def test_the_loss_test_refuses_the_usual_mistakes(planted):
    # log(1 + e^-t) loses everything at t = 37.5; a cut-off is wrong at t = -800
    off = [t for t in (37.5, -800.0) if not abs(Decimal(float(_quiet(planted, t))) - exact_loss(t)[0])
           <= Decimal(3 * EPS) * exact_loss(t)[0]]
    assert off


def _quiet(f, t):
    with np.errstate(over="ignore"):
        return f(t)


@pytest.mark.derives("model.6")
@given(st.floats(-800, 800))
def test_factors_of_opposite_margins_sum_to_one(t):
    assert abs(logistic_factor(t) + logistic_factor(-t) - 1) <= 2 * EPS


@given(cases())
def test_loss_is_the_mean_over_samples(case):
    v, W, X, y, P = case.floats
    f, _ = forward(v, W, X, P)
    t, n = y * f, len(y)
    expected = sum(float(logistic_loss(s)) for s in t) / n
    assert abs(loss(*case.args) - expected) <= (n + 4) * EPS * expected + n * 5e-324 + _layout_error(case)
    assert loss(v, W, X, y, P) == loss_and_gradient(v, W, X, y, P)[0]


def _layout_error(case):
    from cases import margin_error
    v, W, X, y, P = case.floats
    return 4 * len(v) * EPS * margin_error(v, W, X, P).max()


def test_mean_of_huge_losses_does_not_overflow():
    # two samples of loss 1.5e308
    assert loss([1.5e308, 0.0], np.zeros((2, 2)), [[[1.0]], [[1.0]]], [-1, -1], [[1.0]]) == pytest.approx(1.5e308)


# bad input, for every public function that takes arrays

GOOD = {"v": np.ones(5), "W": np.ones((5, 5)), "X": np.ones((4, 3, 2)), "y": np.array([1, -1, 1, 1]),
        "P": np.ones((3, 3))}
BAD = [
    ("v", np.ones(4), ValueError, r"got shape \(4,\), expected \(5,\)"),
    ("v", np.ones((5, 1)), ValueError, r"got shape \(5, 1\)"),
    ("v", np.full(5, np.nan), ValueError, "got nan at index"),
    ("v", np.ones(5, complex), TypeError, "got dtype complex128"),
    ("v", np.ones(5, object), TypeError, "got dtype object"), ("v", None, TypeError, "got dtype object"),
    ("W", np.ones((5, 4)), ValueError, r"got shape \(5, 4\), expected \(5, 5\)"),
    ("W", np.ones(25), ValueError, r"got shape \(25,\)"),
    ("W", np.full((5, 5), np.inf), ValueError, "got inf at index"),
    ("W", np.ones((5, 5)) * 1j, TypeError, "got dtype complex128"), ("W", "text", TypeError, "got dtype <U4"),
    ("X", np.ones((0, 3, 2)), ValueError, r"got shape \(0, 3, 2\) \(an empty axis\), expected \(n, D, d\)"),
    ("X", np.ones((4, 0, 2)), ValueError, r"got shape \(4, 0, 2\) \(an empty axis\)"),
    ("X", np.ones((3, 2)), ValueError, r"got shape \(3, 2\)"),
    ("X", np.full((4, 3, 2), -np.inf), ValueError, "got -inf at index"),
    ("X", np.ones((4, 3, 2), complex), TypeError, "got dtype complex128"),
    ("X", [[[1, 2]], [[1]]], ValueError, "got a ragged sequence"),
    ("X", np.ones((4, 3, 2), bool), TypeError, "got dtype bool"),
    ("P", np.ones((3, 2)), ValueError, r"got shape \(3, 2\), expected \(3, 3\)"),
    ("P", np.full((3, 3), np.nan), ValueError, "got nan at index"),
    ("P", np.ones((3, 3), object), TypeError, "got dtype object"),
    ("y", [0, 1, 1, 1], ValueError, "got 0 at index 0, expected labels -1 or"),
    ("y", [[1], [1], [1], [1]], ValueError, r"got shape \(4, 1\), expected \(4,\)"),
    ("y", [1, 1, 1], ValueError, r"got shape \(3,\)"), ("y", [1, 1, 1, np.nan], ValueError, "got nan at index"),
    ("y", [1j, 1, 1, 1], TypeError, "got dtype complex128"), ("y", [True] * 4, TypeError, "got dtype bool"),
    ("y", [], ValueError, r"got shape \(0,\)"),
]


@pytest.mark.parametrize("function", [forward, loss, loss_and_gradient])
@pytest.mark.parametrize("name, value, error, message", BAD)
def test_bad_input_is_named(function, name, value, error, message):
    names = list(inspect.signature(function).parameters)
    if name in names:
        with pytest.raises(error, match=f"^{name}: {message}"):
            function(**{**{k: GOOD[k] for k in names}, name: value})
    else:
        assert name == "y" and function is forward


@pytest.mark.parametrize("function", [forward, loss, loss_and_gradient])
def test_lists_are_taken(function):
    names = list(inspect.signature(function).parameters)
    got = function(*(GOOD[k].tolist() for k in names))
    wanted = function(*(GOOD[k] for k in names))
    for a, b in [(got, wanted)] if function is loss else zip(got, wanted):
        np.testing.assert_array_equal(a, b)


def test_overflow_of_forward_is_named():
    with pytest.raises(OverflowError, match="^scores: overflow at index"):
        forward(np.ones(2), np.full((2, 2), 1e308), [[[1e10]]], [[1.0]])
    with pytest.raises(OverflowError, match="^values: overflow at index"):
        loss([1e308, 0.0], np.zeros((2, 2)), [[[1e10]]], [1], [[1.0]])
