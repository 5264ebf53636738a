"""How far may a right implementation be from the right value?  A rounding-error analysis, entry by entry.

Shapes: Z (n, D, m) with m = d + D; A, S, G (n, D, D) with axes sample, key i, query j; T, u (n, D); f, s (n,).
V_x is the square of the root-sum-square of the bounds of all roundings that reach x, each times its derivative.
Source: derivations/07_oracle.md.
"""

import math

import numpy as np

from gsref.model import logistic_factor, logistic_loss
from gsref.oracle.precision import PRECISIONS, Precision
from gsref.oracle.reference import DIGITS

LAMBDA = 4.0         # multiples of the root-sum-square: a false alarm has odds below 2 exp(-3 LAMBDA^2 / 2) = 8e-11 an entry
EXP, LOSS, FACTOR = 4.0, 6.0, 7.0    # roundings in an exp (two ulp), in log1p(exp(-t)) and in 1/(1 + exp(t)), in units u
RESOLVES = 4.0       # a block can be seen to be wrong in a case if some entry is this many tolerances away from zero
_EXPONENT = 80.0    # beyond this a perturbed exponent says nothing, and its square must not overflow


def sum_error(k, total, squares, u):
    """V of a sum of k products, averaged over orders: u^2 (k/2 + 1) (total^2 + sum of squares of the terms)  [oracle.2]."""
    return u**2 * (k / 2 + 1) * (total**2 + squares)


def _grown(alpha):
    """(exp(LAMBDA alpha) - 1) / LAMBDA: alpha, and what it becomes where the exponential is no longer linear."""
    return np.expm1(np.minimum(LAMBDA * alpha, _EXPONENT)) / LAMBDA


def score_error(Z, W, p):
    """V of the scores: the larger of (z_i W) z_j and z_i (W z_j), entry by entry  [oracle.3]."""
    m = len(W)
    Z2 = Z**2

    def one_order(W):
        L = Z @ W
        V = sum_error(m, L, Z2 @ W**2, p.unit) + p.operand**2 * L**2
        return V @ Z2.transpose(0, 2, 1) + sum_error(m, L @ Z.transpose(0, 2, 1), L**2 @ Z2.transpose(0, 2, 1), p.unit)
    return np.maximum(one_order(W), one_order(W.T).transpose(0, 2, 1))


def attention_error(A, S, V_A, p):
    """g[i, j]: how much a rounding moves S[i, j] before the column is normalised, and V of the column's norm  [oracle.4].

    A score that moves by a moves x-bar_j by S[i, j] (e^a - 1) (x_i - x-bar_j) / sum_k S[k, j] e^a_k for any x.
    """
    gap = A.max(axis=1, keepdims=True) - A
    alpha = np.sqrt(V_A + p.unit**2 * (gap**2 + EXP**2))
    norm = np.exp(np.minimum(LAMBDA * (S * alpha).sum(axis=1, keepdims=True), _EXPONENT))
    return S * _grown(alpha) * norm + p.tiny, (S.shape[1] + 2) * p.unit**2


def loss_error(t, V_f, p):
    """V of the loss and of the factor s(-t) of each sample, from V of its logit  [oracle.5].

    The smaller of u l and log1p(e^-|t|) is what exp(-t - l), the derivative of logaddexp, loses for t < 0.
    """
    u, s, l = p.unit, logistic_factor(t), logistic_loss(t)
    slope = logistic_factor(t - LAMBDA * np.sqrt(V_f))
    rounded = np.minimum(u * l, np.log1p(np.exp(-np.abs(t))))
    V_l = slope**2 * V_f + (LOSS * u * l)**2 + p.tiny**2
    V_s = s**2 * ((logistic_factor(-t) * _grown(np.sqrt(V_f)))**2 + (FACTOR * u)**2 + rounded**2) + p.tiny**2
    return V_l, V_s


def repeats(Z):
    """Equal inputs are rounded equally: their errors add instead of averaging out  [oracle.6].

    r sqrt(q), with r the largest number of equal tokens in a sample and q the largest number of equal samples.
    """
    tokens = max(np.unique(sample, axis=0, return_counts=True)[1].max() for sample in Z)
    samples = np.unique(Z.reshape(len(Z), -1), axis=0, return_counts=True)[1].max()
    return float(tokens) * math.sqrt(samples)


def value_gradient_error(Z, S, c, V_c, g, V_norm, tiny, p):
    """V of dv = sum_n c_n sum_ij S[i, j] z_i, c_n in any unit and `tiny`, one underflow, in the same  [oracle.7]."""
    n, D, _ = Z.shape
    u, w = p.unit, p.operand
    T, Z2, S2, c2 = S.sum(axis=2), Z**2, (S**2).sum(axis=2), c**2
    zbar = S.transpose(0, 2, 1) @ Z                                              # (n, j, a)
    tau = zbar.sum(axis=1)
    away = (Z[:, :, None, :] - zbar[:, None, :, :])**2                           # (n, i, j, a)
    cTz = np.einsum("n,ni,nia->na", c2, T**2, Z2)                                # (n, a): one term a token, squared
    V = np.einsum("na,n->a", tau**2, V_c)
    V = V + np.einsum("n,nij,nija->a", c2, g**2, away)
    V = V + V_norm * np.einsum("n,nja->a", c2, zbar**2)
    V = V + np.einsum("n,ni,nia->a", c2, sum_error(D, T, S2, u) + (u**2 + w**2) * S2, Z2)
    V = V + sum_error(n + D + 2, c @ tau, c2 @ tau**2 + cTz.sum(axis=0), u) + 3 * w**2 * cTz.sum(axis=0)
    return V + 4 * tiny**2 * (Z2.sum(axis=(0, 1)) * D + n * D)


def query_key_gradient_error(Z, S, u_, U, c, V_c, V_u, g, V_norm, tiny, p):
    """V of dW = sum_n c_n sum_ij S[i, j] (U_ij - ubar_j) z_i z_j^T  [oracle.8].

    U is u_i (plain: ubar_j cancels when one score dominates) or u_i - u_k(j) (careful: from the strongest key).
    `tiny` is the error of one underflow, in the unit of c.
    """
    n, D, _ = Z.shape
    u, w = p.unit, p.operand
    c2, Z2 = c**2, Z**2
    ubar = (S * U).sum(axis=1)
    away_u = U - ubar[:, None, :]
    G = S * away_u
    zbar = S.transpose(0, 2, 1) @ Z                                              # (n, j, a)
    gz, gq = G.transpose(0, 2, 1) @ Z, G @ Z                                     # (n, j, a), (n, i, b)
    M = Z.transpose(0, 2, 1) @ gq                                                # (n, a, b)
    away = Z[:, :, None, :] - zbar[:, None, :, :]                                # (n, i, j, a)
    V_ub = average_error(S, U, ubar, V_norm, p)
    V_G = u**2 * S**2 * (U**2 + ubar[:, None, :]**2 + 16 * away_u**2) + 2 * w**2 * G**2 + p.tiny**2 * (1 + U**2)
    by_score = np.einsum("nij,nija->nja", g**2, (away_u[..., None] * away - gz[:, None, :, :])**2)
    by_value = np.einsum("nij,nija,njb->niab", S, away, Z)
    by_pair = np.einsum("n,nja,njb->ab", c2, gz**2, Z2)
    by_key = np.einsum("n,nia,nib->ab", c2, Z2, gq**2)
    by_term = np.einsum("n,nia,nij,njb->ab", c2, Z2, G**2, Z2)
    V = np.einsum("nab,n->ab", M**2, V_c)
    V = V + np.einsum("n,nja,njb->ab", c2, by_score + V_ub[:, :, None] * zbar**2, Z2)
    V = V + np.einsum("n,ni,niab->ab", c2, V_u, by_value**2)
    V = V + np.einsum("n,nia,nij,njb->ab", c2, Z2, V_G, Z2) + V_norm * by_pair
    total, by_sample = np.einsum("n,nab->ab", c, M)**2, np.einsum("n,nab->ab", c2, M**2)
    nested = ((n + 2 * D + 2) / 2 + 1) * (total + by_sample + by_pair + by_key + by_term)
    flat = n * D**2 / 6 * (2 * total + by_sample + by_pair + by_term)          # one loop over n, j, i
    V = V + u**2 * np.maximum(nested, flat)
    V = V + w**2 * (by_pair + by_key + by_term)
    return V + 4 * tiny**2 * (np.einsum("nia,njb->ab", Z2, Z2) + D * Z2.sum(axis=(0, 1)) + n * D)


def average_error(S, U, ubar, V_norm, p):
    """V of ubar_j = sum_i S[i, j] U[i, j] from the roundings in that sum alone."""
    squares = ((S * U)**2).sum(axis=1)
    return sum_error(S.shape[1], ubar, squares, p.unit) + (p.unit**2 + 2 * p.operand**2) * squares + V_norm * ubar**2


def tolerances(v, W, X, y, P, p=PRECISIONS["float64"], careful=False):
    """The tolerance of every quantity that `gsref.oracle.reference.evaluate` returns, same shapes  [oracle.9].

    |got - wanted| <= LAMBDA sqrt(V) repeats + (u + 2^-53) |wanted|; 2^-53 |wanted| is the reference's own rounding.
    `careful` holds dW and G to the form that does not cancel when one score dominates.  Also returns `sizes`: the sum of
    the absolute values of the terms of each entry.
    """
    errors, wanted, sizes = rounding_errors(v, W, X, y, P, p, careful)
    return {name: errors[name] + (p.unit + 2.0**-53) * np.abs(wanted[name]) for name in errors}, sizes


def decimal_errors(v, W, X, y, P, digits=DIGITS):
    """Bounds, by the same analysis, on the errors that `digits` decimal digits leave before the rounding to float64."""
    p = Precision("decimal", 10.0**(1 - digits) / 2, 0.0, 0.0, 53, -1022, np.inf, "float64")
    return rounding_errors(v, W, X, y, P, p, careful=True)[0]


def rounding_errors(v, W, X, y, P, p, careful=False):
    """LAMBDA sqrt(V) repeats of every quantity, its value in float64, and the sum of the absolute values of its terms."""
    n, D, d = X.shape
    m = d + D
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    u = p.unit
    A = (Z @ W) @ Z.transpose(0, 2, 1)
    V_A = score_error(Z, W, p)
    E = np.exp(A - A.max(axis=1, keepdims=True))
    S = E / E.sum(axis=1, keepdims=True)
    g, V_norm = attention_error(A, S, V_A, p)
    u_ = Z @ v
    V_u = sum_error(m, u_, Z**2 @ v**2, u) + p.tiny**2
    U = np.broadcast_to(u_[:, :, None], S.shape)
    ubar = (S * U).sum(axis=1)
    T = S.sum(axis=2)
    f = ubar.sum(axis=1)
    V_f = (((g * (U - ubar[:, None, :]))**2).sum(axis=(1, 2)) + (T**2 * V_u).sum(axis=1)
           + average_error(S, U, ubar, V_norm, p).sum(axis=1)
           + sum_error(D, f, (ubar**2).sum(axis=1) + ((T * u_)**2).sum(axis=1), u))
    t = y * f
    V_l, V_s = loss_error(t, V_f, p)
    l, s = logistic_loss(t), logistic_factor(t)
    scale = max(s.max(), p.tiny) / n                  # c_n in units of the largest: their squares must not underflow
    c = -y * s / n / scale
    V_c = (V_s / scale / scale / n**2) + 2 * u**2 * c**2 + (p.tiny / scale)**2
    if careful:
        U = U - np.take_along_axis(u_, A.argmax(axis=1), axis=1)[:, None, :]
    V_dv = value_gradient_error(Z, S, c, V_c, g, V_norm, p.tiny / scale, p)
    V_dW = query_key_gradient_error(Z, S, u_, U, c, V_c, V_u, g, V_norm, p.tiny / scale, p)

    ubar = (S * U).sum(axis=1)
    G = S * (U - ubar[:, None, :])
    away = (U - ubar[:, None, :])**2
    others = 1 - np.eye(D)                            # others @ x: sum over the keys but one, without cancellation
    rest = others @ S
    V_S = (g * rest)**2 + S**2 * (others @ g**2 + V_norm + 2 * u**2) + p.tiny**2
    V_G = (V_S * away + S**2 * (V_u[:, :, None] * rest**2 + others @ (S**2 * V_u[:, :, None])
                                + average_error(S, U, ubar, V_norm, p)[:, None, :]
                                + (g**2 * away).sum(axis=1, keepdims=True) + u**2 * (U**2 + ubar[:, None, :]**2 + 4 * away))
           + p.tiny**2 * (1 + U**2))
    V_L = V_l.sum() / n**2 + sum_error(n, l.mean(), (l**2).sum() / n**2, u)
    V = {"scores": V_A, "attention": V_S, "values": V_u, "logit": V_f, "loss": V_L, "factor": V_s, "G": V_G,
         "dv": V_dv * scale**2, "dW": V_dW * scale**2}
    wanted = {"scores": A, "attention": S, "values": u_, "logit": f, "loss": l.mean(), "factor": s, "G": G,
              "dv": scale * np.einsum("n,ni,nia->a", c, T, Z),
              "dW": scale * np.einsum("n,nia,nij,njb->ab", c, Z, G, Z)}
    aZ, aU = np.abs(Z), np.abs(u_)
    sizes = {name: np.abs(x) for name, x in wanted.items()}
    sizes["dv"] = scale * np.einsum("n,ni,nia->a", np.abs(c), T, aZ)
    sizes["dW"] = scale * np.einsum("n,nia,nij,njb->ab", np.abs(c), aZ, S * (aU[:, :, None] + np.abs(f / D)[:, None, None]), aZ)
    together = LAMBDA * repeats(Z)
    return {name: together * np.sqrt(x) for name, x in V.items()}, wanted, sizes
