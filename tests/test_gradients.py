"""The closed-form gradient against complex step, Richardson, Taylor slopes and 50-digit loops, and its identities."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import event, example, given, settings, strategies as st

from cases import BLOCKS, Case, blocks, cases, failures, make, margin_error, scales
from gsref import gradients, model
from gsref.differences import complex_step, richardson, taylor_slope
from gsref.gradients import loss_and_gradient, query_key_gradient, score_gradient, value_gradient
from gsref.model import _attention, _loss, _scores, _values, logistic_factor
from gsref.problem import positions
from reference import reference

EPS = np.finfo(float).eps
SHAPES = [(2, 3, 4), (4, 3, 2), (3, 4, 2), (1, 3, 2), (3, 1, 2), (3, 2, 1), (1, 1, 3), (1, 2, 1), (2, 1, 1), (1, 1, 1)]


def gradient(case):
    _, dv, dW = loss_and_gradient(*case.args)
    return blocks(dv, dW, case.X.shape[2])


def of_parameters(case):
    """The loss as a function of (v, W), and the point."""
    v, W, X, y, P = case.floats
    return (lambda v, W: _loss(v, W, X, y, P)), [v, W]


# against complex step

def complex_step_failures(case, got):
    """Blocks that differ from complex step by more than 1e-12 of the scale of methods that form f first.

    Where a margin is a difference of far larger terms, its rounding error, which s(-t) turns into a relative one, comes
    on top: it is above 1e-12 only if these terms exceed 4500.
    Below tiny / step an imaginary part underflows; the terms of an entry are fewer than 1000.
    """
    f, point = of_parameters(case)
    step = 2.0 ** -66
    wanted = blocks(*complex_step(f, point, step), case.X.shape[2])
    floor = 1000 * np.finfo(float).tiny / step
    v, W, X, y, P = case.floats
    relative = 1e-12 + EPS * margin_error(v, W, X, P).max()
    scale = scales(v, W, X, y, P, formed_from_f=True)
    return failures(got, wanted, {name: relative * scale[name] + floor for name in BLOCKS})


@pytest.mark.derives("grad.1", "grad.2", "grad.3", "grad.4", "grad.5")
@given(cases())
@example(make(2, 3, 4, gap=800.0, margin=800.0))
@example(make(2, 3, 4, gap=800.0, margin=-800.0))
@example(make(3, 4, 2, v_norm=0.0))
def test_closed_form_equals_complex_step(case):
    assert complex_step_failures(case, gradient(case)) == []


@pytest.mark.slow
@settings(max_examples=3000)
@given(cases(largest=8))
def test_closed_form_equals_complex_step_widely(case):
    assert complex_step_failures(case, gradient(case)) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_closed_form_equals_complex_step_relative_to_the_block_itself(shape):
    # where nothing cancels and nothing saturates no scale is needed: 1e-12 of the block's own largest entry
    case = make(*shape, seed=3, gap=2.0, v_norm=1.0)
    f, point = of_parameters(case)
    wanted = blocks(*complex_step(f, point), shape[2])
    assert failures(gradient(case), wanted, {name: 1e-12 * np.abs(wanted[name]).max() for name in BLOCKS}) == []


# against Richardson differences

def loss_error(case, step=2.0 ** -10):
    """A bound of the rounding error of the mean loss within `step` of the case: margins' errors times l', and its own.

    A dot product of m terms is right to m eps of the sum of absolute values; the longest chain is three of them.
    |l'| = s(-t) <= 1, and within a step that moves t by at most r, s(-t) grows by at most e^r.  The scale of a single
    sample bounds |dt/dv| and |dt/dW| at the case; twice that is allowed for within the step.
    """
    v, W, X, y, P = case.floats
    n, D, d = X.shape
    f = np.einsum("nij,ni->n", _attention(_scores(W, X, P)), _values(v, X, P))
    slope = np.array([max(scales(v, W, X[k:k + 1], np.array([-np.sign(f[k]) or 1.0]), P, formed_from_f=True).values())
                      for k in range(n)]) * 2      # at a wrong label s(-t) >= 1/2
    weight = np.minimum(1.0, logistic_factor(y * f) * np.exp(np.minimum(2 * step * slope, 700.0)))
    return EPS * (3 * (d + D) + D + 10) * ((weight * margin_error(v, W, X, P)).mean() + 2 * _loss(v, W, X, y, P))


@settings(max_examples=40)
@given(cases(largest=3))
@example(make(2, 3, 1, gap=800.0, margin=800.0))
@example(make(1, 3, 2, gap=40.0, margin=-38.0))
def test_closed_form_equals_richardson_within_its_error(case):
    f, point = of_parameters(case)
    (dv, dW), errors = richardson(f, point, f_error=loss_error(case))
    d = case.X.shape[2]
    assert failures(gradient(case), blocks(dv, dW, d), blocks(*errors, d)) == []


@pytest.mark.slow
@settings(max_examples=1000)
@given(cases(largest=5))
def test_closed_form_equals_richardson_within_its_error_widely(case):
    f, point = of_parameters(case)
    (dv, dW), errors = richardson(f, point, f_error=loss_error(case))
    d = case.X.shape[2]
    assert failures(gradient(case), blocks(dv, dW, d), blocks(*errors, d)) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_richardson_is_accurate_enough_to_mean_something(shape):
    case = make(*shape, seed=4, gap=3.0, v_norm=2.0)
    f, point = of_parameters(case)
    values, errors = richardson(f, point, f_error=loss_error(case))
    d, scale = shape[2], scales(*case.floats, formed_from_f=True)
    errors, got = blocks(*errors, d), gradient(case)
    assert failures(got, blocks(*values, d), errors) == []
    # three orders below the smallest planted fault, one per cent
    assert all(errors[name].max() <= 1e-5 * scale[name] for name in BLOCKS)


# Taylor slope

def taylor(case, dv, dW, seed=11):
    rng = np.random.default_rng(seed)
    f, point = of_parameters(case)
    direction = [rng.choice([-1.0, 1.0], part.shape) for part in point]
    return taylor_slope(f, point, [dv, dW], direction, step=0.25, f_error=loss_error(case, step=0.25))


@settings(max_examples=60)
@given(cases(largest=4))
def test_taylor_slope_is_two(case):
    _, dv, dW = loss_and_gradient(*case.args)
    result = taylor(case, dv, dW)
    event("remainder within rounding" if np.isnan(result.slope) else f"power law seen: {result.error < np.inf}")
    if np.isnan(result.slope):                   # then linear to rounding: what must hold is that nothing is left over
        assert (np.abs(result.remainders) <= 100 * result.noise).sum() >= len(result.steps) - 2
    else:
        assert result.slope >= 2 - result.error


@pytest.mark.parametrize("shape", SHAPES)
def test_taylor_slope_is_two_where_it_can_be_seen(shape):
    case = make(*shape, seed=6, gap=3.0, v_norm=2.0)
    _, dv, dW = loss_and_gradient(*case.args)
    result = taylor(case, dv, dW)
    assert abs(result.slope - 2) <= result.error <= 0.2


# known-wrong gradients: every checker above must refuse every one

def _zeroed(name):
    def wrong(dv, dW, d):
        blocks(dv, dW, d)[name][...] = 0.0       # the blocks are views
        return dv, dW
    return wrong


def _one_entry(dv, dW, d):
    dW[1, -1] *= 1.01
    return dv, dW


WRONG = {
    **{f"no {name}": _zeroed(name) for name in BLOCKS},
    "W transposed": lambda dv, dW, d: (dv, dW.T.copy()),
    "one entry off by 1%": _one_entry,
    "sum for mean": lambda dv, dW, d: (4 * dv, 4 * dW),
    "sign": lambda dv, dW, d: (-dv, -dW),
    "sign of v only": lambda dv, dW, d: (-dv, dW),
    "blocks swapped": lambda dv, dW, d: (np.roll(dv, d), dW),
    "NaN": lambda dv, dW, d: (dv, np.where(np.arange(dW.size).reshape(dW.shape) == 5, np.nan, dW)),
}
DISCRIMINATING = make(4, 3, 2, seed=8, gap=3.0, v_norm=1.5)


def _broken_jacobian(A, S, u):
    return S * (1 - S) * u[:, :, None]           # only the diagonal of diag(S) - S S^T


def _softmax_over_queries(A):
    E = np.exp(A - A.real.max(axis=2, keepdims=True))
    return E / E.sum(axis=2, keepdims=True)


def _naive(A, S, u):
    return S * (u[:, :, None] - np.einsum("nij,ni->nj", S, u)[:, None, :])


@pytest.mark.parametrize("name", WRONG)
def test_every_checker_refuses_a_wrong_gradient(name):
    case = DISCRIMINATING
    _, dv, dW = loss_and_gradient(*case.args)
    dv, dW = WRONG[name](dv, dW, 2)
    got = blocks(dv, dW, 2)
    assert complex_step_failures(case, got)
    f, point = of_parameters(case)
    values, errors = richardson(f, point, f_error=loss_error(case))
    assert failures(got, blocks(*values, 2), blocks(*errors, 2))
    assert reference_failures(case, got)
    if name != "NaN":                            # a slope is for finite gradients
        result = taylor(case, dv, dW)
        assert abs(result.slope - 1) <= result.error <= 0.2


@pytest.mark.parametrize("target, planted", [
    ("score_gradient", _broken_jacobian), ("logistic_factor", lambda t: 1 / (1 + np.exp(-t)))])
def test_checker_refuses_a_fault_planted_in_the_code(monkeypatch, target, planted):
    monkeypatch.setattr(gradients, target, planted)
    assert complex_step_failures(DISCRIMINATING, gradient(DISCRIMINATING))
    assert reference_failures(DISCRIMINATING, gradient(DISCRIMINATING))


@pytest.mark.parametrize("target, planted", [
    ("_attention", _softmax_over_queries), ("_scores", lambda W, X, P: _scores(W.T, X, P)),
    ("_scores", lambda W, X, P: _scores(W, X, P) / np.sqrt(X.shape[2])),
    ("_logit", lambda S, u: np.einsum("nij,ni->n", S, u) / u.shape[1])])
def test_reference_refuses_a_fault_planted_in_the_model(monkeypatch, target, planted):
    # rows 1, 2, 3: faults of the model, which complex step shares with the gradient, are seen from outside only
    monkeypatch.setattr(model, target, planted)
    assert reference_failures(DISCRIMINATING, gradient(DISCRIMINATING))


def test_failure_names_block_and_entry():
    _, dv, dW = loss_and_gradient(*DISCRIMINATING.args)
    dW[3, 0] *= 1.01
    [line] = complex_step_failures(DISCRIMINATING, blocks(dv, dW, 2))
    assert line.startswith("W21[1, 0]: got ")


# against 50 digits

EXACT = {}                                       # 50-digit results by case: one case serves many tests


def fifty_digits(case):
    """loss (Decimal), {block: gradient rounded to float64}."""
    if case.text not in EXACT:
        loss, dv, dW = reference(*case.floats)
        EXACT[case.text] = loss, {name: part.astype(float) for name, part in
                                  blocks(np.array(dv), np.array(dW), case.X.shape[2]).items()}
    return EXACT[case.text]


def reference_failures(case, got, ulps=8):
    """Blocks that differ from the 50-digit loops by more than `ulps` units of the scale of the closed form.

    The inputs are floats, but scores, values and margins are rounded, and exponentials turn absolute errors into
    relative ones: the scale is multiplied by 1 + (largest error of a score or margin in units of eps).
    """
    v, W, X, y, P = case.floats
    n, D, d = X.shape
    _, wanted = fifty_digits(case)
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    Q = np.einsum("nia,ab,njb->nij", np.abs(Z), np.abs(W), np.abs(Z)).max()
    condition = 1 + 2 * Q + margin_error(v, W, X, P).max()
    return failures(got, wanted, {k: ulps * EPS * condition * s for k, s in scales(v, W, X, y, P).items()})


REFERENCE_CASES = [
    make(2, 3, 2, seed=1), make(3, 2, 1, seed=2, gap=5.0), make(1, 3, 2, seed=3, gap=800.0),
    make(2, 3, 1, seed=4, gap=60.0),
    make(2, 2, 2, seed=5, margin=38.0), make(1, 2, 3, seed=6, margin=800.0),
    make(2, 3, 1, seed=7, margin=-800.0, gap=50.0),
    make(1, 1, 2, seed=8), make(2, 2, 1, seed=9, v_norm=0.0), make(1, 2, 2, seed=10, v_norm=1e-8),
    make(1, 3, 1, seed=12, gap=0.0),
    make(2, 3, 2, seed=11, free_positions=True, gap=20.0)]


@pytest.mark.derives("grad.2")
@pytest.mark.parametrize("case", REFERENCE_CASES, ids=repr)
def test_closed_form_equals_fifty_digits(case):
    assert reference_failures(case, gradient(case)) == []


@pytest.mark.parametrize("case", REFERENCE_CASES, ids=repr)
def test_loss_equals_fifty_digits(case):
    v, W, X, y, P = case.floats
    exact, _ = fifty_digits(case)
    got = loss_and_gradient(*case.args)[0]
    s = np.mean(logistic_factor(y * np.einsum("nij,ni->n", _attention(_scores(W, X, P)), _values(v, X, P)))
                * margin_error(v, W, X, P))
    assert abs(float(Fraction(got) - Fraction(exact))) <= 8 * EPS * (s + float(exact))


def dyadic(gap, margin):
    """n = 2, D = 3, d = 2 with inputs of few binary digits: scores and values are exact in float64.

    Key 0 dominates both others by `gap` for every query of sample 0.
    """
    X = np.array([[[1.0, 0.5], [-0.5, 0.25], [0.75, -1.0]], [[0.25, 1.5], [-1.0, 0.5], [0.5, 0.5]]])
    P = np.array([[1.0, 0.5, 0.25], [0.25, 1.0, -0.5], [-0.5, 0.75, 1.0]])
    W = np.zeros((5, 5))
    W[2:, 2:] = gap * np.array([[1, 0.5, 0.75], [0.25, 0.0, 0.5], [-0.5, 0.25, 0.0]])
    W[:2, :2] = [[0.5, -0.25], [1.0, 0.75]]
    W[:2, 2:], W[2:, :2] = 0.25, -0.5
    v = margin * np.array([0.25, -0.5, 1.0, 0.75, -0.25])
    return make_from(v, W, X, np.array([1.0, -1.0]), P, f"dyadic({gap}, {margin})")


def make_from(v, W, X, y, P, text=""):
    return Case(v, W, X, y, P, text)


@pytest.mark.parametrize("gap", [1.0, 8.0, 64.0, 512.0])
@pytest.mark.parametrize("size", [0.5, 8.0])
def test_dominated_scores_keep_their_digits(gap, size):
    # scores are exact here, so that nothing but the formula stands between the result and a few units in the last place
    # of each block; without the exact zero of the dominating key the same bar fails, and so it means something
    case = dyadic(gap, size)
    v, W, X, y, P = case.floats
    n, D, d = X.shape
    A = _scores(W, X, P)
    _, wanted = fifty_digits(case)
    t = 1 + (np.abs(_values(v, X, P)) * _attention(A).sum(axis=2)).sum(axis=1).max()       # condition of s(-t)
    allowed = {k: 4 * EPS * t * s for k, s in scales(v, W, X, y, P).items()}
    assert failures(gradient(case), wanted, allowed) == []
    if gap >= 64:
        c = -y * logistic_factor(y * (_values(v, X, P) * _attention(A).sum(axis=2)).sum(axis=1)) / n
        S, u = _attention(A), _values(v, X, P)
        naive = blocks(value_gradient(c, S, X, P), query_key_gradient(c, _naive(A, S, u), X, P), d)
        assert {line[:3] for line in failures(naive, wanted, allowed)} >= {"W11", "W12", "W21", "W22"}


@pytest.mark.derives("grad.2")
@pytest.mark.parametrize("gap", [0.0, 1.0, 37.43, 50.0, 700.0])
def test_one_dominating_score(gap):
    # row 12: values (0, 1), scores (0, gap): the derivative is -+ e^-gap / (1 + e^-gap)^2
    A, u = np.array([[[0.0, 0.0], [gap, gap]]]), np.array([[0.0, 1.0]])
    G = score_gradient(A, _attention(A), u)[0, :, 0]
    exact = np.exp(-gap) / (1 + np.exp(-gap)) ** 2
    np.testing.assert_allclose(G, [-exact, exact], rtol=4 * EPS)
    if gap >= 37.43:                             # the plain form loses the second: shown, so that the check can fail
        assert _naive(A, _attention(A), u)[0, 1, 0] == 0.0


# identities

@given(cases())
def test_columns_of_G_sum_to_zero(case):
    v, W, X, y, P = case.floats
    A, u = _scores(W, X, P), _values(v, X, P)
    S = _attention(A)
    G = score_gradient(A, S, u)
    D = X.shape[1]
    spread = np.abs(u[:, :, None] - np.take_along_axis(u, A.argmax(axis=1), axis=1)[:, None, :])
    # D entries, each rounded twice, and columns of S that sum to one to D units
    allowed = (2 * D + 4) * EPS * np.einsum("nij,nij->nj", S, spread)
    assert (np.abs(G.sum(axis=1)) <= allowed + 4 * D * np.finfo(float).tiny).all()


def test_columns_of_a_diagonal_jacobian_do_not_sum_to_zero():
    v, W, X, y, P = DISCRIMINATING.floats
    A, u = _scores(W, X, P), _values(v, X, P)
    assert (np.abs(_broken_jacobian(A, _attention(A), u).sum(axis=1)) > 1e-3).any()


@given(st.integers(0, 2 ** 32 - 1), st.integers(-1000, 1000))
def test_shift_of_the_scores_of_a_query_changes_nothing(seed, shift):
    # integer scores, so that the shifted ones are exact: equal bit for bit
    rng = np.random.default_rng(seed)
    A, u = rng.integers(-50, 50, (3, 4, 4)).astype(float), rng.standard_normal((3, 4))
    moved = A.copy()
    moved[:, :, 2] += shift
    np.testing.assert_array_equal(_attention(moved), _attention(A))
    np.testing.assert_array_equal(score_gradient(moved, _attention(moved), u), score_gradient(A, _attention(A), u))


def same(case, other, ulps=16):
    """Equal up to the order of summation: `ulps` of the scale, times the condition of scores and margins."""
    v, W, X, y, P = case.floats
    n, D, d = X.shape
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    condition = (1 + 2 * np.einsum("nia,ab,njb->nij", np.abs(Z), np.abs(W), np.abs(Z)).max()
                 + margin_error(v, W, X, P).max())
    return failures(gradient(case), gradient(other), {k: ulps * EPS * condition * s + np.finfo(float).tiny
                                                      for k, s in scales(v, W, X, y, P).items()})


@given(cases(dtypes=("float64",)), st.randoms(use_true_random=False))
def test_permuting_tokens_together_with_positions_changes_nothing(case, random):
    order = random.sample(range(case.X.shape[1]), case.X.shape[1])
    assert same(case, make_from(case.v, case.W, case.X[:, order], case.y, case.P[order])) == []


def test_permuting_tokens_alone_changes_something():
    case = DISCRIMINATING
    assert same(case, make_from(case.v, case.W, case.X[:, [1, 2, 0]], case.y, case.P))


@given(cases(dtypes=("float64",)))
def test_duplicating_the_batch_changes_nothing(case):
    twice = make_from(case.v, case.W, np.concatenate([case.X, case.X]), np.concatenate([case.y, case.y]), case.P)
    assert same(case, twice) == []


@given(cases())
def test_flipping_labels_and_values_flips_dv_only(case):
    v, W, X, y, P = case.floats                  # one layout, so that sums run in one order: equal bit for bit
    loss, dv, dW = loss_and_gradient(v, W, X, y, P)
    flipped = loss_and_gradient(-v, W, X, -y, P)
    assert loss == flipped[0]
    np.testing.assert_array_equal(flipped[1], -dv)
    np.testing.assert_array_equal(flipped[2], dW)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2 ** 32 - 1))
def test_equal_tokens_give_no_dW(n, D, d, seed):
    # rows 5: integers, so that equal tokens have equal scores and values to the last bit
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.integers(-3, 4, (n, 1, d)), D, axis=1)
    P = np.repeat(rng.integers(-3, 4, (1, D)), D, axis=0)
    v, W, y = rng.integers(-3, 4, d + D), rng.integers(-3, 4, (d + D, d + D)), rng.choice([-1, 1], n)
    _, dv, dW = loss_and_gradient(v, W, X, y, P)
    assert dW.shape == W.shape and (dW == 0).all()


def test_equal_tokens_give_a_dW_with_only_the_diagonal_of_the_jacobian(monkeypatch):
    monkeypatch.setattr(gradients, "score_gradient", _broken_jacobian)
    _, _, dW = loss_and_gradient(np.ones(5), np.ones((5, 5)), np.ones((2, 3, 2)), [1, -1], np.ones((3, 3)))
    assert (dW != 0).any()


@given(cases(), st.integers(1, 3))
def test_one_token_gives_no_dW(case, d):
    n = len(case.y)
    rng = np.random.default_rng(n)
    v, W = rng.standard_normal(d + 1), 100 * rng.standard_normal((d + 1, d + 1))
    _, dv, dW = loss_and_gradient(v, W, rng.standard_normal((n, 1, d)), case.y, positions(1))
    assert dv.shape == (d + 1,) and dW.shape == (d + 1, d + 1) and (dW == 0).all() and (dv != 0).any()


@pytest.mark.derives("grad.5")
@given(cases())
def test_zero_values_give_log_two_a_factor_of_a_half_and_no_dW(case):
    # row 10; the zeros are of both signs, and so are the margins
    _, W, X, y, P = case.floats
    for zero in (0.0, -0.0):
        loss, dv, dW = loss_and_gradient(np.full(case.v.shape, zero), W, X, y, P)
        assert abs(loss - np.log(2)) <= len(y) * EPS and (dW == 0).all()
        half = value_gradient(-y / (2 * len(y)), _attention(_scores(W, X, P)), X, P)
        np.testing.assert_array_equal(dv, half)


def test_margins_of_any_size_in_one_batch():
    # row 11: D = 1, so f = v . z = v1 x: margins +-50, +-100, +-800 together
    t = np.array([50.0, -50.0, 100.0, -100.0, 800.0, -800.0])
    loss, dv, dW = loss_and_gradient([1.0, 0.0], np.zeros((2, 2)), t[:, None, None], np.ones(6), [[1.0]])
    assert loss == pytest.approx((50 + 100 + 800) / 6, rel=4 * EPS)
    assert dv[0] == pytest.approx((50 + 100 + 800) / 6, rel=4 * EPS)         # -mean of s(-t) t
    assert np.isfinite(dv).all() and (dW == 0).all()


@given(cases())
def test_layout_and_dtype_do_not_matter_and_inputs_stay(case):
    before = [a.copy() for a in case.args]
    got = gradient(case)
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(case.args, before))
    assert same(make_from(*case.floats), case) == []
    assert all(part.dtype == np.float64 for part in got.values())


@pytest.mark.parametrize("axis", ["n", "D", "d"])
def test_axes_of_length_one_keep_their_place(axis):
    # row 14
    n, D, d = {"n": (1, 3, 2), "D": (4, 1, 2), "d": (4, 3, 1)}[axis]
    _, dv, dW = loss_and_gradient(*make(n, D, d).args)
    assert dv.shape == (d + D,) and dW.shape == (d + D, d + D)


def test_a_case_of_ones_cannot_tell_a_transposed_W():
    # row 3: with n = D = d = 1 dW = 0 whatever is wrong with it; the shapes above are there because of this
    _, _, dW = loss_and_gradient(*make(1, 1, 1).args)
    assert (dW == dW.T).all()
    _, _, dW = loss_and_gradient(*DISCRIMINATING.args)
    assert (np.abs(dW - dW.T) > 1e-3).any()


# what exceeds float64 is named, and never NaN

def big(**changed):
    arguments = {"v": np.ones(3), "W": np.eye(3), "X": np.ones((1, 2, 1)), "y": [1.0], "P": np.eye(2), **changed}
    return loss_and_gradient(**arguments)


@pytest.mark.parametrize("changed, message", [
    ({"W": np.full((3, 3), 1e308), "X": np.full((1, 2, 1), 1e10)}, r"scores: overflow at index \(0, 0, 0\)"),
    ({"W": np.full((3, 3), 1e308) * [1, -1, 1], "X": np.full((1, 2, 1), 1e10)}, "scores: overflow"),
    ({"v": np.array([1e308, 0, 0]), "X": np.array([[[1.0], [1e10]]])}, r"values: overflow at index \(0, 1\)"),
    ({"v": np.array([1e308, 0, 0])}, r"logit: overflow at index \(0,\)"),
    ({"X": np.full((1, 2, 1), 1e200), "W": np.zeros((3, 3)), "v": np.array([-1e-200, 1.0, 0.0])}, "dW: overflow"),
])
def test_overflow_is_an_error_that_names_it(changed, message):
    with pytest.raises(OverflowError, match=message):
        big(**changed)


def test_huge_scores_are_fine_as_long_as_they_are_finite():
    # scores +-1.6e308: their difference overflows, its exponential is rightly zero
    loss, dv, dW = big(W=np.diag([0.0, 1.6e308, -1.6e308]), P=np.array([[1.0, 0.1], [0.1, -1.0]]))
    assert np.isfinite(loss) and np.isfinite(dv).all() and np.isfinite(dW).all()


def test_subnormal_features_lose_nothing_but_themselves():
    tiny = 2.0 ** -1070
    X = np.array([[[tiny, -3 * tiny], [2 * tiny, 5 * tiny]]])
    v, W, P = np.array([1.0, 2.0, 0.5, -0.25]), np.arange(16.0).reshape(4, 4) / 8, positions(2)
    loss, dv, dW = loss_and_gradient(v, W, X, [1], P)
    zero = loss_and_gradient(v, W, 0 * X, [1], P)
    assert loss == zero[0]
    np.testing.assert_array_equal(dW[2:, 2:], zero[2][2:, 2:])
    _, exact_dv, exact_dW = reference(v, W, X, [1.0], P)
    # features are multiples of 2^-1074: below 2^-1022 a unit is that, whatever the size
    np.testing.assert_allclose(dv[:2], np.array(exact_dv[:2], dtype=float), rtol=0, atol=4 * 2.0 ** -1074)
    np.testing.assert_allclose(dW[:2], np.array(exact_dW[:2], dtype=float), rtol=0, atol=16 * 2.0 ** -1074)
