"""What is the Hessian times a direction, and each sample's squared gradient norm?  Closed forms, chunk by chunk.

Shapes as in `chunk`: S, G, Adot (m, D, D) with axes sample, query j, key i.  Source: derivations/11_second_order.md.
"""

import numpy as np

from gsref import chunk as kernel
from gsref import model


def centred(S, Y):
    """S[i, j] (Y_ij - sum_k S[k, j] Y_kj), right also where one key has nearly all the attention  [hvp.1].

    With Y_ij = u_i it is G; with Y = dA/de, the derivative of S along the direction.
    """
    Y = np.where((Y == Y[:, :, :1]).all(axis=2, keepdims=True), 0, Y)          # equal ones: exactly zero
    G = S * (Y - np.einsum("nji,nji->nj", S, Y)[:, :, None])
    restore_dominating(G, S)
    return G


def restore_dominating(G, S):
    """`chunk.restore` of the keys with more than half of the attention of a query, one a query at most."""
    kernel.restore(G, *np.nonzero(S.reshape(-1, S.shape[2]) > 0.5))


def logit_derivative(S, Sdot, u, udot):
    """fdot = sum_j ubardot_j, ubardot_j = sum_i Sdot[i, j] u_i + S[i, j] udot_i  [hvp.2]; returns ubardot, fdot."""
    ubardot = np.einsum("nji,ni->nj", Sdot, u) + np.einsum("nji,ni->nj", S, udot)
    return ubardot, ubardot.sum(axis=1)


def score_gradient_derivative(S, Sdot, u, udot, ubardot):
    """Gdot = Sdot (u_i - ubar_j) + S (udot_i - ubardot_j)  [hvp.3]; its columns sum to zero as those of G do."""
    away = u[:, None, :] - np.einsum("nji,ni->nj", S, u)[:, :, None]
    Gdot = Sdot * away + S * (udot[:, None, :] - ubardot[:, :, None])
    restore_dominating(Gdot, S)
    return Gdot


def factor_derivative(y, t, fdot):
    """d/de of -y s(-t) along the direction: s(t) s(-t) fdot  [hvp.4]; no 1 - s, which would cancel."""
    return model.logistic_factor(t) * model.logistic_factor(-t) * fdot


def squared_norms(y, t, S, G, X, P):
    """|grad l|^2 = s(-t)^2 (|sum_i T_i z_i|^2 + |Z^T G Z|^2), a sample each, as sums of squares  [hvp.5]."""
    m, D, d = X.shape
    Z = np.concatenate([X, np.broadcast_to(P.astype(X.dtype), (m, D, D))], axis=2)
    dv = np.einsum("ni,nia->na", S.sum(axis=1), Z)
    dW = np.matmul(np.matmul(G, Z).transpose(0, 2, 1), Z)
    return model.logistic_factor(t) ** 2 * (np.einsum("na,na->n", dv, dv) + np.einsum("nab,nab->n", dW, dW))


def from_states(S, u, f, X, y, weights, P, along, work, norms):
    """The sums of a chunk, from its attention: loss, gradient and, with `along`, Hessian times direction  [hvp.6]."""
    m, D, d = X.shape
    t = y * f
    loss, s = kernel.factors(t)
    c = -y * s * weights
    G = centred(S, u[:, None, :])
    if norms is not None:
        norms[...] = squared_norms(y, t, S, G, X, P)
    T = S.sum(axis=1)
    found = [loss @ weights, *kernel.sums(c[:, None] * T, c[:, None, None] * G, X, work)]
    if along is not None:
        Adot = np.empty_like(S)
        kernel.scores(along, X, work, out=Adot)
        udot = (X.reshape(m * D, d) @ along.v1).reshape(m, D) + along.u2
        Sdot = centred(S, Adot)
        ubardot, fdot = logit_derivative(S, Sdot, u, udot)
        cdot = factor_derivative(y, t, fdot) * weights
        Gdot = score_gradient_derivative(S, Sdot, u, udot, ubardot)
        found += kernel.sums(cdot[:, None] * T + c[:, None] * Sdot.sum(axis=1),
                             cdot[:, None, None] * G + c[:, None, None] * Gdot, X, work)
    return found


def second_order(part, along, X, y, weights, P, work, norms):
    """`from_states` with the fast forward pass; Extreme as there."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        E, (_, Z, *_), u, _, f = kernel.forward(part, X, work)
        return from_states(E / Z[:, :, None], u.copy(), f, X, y, weights, P, along, work, norms)


def plain(v, W, X, y, weights, P, along, norms):
    """`from_states` with the plain forward pass in float64, for chunks that leave the range of the fast one."""
    m, D, d = X.shape
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        _, S, u, f = model._states(v, W, X, P)
        work = kernel.Workspace(m, D, d, X.dtype)
        return from_states(np.ascontiguousarray(S.transpose(0, 2, 1)), u, f, X, y, weights, P, along, work, norms)
