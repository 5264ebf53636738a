"""Position-only closed forms: against 50-digit attention and unfolded integrals, over the whole range of arguments."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from gsref import OrderParameters, Problem, population
from gsref.position_only import half_normal_integrals, position_attention, position_only


def panels(smallest, top):
    """Gauss-Legendre nodes and weights in extended precision on [0, top], panels doubling from smallest/8."""
    x, w = (array.astype(np.longdouble) for array in np.polynomial.legendre.leggauss(24))
    edges = [0.0, smallest / 8]
    while edges[-1] < top:
        edges.append(min(2 * edges[-1], top))
    low, high = (np.array(side, dtype=np.longdouble)[:, None] for side in (edges[:-1], edges[1:]))
    return ((high + low + (high - low) * x) / 2).ravel(), ((high - low) * w / 2).ravel()


@pytest.mark.derives("quad.1")
@given(st.floats(-10, 8.5).map(lambda x: 10**x))
@settings(max_examples=60)
def test_three_integrals_at_every_slope(beta):
    z, w = panels(min(1.0, 1 / beta), 12.0)
    w = w * np.exp(-z * z / 2) * np.sqrt(np.longdouble(2) / np.pi)
    e = np.exp(-np.longdouble(beta) * z)
    wanted = [np.sum(w * np.log1p(e)), np.sum(w * z * e / (1 + e)), np.sum(w * e / (1 + e)**2)]
    np.testing.assert_allclose(half_normal_integrals(beta), np.array(wanted, dtype=float), rtol=1e-13)


def decimal_attention(D, order):
    """S_rr, 1 - S_rr, S_ro, S_oo, 1 - S_ro from exponentials of 60 digits."""
    with localcontext() as context:
        context.prec = 60
        k, m_rr, m_ro, m_oo = D - 1, *(Decimal(x) for x in (order.m_rr, order.m_ro, order.m_oo))
        e_r, e_o = m_rr.exp(), (-m_rr / k).exp()
        own, rest = m_oo.exp(), (D - 2) * (-(m_ro + m_oo) / (D - 2)).exp() if D > 2 else Decimal(0)
        key = m_ro.exp()
        return [float(x) for x in (e_r / (e_r + k * e_o), k * e_o / (e_r + k * e_o), key / (key + own + rest),
                                   own / (key + own + rest), (own + rest) / (key + own + rest))]


def unfolded(D, alpha, order):
    """The eight numbers from the skew-normal integrals over the whole line, as [population.2] states them."""
    S_rr, leak_r, S_ro, S_oo, leak_o = decimal_attention(D, order)
    k, kappa2 = D - 1, ((D + 1) / 2)**2
    T, B = S_rr + k * S_ro, leak_r / k + leak_o
    tau = B * math.sqrt(k)
    rho = math.hypot(T, tau)
    beta, lam = alpha * rho, T / tau if tau else math.inf
    x, w = panels(min(1.0, 1 / max(beta, 1e-300), max(1 / lam, 1e-9 * min(1, 1 / max(beta, 1e-300)))), 12.0)
    x, w = x.astype(float), (w * 2 * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)).astype(float)
    f, y = beta * x, np.minimum(lam * x, 1e8)
    above, below, bump = ndtr(y), ndtr(-y), tau / rho * np.exp(-y * y / 2) / np.sqrt(2 * np.pi)
    e = np.exp(-f)
    c = e / (1 + e)
    loss = np.sum(w * (np.log1p(e) + f * below))
    C1 = np.sum(w * (c * (T / rho * x * above + bump) + (1 - c) * np.maximum(bump - T / rho * x * below, 0)))
    K = np.sum(w * c / (1 + e))
    X = C1 + alpha * B * K
    terms = np.array([T * C1, alpha * tau**2 * K])
    gains = [kappa2 * alpha * s * X for s in (S_rr * leak_r, S_ro * leak_o, -S_oo * S_ro)]
    return np.array([loss, terms[0] - terms[1], 0, 0, *gains, (leak_r + k * leak_o) / D]), terms.sum()


@pytest.mark.derives("quad.1", "population.1", "population.2", "population.3")
@given(st.sampled_from([2, 3, 5, 8, 64, 1000, 10**6]), st.floats(-8, 8), st.floats(0, 700), st.floats(0, 700),
       st.floats(-20, 20))
@settings(max_examples=120)
def test_twelve_digits_over_the_whole_range(D, log_slope, gap, gap_others, own):
    """D alpha from 1e-8 to 1e8, gaps from 0 to 700; a velocity that is a difference of terms is judged against them."""
    m_rr = gap * (D - 1) / D
    m_ro, m_oo = (gap_others / 2, -gap_others / 2) if D == 2 else (gap_others * (D - 2) / (D - 1), own / (D - 1))
    order = OrderParameters(0, 0, 0, m_rr, m_ro, m_oo)
    alpha = 10**log_slope / D
    found, error = (np.array(numbers) for numbers in position_only(D, alpha, order))
    wanted, terms = unfolded(D, alpha, order)
    size = np.abs(wanted)
    size[1] = terms
    assert np.all(np.abs(found - wanted) <= 1e-12 * size), (found, wanted)
    assert np.all(error <= 1e-12 * size)
    assert found[7] > 0 and found[4] >= 0                                  # the leak does not become zero


@given(st.floats(-3, 3), st.floats(-6, 6), st.sampled_from([2, 3, 8]))
@settings(max_examples=40)
def test_sigma_only_scales(log_sigma, log_alpha, D):
    """f depends on alpha sigma alone: at sigma the loss is that of alpha sigma, and alpha' gains a factor sigma."""
    sigma, alpha = 10**log_sigma, 10**log_alpha
    scores = {"m_rr": 1.0, "m_ro": 0.5, "m_oo": -0.5 if D == 2 else 0.1}
    found = population(Problem(2, D, sigma), OrderParameters(alpha, **scores), mode="position_only")
    unit, _ = position_only(D, alpha * sigma, OrderParameters(**scores))
    wanted = [unit[0], sigma * unit[1], *unit[4:6]]
    velocity = found.velocity
    np.testing.assert_allclose([found.loss, velocity.alpha, velocity.m_rr, velocity.m_ro], wanted, rtol=1e-13)
    assert found.rule == "one_dimensional" and found.converged


def test_negative_alpha_is_the_flipped_label():
    """E log(1 + e^f) = E log(1 + e^-f) + E f, and c(-f) = 1 - c(f)."""
    order = OrderParameters(0, 0, 0, 1.2, 0.8, -0.1)
    plus, minus = (np.array(position_only(6, alpha, order)[0]) for alpha in (0.9, -0.9))
    S = position_attention(6, order)
    T, _ = S.received(6)
    np.testing.assert_allclose(minus[0], plus[0] + 0.9 * T * np.sqrt(2 / np.pi), rtol=1e-13)
    np.testing.assert_allclose(minus[1], T * np.sqrt(2 / np.pi) - plus[1], rtol=1e-13)


def test_attention_columns_sum_to_one():
    for D in (2, 3, 50):
        S = position_attention(D, OrderParameters(0, 0, 0, 2.0, 1.0, -1.0 if D == 2 else 0.3))
        np.testing.assert_allclose(S.rr + (D - 1) * S.orr, 1, rtol=1e-14)
        np.testing.assert_allclose(S.ro + S.oo + (D - 2) * S.io, 1, rtol=1e-14)
        T, B = S.received(D)
        np.testing.assert_allclose(T + (D - 1) * B, D, rtol=1e-14)
