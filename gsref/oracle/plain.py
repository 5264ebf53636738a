"""How would one write the model and its gradient in a given precision?  Emulated arithmetic, several orders of operation.

These are the right candidates against which the tolerances are measured, and the stock from which `mutants` cuts its
wrong ones.  Shapes as in `gsref.gradients`; every array is float64 with values on the grid of the type.
"""

from dataclasses import dataclass, replace

import numpy as np

from gsref.oracle.precision import PRECISIONS, Precision

SUMS = ("forward", "backward", "pairwise", "wide")


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic of one precision.  `sums`: the order of additions, each rounded; `wide` rounds only a finished sum."""

    precision: Precision = PRECISIONS["float64"]
    sums: str = "wide"

    def round(self, x):
        return self.precision.round(x)

    def sum(self, terms, axis):
        """Sum over one axis."""
        if self.sums == "wide":
            return self.round(terms.sum(axis=axis))
        terms = np.moveaxis(terms, axis, 0)
        if self.sums == "pairwise":
            while len(terms) > 1:
                half = len(terms) // 2
                terms = np.concatenate([self.round(terms[:half] + terms[half:2 * half]), terms[2 * half:]])
            return terms[0]
        total = np.zeros(terms.shape[1:])
        for term in terms if self.sums == "forward" else terms[::-1]:
            total = self.round(total + term)
        return total

    def matmul(self, a, b):
        """a @ b over the last axis of a and the last but one of b; each product rounded, operands as the type rounds them."""
        a, b = self.precision.round_operand(a), self.precision.round_operand(b)
        if self.sums == "wide":
            return self.round(a @ b)
        return self.sum(self.round(a[..., :, :, None] * b[..., None, :, :]), axis=-2)

    def exp(self, x):
        return self.round(np.exp(x))

    def softmax(self, A, axis):
        E = self.exp(self.round(A - A.max(axis=axis, keepdims=True)))
        return self.round(E / np.expand_dims(self.sum(E, axis), axis))

    def softplus(self, t):
        """log(1 + exp(-t))."""
        return self.round(np.maximum(-t, 0.0) + self.round(np.log1p(self.exp(-np.abs(t)))))

    def factor(self, t):
        """1 / (1 + exp(t))."""
        e = self.exp(-np.abs(t))
        return self.round(np.where(t < 0, 1.0, e) / self.round(1.0 + e))


@dataclass(frozen=True)
class LogisticLoss:
    """What every candidate does behind its margins t = y f: the steps of the mean logistic loss and of its derivative."""

    arithmetic: Arithmetic = Arithmetic()

    def losses(self, t):
        return self.arithmetic.softplus(t)

    def mean(self, losses):
        return self.arithmetic.round(self.arithmetic.sum(losses, axis=0) / len(losses))

    def loss_factor(self, t):
        return self.arithmetic.factor(t)

    def coefficient(self, y, t, n):
        """-y s(-t) / n: the derivative of the mean loss by each logit."""
        return self.arithmetic.round(-y * self.loss_factor(t) / n)


@dataclass(frozen=True)
class Plain(LogisticLoss):
    """A candidate (v, W, X, y, P) -> (loss, dv, dW), one order of operation in one arithmetic.

    `keys_first`: the scores as z_i (W z_j) instead of (z_i W) z_j; `backward`: G as S u - S ubar, as back-propagation
    through a softmax has it, with the loss factor multiplied in first; `flat`: dv and dW as one sum over (n, i, j) or (n, i).
    The methods are the steps, so that a known-wrong candidate can replace exactly one.
    """

    keys_first: bool = False
    backward: bool = False
    flat: bool = False

    def __call__(self, v, W, X, y, P):
        v, W, X, y, P = (np.asarray(a, dtype=np.float64) for a in (v, W, X, y, P))
        with np.errstate(all="ignore"):                    # overflow is what some of the known-wrong candidates are about
            return self.gradient(v, W, X, y, P)

    def gradient(self, v, W, X, y, P):
        ar, n = self.arithmetic, len(X)
        Z = self.tokens(X, P)
        A = self.scores(W, Z)
        S = self.attention(A)
        u = self.values(v, Z)
        f = self.logit(S, u)
        t = self.margin(y, f)
        loss = float(self.mean(self.losses(t)))
        c = self.coefficient(y, t, n)
        return loss, self.value_gradient(c, S, Z), self.query_key_gradient(c, S, u, Z)

    def tokens(self, X, P):
        n, D, _ = X.shape
        return np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)

    def scores(self, W, Z):
        ar, ZT = self.arithmetic, Z.transpose(0, 2, 1)
        return ar.matmul(Z, ar.matmul(W, ZT)) if self.keys_first else ar.matmul(ar.matmul(Z, W), ZT)

    def attention(self, A):
        return self.arithmetic.softmax(A, axis=1)

    def values(self, v, Z):
        return self.arithmetic.matmul(Z, v[:, None])[:, :, 0]

    def averages(self, S, u):
        """ubar_j, shape (n, D)."""
        return self.arithmetic.matmul(S.transpose(0, 2, 1), u[:, :, None])[:, :, 0]

    def logit(self, S, u):
        return self.arithmetic.sum(self.averages(S, u), axis=1)

    def margin(self, y, f):
        return y * f

    def received(self, S):
        """Attention that each key receives from all queries, shape (n, D)."""
        return self.arithmetic.sum(S, axis=2)

    def value_gradient(self, c, S, Z):
        ar = self.arithmetic
        cT = ar.round(c[:, None] * self.received(S))
        if self.flat:
            return ar.matmul(cT.reshape(1, -1), Z.reshape(-1, Z.shape[2]))[0]
        return ar.sum(ar.matmul(cT[:, None, :], Z)[:, 0], axis=0)

    def score_gradient(self, S, u):
        ar, ubar = self.arithmetic, self.averages(S, u)
        if self.backward:
            return ar.round(ar.round(S * u[:, :, None]) - ar.round(S * ubar[:, None, :]))
        return ar.round(S * ar.round(u[:, :, None] - ubar[:, None, :]))

    def query_key_gradient(self, c, S, u, Z):
        ar = self.arithmetic
        G = self.score_gradient(S, ar.round(c[:, None] * u)) if self.backward else \
            ar.round(c[:, None, None] * self.score_gradient(S, u))
        return self.outer(G, Z)

    def outer(self, G, Z):
        """sum_n sum_ij G[i, j] z_i z_j^T."""
        ar = self.arithmetic
        if self.flat:
            n, D, m = Z.shape
            left = np.broadcast_to(Z[:, :, None, :], (n, D, D, m)).reshape(-1, m)
            right = ar.round(G[..., None] * Z[:, None, :, :]).reshape(-1, m)
            return ar.matmul(left.T, right)
        return ar.sum(ar.matmul(Z.transpose(0, 2, 1), ar.matmul(G, Z)), axis=0)


def right_candidates(dtype):
    """Right candidates in the precision `dtype`: a mapping from name to candidate, each another order of operation."""
    p = PRECISIONS[dtype]
    plain = Plain(Arithmetic(p, "forward"))
    return {
        "each operation rounded, (zW)z": plain,
        "sums backwards, z(Wz)": replace(plain, arithmetic=Arithmetic(p, "backward"), keys_first=True),
        "sums in pairs, back-propagation": replace(plain, arithmetic=Arithmetic(p, "pairwise"), backward=True),
        "wide sums": Plain(Arithmetic(p, "wide")),
        "one flat loop": replace(plain, flat=True, backward=True, keys_first=True),
    }
