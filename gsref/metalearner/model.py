"""What does the metalearner compute, and what is its gradient?

Linear attention reduces to one matrix W: the query x is classified by sign(muhat . W x), where muhat is the mean of
y_i x_i over the context.  Training minimises the mean logistic loss over B tasks.

Shapes: W (d, d), muhat, x (B, d), y, t (B,), dW (d, d).  Source: derivations/08_metalearner.md.

The functions with an underscore assume valid arrays and also take a complex W (for complex-step differentiation).
"""

import numpy as np

from gsref.arguments import labels, real_array
from gsref.model import logistic_factor, logistic_loss


def _margins(W, muhat, x, y):
    """t_i = y_i muhat_i . W x_i  [meta.2], shape (B,)."""
    return y * np.einsum("bd,bd->b", muhat @ W, x)


def _loss(W, muhat, x, y):
    """L = mean_i log(1 + exp(-t_i)), analytic in W."""
    return logistic_loss(_margins(W, muhat, x, y)).mean()


def _gradient(c, muhat, x, y):
    """dW = -(1/B) sum_i c_i y_i muhat_i x_i^T,  c_i = s(-t_i)  [meta.3], shape (d, d)."""
    return -muhat.T @ ((c * y)[:, None] * x) / len(y)


def parameters(W, muhat, x, y):
    """Validated float64 (W, muhat, x, y), or an error that names the argument."""
    muhat = real_array("muhat", muhat, ("B", "d"))
    B, d = muhat.shape
    return real_array("W", W, (d, d)), muhat, real_array("x", x, (B, d)), labels("y", y, B)


def logit(W, muhat, x):
    """f_i = muhat_i . W x_i, shape (B,); the prediction is its sign.  Raises TypeError or ValueError."""
    muhat = real_array("muhat", muhat, ("B", "d"))
    return _margins(*parameters(W, muhat, x, np.ones(len(muhat))))


def loss_and_gradient(W, muhat, x, y):
    """Mean logistic loss (float) and its closed-form gradient dW (d, d).

    W (d, d), muhat (B, d), x (B, d), y (B,) of -1 and +1.  Raises TypeError or ValueError, naming the argument, for
    a wrong shape, a complex or object array, no task, a non-finite number or another label.
    Inputs are not modified.  Source: derivations/08_metalearner.md.
    """
    W, muhat, x, y = parameters(W, muhat, x, y)
    t = _margins(W, muhat, x, y)
    return float(logistic_loss(t).mean()), _gradient(logistic_factor(t), muhat, x, y)
