"""What are population loss and velocity when attention depends on positions alone (W11 = 0)?  Closed forms.

Attention is then not random, f = alpha (T m_r + B sum_i m_i) is a half-normal plus a normal variable (skew-normal), and
loss and velocities are three integrals of one number, beta = alpha sigma sqrt(T^2 + (D-1) B^2).
Everything here is at unit sigma: alpha stands for alpha sigma.  Source: derivations/06_quadrature.md.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

EPS = float(np.finfo(float).eps)
# Gauss-Legendre on [0, Z(beta)]: 56 nodes reach rounding for every beta (measured: 1e-14); the cut leaves exp(-39) = 1e-17
NODES, CUT = 56, 39.0
RELATIVE_ERROR = 1e-13


class PositionAttention(NamedTuple):
    """The attention matrix of position-only scores; `not_rr` is 1 - S_rr, `not_ro` is 1 - S_ro, without cancellation."""

    rr: float
    not_rr: float
    ro: float
    not_ro: float
    oo: float
    T: float                # attention that the relevant token receives from all queries
    B: float                # attention that one irrelevant token receives from all queries


def _logistic(x):
    """1/(1 + e^-x), relatively accurate at both ends."""
    e = math.exp(-abs(x))
    return (1.0 if x >= 0 else e) / (1.0 + e)


def position_attention(D, m_rr, m_ro, m_oo):
    """S_rr, S_ro, S_oo, their complements, and the attention received  [quad.1].

    S_rr = 1/(1 + (D-1) e^-gap), gap = m_rr D/(D-1);  T = S_rr + (D-1) S_ro,  B = (1 - S_rr)/(D-1) + 1 - S_ro.
    """
    k = D - 1
    x = m_rr * D / k - math.log(k)
    if D > 2:
        rest = math.log(D - 2) - (m_ro + m_oo) / (D - 2)                    # log of the other D - 2 keys together
        top = max(m_oo, rest)
        others = top + math.log1p(math.exp(min(m_oo, rest) - top))
        own = _logistic(m_oo - rest)
    else:
        others, own = m_oo, 1.0
    rr, not_rr = _logistic(x), _logistic(-x)
    ro, not_ro = _logistic(m_ro - others), _logistic(others - m_ro)
    return PositionAttention(rr, not_rr, ro, not_ro, not_ro * own, rr + k * ro, not_rr / k + not_ro)


@lru_cache(maxsize=None)
def _unit_rule():
    x, w = np.polynomial.legendre.leggauss(NODES)
    return (x + 1) / 2, w / math.sqrt(2 * math.pi)


def half_normal_integrals(beta):
    """E log(1 + e^(-beta z)),  E z s(-beta z),  E s(beta z) s(-beta z)  for half-normal z = |N(0,1)|, beta >= 0  [quad.2].

    The integrands live on [0, Z] with Z^2/2 + beta Z = 39, whether the normal density or the layer of width 1/beta cuts
    them; their nearest singularity is at |z| = pi/beta, so one Gauss-Legendre rule scaled to [0, Z] serves every beta.
    """
    x, w = _unit_rule()
    Z = 2 * CUT / (beta + math.sqrt(beta * beta + 2 * CUT))
    z = Z * x
    e = np.exp(-beta * z)
    c = e / (1 + e)
    density = np.exp(-0.5 * z * z) * w
    return Z * float(density @ np.log1p(e)), Z * float(density @ (z * c)), Z * float(density @ (c / (1 + e)))


def position_only(D, alpha, m_rr, m_ro, m_oo):
    """Loss and the velocities of (alpha, a, b, m_rr, m_ro, m_oo), a and b frozen, at unit sigma  [quad.3].

    Returns two arrays (7,): values (loss first) and absolute errors.  With k = D - 1, tau = B sqrt(k),
    omega = hypot(T, tau), beta = |alpha| omega and the three integrals I, J, K of [quad.2]

        loss    = I + beta (1 - T/omega)/sqrt(2 pi)
        C1      = E c m_r = (1 - T/omega)/sqrt(2 pi) + (T/omega) J,      E c m_i = -alpha B K
        alpha'  = T C1 - alpha tau^2 K
        m_rr'   = kappa^2 alpha S_rr (1 - S_rr) X,   X = C1 + alpha B K
        m_ro'   = kappa^2 alpha S_ro (1 - S_ro) X,   m_oo' = -kappa^2 alpha S_oo S_ro X

    (alpha < 0: the loss gains |alpha| T sqrt(2/pi), C1 becomes sqrt(2/pi) - C1.)
    No term cancels in the loss; alpha' and, for alpha < 0, X are differences, and the errors are relative to their terms.
    """
    S = position_attention(D, m_rr, m_ro, m_oo)
    k = D - 1
    tau = S.B * math.sqrt(k)
    omega = math.hypot(S.T, tau)
    beta = abs(alpha) * omega
    I, J, K = half_normal_integrals(beta)
    folded = (tau / omega) * (tau / (omega + S.T)) / math.sqrt(2 * math.pi)     # (1 - T/omega)/sqrt(2 pi)
    loss = I + beta * folded
    C1 = folded + S.T / omega * J
    size = C1                                                                  # sum of absolute terms behind C1
    if alpha < 0:
        loss += -alpha * S.T * math.sqrt(2 / math.pi)
        C1, size = math.sqrt(2 / math.pi) - C1, math.sqrt(2 / math.pi) + C1
    pull, pull_size = alpha * S.B * K, abs(alpha) * S.B * K
    X, X_size = C1 + pull, size + pull_size
    kappa = (D + 1) / 2
    rr, ro, oo = (kappa * kappa * alpha * s for s in (S.rr * S.not_rr, S.ro * S.not_ro, -S.oo * S.ro))
    values = np.array([loss, S.T * C1 - tau * math.sqrt(k) * pull, 0.0, 0.0, rr * X, ro * X, oo * X])
    sizes = np.array([loss, S.T * size + tau * math.sqrt(k) * pull_size, 0.0, 0.0,
                      abs(rr) * X_size, abs(ro) * X_size, abs(oo) * X_size])
    # an exponential of a score of size x is good to x units in the last place
    scores = abs(m_rr) + abs(m_ro) + abs(m_oo) + math.log(D)
    return values, (RELATIVE_ERROR + EPS * scores) * sizes
