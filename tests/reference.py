"""The model and its gradient once more: plain loops over `decimal`, 50 digits, written from the definitions alone.

Shares no code with gsref and no idea of how to compute well: softmax by its definition, the gradient by the chain rule
through dS[i, j]/dA[k, j] = S[i, j] (delta_ik - S[k, j]) with every index written out.  Slow; for a handful of cases.
"""

from decimal import Decimal, localcontext

DIGITS = 50


def reference(v, W, X, y, P):
    """loss, dv, dW as Decimal, nested lists of the shapes of v and W, exact to some 50 digits.

    Arguments are nested lists or arrays of floats; every float is taken for the exact number that it is.
    """
    v, W, X, y, P = (_decimals(a) for a in (v, W, X, y, P))
    with localcontext() as context:
        # e^-t of a margin of 800 has 350 zeros: 1 + e^-t and 1 - S need these digits too
        context.prec = DIGITS + 800
        return tuple(_rounded(part) for part in _loss_and_gradient(v, W, X, y, P))


def _loss_and_gradient(v, W, X, y, P):
    n, D, m = len(X), len(P), len(v)
    loss, dv, dW = Decimal(0), [Decimal(0)] * m, [[Decimal(0)] * m for _ in range(m)]
    for X_n, y_n in zip(X, y):
        z = [X_n[j] + P[j] for j in range(D)]
        u = [sum(v[a] * z[i][a] for a in range(m)) for i in range(D)]
        S = [[None] * D for _ in range(D)]
        for j in range(D):
            e = [sum(z[i][a] * W[a][b] * z[j][b] for a in range(m) for b in range(m)).exp() for i in range(D)]
            for i in range(D):
                S[i][j] = e[i] / sum(e)
        f = sum(S[i][j] * u[i] for i in range(D) for j in range(D))
        power = (-y_n * f).exp()
        loss += (1 + power).ln() / n
        c = -y_n * power / (1 + power) / n
        for j in range(D):
            for i in range(D):
                for a in range(m):
                    dv[a] += c * S[i][j] * z[i][a]
            for k in range(D):
                df_dA = sum(u[i] * S[i][j] * ((1 if i == k else 0) - S[k][j]) for i in range(D))
                for a in range(m):
                    left = c * df_dA * z[k][a]
                    for b in range(m):
                        dW[a][b] += left * z[j][b]
    return loss, dv, dW


def _decimals(a):
    a = a.tolist() if hasattr(a, "tolist") else a
    return [_decimals(x) for x in a] if isinstance(a, list) else Decimal(float(a))


def _rounded(a):
    if isinstance(a, list):
        return [_rounded(x) for x in a]
    with localcontext() as context:
        context.prec = DIGITS
        return +a
