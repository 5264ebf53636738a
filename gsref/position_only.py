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
# Gauss-Legendre on [0, Z(beta)]: 56 nodes reach rounding for every beta (measured: 1e-14); the cut leaves e^-39 = 1e-17
NODES, CUT = 56, 39.0
RELATIVE_ERROR = 1e-13


class PositionAttention(NamedTuple):
    """Attention of position-only scores, key first, query second (r relevant, o and i != o irrelevant), and the leaks
    1 - S_rr and 1 - S_ro, which are never computed as one minus something."""

    rr: float
    orr: float              # irrelevant key, relevant query
    ro: float
    oo: float
    io: float
    leak_r: float
    leak_o: float

    def received(self, D):
        """T and B: attention that the relevant group, and one irrelevant group, receive from all queries."""
        return self.rr + (D - 1) * self.ro, self.orr + self.leak_o


def _logistic(x):
    """1/(1 + e^-x), relatively accurate at both ends."""
    e = math.exp(-abs(x))
    return (1.0 if x >= 0 else e) / (1.0 + e)


def position_attention(D, order):
    """`PositionAttention` of the scores m_rr, m_ro, m_oo of `order`  [population.1]."""
    k = D - 1
    if k == 0:
        return PositionAttention(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    x = order.m_rr * D / k - math.log(k)
    others, own = order.m_oo, 1.0
    if D > 2:
        rest = math.log(D - 2) - (order.m_ro + order.m_oo) / (D - 2)        # log of the other D - 2 keys together
        top = max(others, rest)
        own = _logistic(others - rest)
        others = top + math.log1p(math.exp(-abs(others - rest)))
    leak_r, leak_o = _logistic(-x), _logistic(others - order.m_ro)
    io = leak_o * _logistic(rest - order.m_oo) / (D - 2) if D > 2 else 0.0
    return PositionAttention(_logistic(x), leak_r / k, _logistic(order.m_ro - others), leak_o * own, io, leak_r, leak_o)


@lru_cache(maxsize=None)
def _unit_rule():
    x, w = np.polynomial.legendre.leggauss(NODES)
    return (x + 1) / 2, w / math.sqrt(2 * math.pi)


def half_normal_integrals(beta):
    """E log(1 + e^(-beta z)), E z s(-beta z), E s(beta z) s(-beta z) for half-normal z = |N(0,1)|, beta >= 0  [quad.1].

    The integrands live on [0, Z] with Z^2/2 + beta Z = 39, whether the normal density or the layer of width 1/beta cuts
    them; their nearest singularity is at |z| = pi/beta, so one Gauss-Legendre rule scaled to [0, Z] serves every beta.
    """
    x, w = _unit_rule()
    Z = 2 * CUT / (beta + math.hypot(beta, math.sqrt(2 * CUT)))
    z = Z * x
    e = np.exp(-beta * z)
    c = e / (1 + e)
    density = np.exp(-0.5 * z * z) * w
    return Z * float(density @ np.log1p(e)), Z * float(density @ (z * c)), Z * float(density @ (c / (1 + e)))


def position_only(D, alpha, order):
    """Loss, the velocities of (alpha, a, b, m_rr, m_ro, m_oo) with a and b frozen, and the leak, at unit sigma.

    Returns two lists of 8 floats: values and absolute errors  [population.2] [population.3].  `order` gives the scores
    m_rr, m_ro, m_oo.  With k = D - 1, tau = B sqrt(k), omega = hypot(T, tau), beta = |alpha| omega, integrals I, J, K:

        loss    = I + beta (1 - T/omega)/sqrt(2 pi)
        C1      = E c m_r = (1 - T/omega)/sqrt(2 pi) + (T/omega) J,      E c m_o = -alpha B K
        alpha'  = T C1 - alpha tau^2 K,      X = C1 + alpha B K
        m_rr'   = kappa^2 alpha S_rr (1 - S_rr) X,      m_ro' = kappa^2 alpha S_ro (1 - S_ro) X
        m_oo'   = -kappa^2 alpha S_oo S_ro X

    (alpha < 0: the loss gains |alpha| T sqrt(2/pi), C1 becomes sqrt(2/pi) - C1.)
    No term cancels in the loss; alpha' and, for alpha < 0, X are differences: their errors are relative to the terms.
    """
    S = position_attention(D, order)
    k = D - 1
    T, B = S.received(D)
    tau = B * math.sqrt(k)
    omega = math.hypot(T, tau)
    beta = abs(alpha) * omega
    I, J, K = half_normal_integrals(beta)
    folded = (tau / omega) * (tau / (omega + T)) / math.sqrt(2 * math.pi)       # (1 - T/omega)/sqrt(2 pi)
    loss = I + beta * folded
    C1 = size = folded + T / omega * J                                         # size: sum of the absolute terms of C1
    if alpha < 0:
        loss += -alpha * T * math.sqrt(2 / math.pi)
        C1, size = math.sqrt(2 / math.pi) - C1, math.sqrt(2 / math.pi) + C1
    pull = alpha * B * K
    kappa = (D + 1) / 2
    rr, ro, oo = (kappa * kappa * alpha * s for s in (S.rr * S.leak_r, S.ro * S.leak_o, -S.oo * S.ro))
    X, X_size = C1 + pull, size + abs(pull)
    leak = (S.leak_r + k * S.leak_o) / D
    # an exponential of a score of size x is good to x units in the last place
    unit = RELATIVE_ERROR + EPS * (abs(order.m_rr) + abs(order.m_ro) + abs(order.m_oo) + math.log(D))
    X_unit = X_size * unit
    return ([loss, T * C1 - k * B * pull, 0.0, 0.0, rr * X, ro * X, oo * X, leak],
            [unit * loss, unit * (T * size + k * B * abs(pull)), 0.0, 0.0, abs(rr) * X_unit, abs(ro) * X_unit,
             abs(oo) * X_unit, unit * leak])
