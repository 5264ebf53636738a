"""What is the gradient of the loss?  The closed forms, one function a labelled equation, and the batched driver.

Shapes: G (n, D, D) with axes sample, key i, query j; dv (d+D,), dW (d+D, d+D).  Source: derivations/02_gradients.md.
"""

import numpy as np

from gsref.arguments import finite, labels
from gsref.model import logistic_factor, mean_loss, parameters, states


def score_gradient(A, S, u):
    """G[i, j] = S[i, j] (u_i - ubar_j) = df/dA[i, j], shape (n, D, D); every column sums to zero  [grad.2].

    u_i - ubar_j cancels when one key k has nearly all the attention of query j.  Written from that key,
    (u_i - u_k) - sum_l S[l, j] (u_l - u_k), the dominant term is an exact zero and small terms keep their digits.
    """
    k = A.argmax(axis=1)                                                   # (n, D): strongest key of each query
    from_k = u[:, :, None] - np.take_along_axis(u, k, axis=1)[:, None, :]  # u_i - u_k(j)
    return S * (from_k - np.einsum("nij,nij->nj", S, from_k)[:, None, :])


def value_gradient(c, S, X, P):
    """sum_n c_n df_n/dv,  df/dv = sum_ij S[i, j] z_i  [grad.1], shape (d+D,)."""
    cT = c[:, None] * S.sum(axis=2)            # c times the attention that key i receives from all queries
    return np.concatenate([np.einsum("ni,nid->d", cT, X), P.T @ cT.sum(axis=0)])


def query_key_gradient(c, G, X, P):
    """sum_n c_n df_n/dW,  df/dW = sum_ij G[i, j] z_i z_j^T  [grad.3], shape (d+D, d+D).

    P is the same for all samples, so three of the four blocks need only sums over the batch  [grad.4].
    """
    cG = c[:, None, None] * G
    dW11 = np.einsum("nid,nie->de", X, cG @ X)
    dW12 = np.einsum("nid,nij->dj", X, cG) @ P
    dW21 = P.T @ np.einsum("nij,nje->ie", cG, X)
    dW22 = P.T @ cG.sum(axis=0) @ P
    return np.block([[dW11, dW12], [dW21, dW22]])


def loss_and_gradient(v, W, X, y, P):
    """Mean logistic loss and its closed-form gradient  [grad.5].

    v (d+D,), W (d+D, d+D), X (n, D, d), y (n,) of -1 and +1, P (D, D); returns loss (float), dv (d+D,), dW (d+D, d+D).
    Raises TypeError or ValueError, naming the argument, for a wrong shape, a complex or object array, an empty
    batch, a non-finite number or another label; OverflowError, naming it, for a result that exceeds float64.
    Inputs are not modified.  Source: derivations/02_gradients.md.
    """
    v, W, X, P = parameters(v, W, X, P)
    n = len(X)
    y = labels("y", y, n)
    A, S, u, f = states(v, W, X, P)
    t = y * f
    c = -y * logistic_factor(t) / n            # dL/df of each sample
    with np.errstate(over="ignore", invalid="ignore"):         # the checks below say it better than a warning
        dv = value_gradient(c, S, X, P)
        dW = query_key_gradient(c, score_gradient(A, S, u), X, P)
    return float(mean_loss(t)), finite("dv", dv), finite("dW", dW)
