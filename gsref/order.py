"""Which six scalars carry the population dynamics, and what of (v, W) lies off them?

Source: derivations/03_symmetry.md.  Order of the scalars wherever they form an array: alpha, a, b, m_rr, m_ro, m_oo.
"""

from dataclasses import astuple, dataclass

import numpy as np

from gsref.arguments import instance, real, real_array
from gsref.problem import Problem


@dataclass(frozen=True)
class OrderParameters:
    """A point of the symmetric manifold, or a velocity along it.

        v1  = alpha v*                               alpha: 1 / feature unit
        W11 = a v* v*^T + b (I - v* v*^T)            a, b:  1 / feature unit^2
        M   = P W22 P^T, M[i, j] key i, query j      m_rr = M[r, r], m_ro = M[r, j], m_oo = M[j, j]  (j != r)

    Everything else of (v, W) is zero or follows from zero column sums of M.  Sums and multiples are those of vectors,
    so that one step of gradient descent reads `order + eta * velocity`.
    """

    alpha: float = 0.0
    a: float = 0.0
    b: float = 0.0
    m_rr: float = 0.0
    m_ro: float = 0.0
    m_oo: float = 0.0

    __array_ufunc__ = None                     # numpy scalars leave `scalar * order` to __rmul__

    def __post_init__(self):
        for name in ("alpha", "a", "b", "m_rr", "m_ro", "m_oo"):
            object.__setattr__(self, name, real(name, getattr(self, name)))

    def __add__(self, other):
        if not isinstance(other, OrderParameters):
            return NotImplemented
        return OrderParameters(*(x + y for x, y in zip(astuple(self), astuple(other))))

    def __mul__(self, scalar):
        scalar = real("scalar", scalar)
        return OrderParameters(*(scalar * x for x in astuple(self)))

    __rmul__ = __mul__

    def to_array(self):
        """The six scalars as an array, shape (6,)."""
        return np.array(astuple(self))

    @classmethod
    def from_array(cls, array):
        """The order parameters with the entries of `array`, shape (6,)."""
        return cls(*real_array("array", array, (6,)).tolist())

    def to_params(self, problem):
        """(v, W) on the symmetric manifold, v (d+D,), W (d+D, d+D)  [symmetry.1] [symmetry.2].

        Raises ValueError where the problem is too small to hold a value: b at d = 1, M at D = 1, m_oo + m_ro at D = 2.
        """
        check_fits(instance("problem", problem, Problem), self)
        d, D, v_star = problem.d, problem.D, problem.direction
        v, W = np.zeros(d + D), np.zeros((d + D, d + D))
        v[:d] = self.alpha * v_star
        W[:d, :d] = self.b * np.eye(d) + (self.a - self.b) * np.outer(v_star, v_star)
        W[d:, d:] = position_block(position_scores(problem, self), problem)
        return v, W

    @classmethod
    def from_params(cls, v, W, problem):
        """The orthogonal projection of (v, W) on the symmetric manifold, and the norm of what lies off it.

        Returns (order, residual), residual = sqrt(|v - v'|^2 + |W - W'|_F^2) with (v', W') = order.to_params(problem).
        The projection is the average over the symmetries: of M first over the shift of whole columns (they carry no
        attention), then over the permutations of the irrelevant groups.
        """
        d, D = instance("problem", problem, Problem).d, problem.D
        v, W = real_array("v", v, (d + D,)), real_array("W", W, (d + D, d + D))
        v_star, r, P = problem.direction, problem.relevant, problem.positions
        a = v_star @ W[:d, :d] @ v_star
        b = (np.trace(W[:d, :d]) - a) / (d - 1) if d > 1 else 0.0
        M = P @ W[d:, d:] @ P.T
        M = M - M.mean(axis=0)
        others = np.arange(D) != r
        m_rr = M[r, r] if D > 1 else 0.0
        m_ro = M[r, others].mean() if D > 1 else 0.0
        m_oo = (np.diag(M)[others].mean() if D > 2 else -m_ro) if D > 1 else 0.0
        order = cls(v[:d] @ v_star, a, b, m_rr, m_ro, m_oo)
        v_on, W_on = order.to_params(problem)
        return order, float(np.hypot(np.linalg.norm(v - v_on), np.linalg.norm(W - W_on)))


def check_fits(problem, order):
    """ValueError if `order` has a component that does not exist at this d and D."""
    if problem.d == 1 and order.b != 0:
        raise ValueError(f"order.b: got {order.b!r}, expected 0 (at d = 1 nothing is orthogonal to the direction)")
    if problem.D == 1 and (order.m_rr, order.m_ro, order.m_oo) != (0, 0, 0):
        raise ValueError("order.m_rr, m_ro, m_oo: expected 0 (at D = 1 there is one group and no choice)")
    if problem.D == 2 and abs(order.m_oo + order.m_ro) > 1e-12 * abs(order.m_ro):
        raise ValueError(f"order.m_oo: got {order.m_oo!r}, expected -m_ro = {-order.m_ro!r} at D = 2")


def rest_scores(D, order):
    """The two scores that zero column sums fix: M[i, r] for i != r, and M[i, j] for i not in {r, j}  [symmetry.3]."""
    return (-order.m_rr / (D - 1) if D > 1 else 0.0, -(order.m_ro + order.m_oo) / (D - 2) if D > 2 else 0.0)


def position_scores(problem, order):
    """M = P W22 P^T, shape (D, D), key i, query j: the part of the scores that comes from positions alone."""
    D, r = problem.D, problem.relevant
    m_or, m_ox = rest_scores(D, order)
    M = np.full((D, D), m_ox)
    np.fill_diagonal(M, order.m_oo)
    M[r, :], M[:, r] = order.m_ro, m_or
    M[r, r] = order.m_rr
    return M


def position_block(M, problem):
    """W22 = P^T M P / kappa^2, the block whose position scores are M  [symmetry.4]."""
    P = problem.positions
    return P.T @ M @ P / problem.kappa**2
