"""Who else computes the gradient?  One builder a contender: arrays to a call that returns (loss, dv, dW).

Straightforward: the formula, differentiated automatically.  Tuned by hand: the same block structure as ours, either
differentiated automatically or with the closed form; tokens as rows, queries before keys.
"""

import functools

from gsref import batched, gradients


def ours(threads):
    """The fast gradient of this package with that many threads."""
    return lambda arrays: functools.partial(batched.loss_and_gradient, *arrays, threads=threads)


def plain(arrays):
    """The plain formulas of this package."""
    return functools.partial(gradients.loss_and_gradient, *arrays)


def formula(np, softmax, softplus, v, W, X, y, P):
    """The loss as one would write it, with whatever `np` has the functions of NumPy."""
    n, D, _ = X.shape
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    S = softmax(np.matmul(np.matmul(Z, W), np.swapaxes(Z, 1, 2)), 1)
    f = np.einsum("nij,ni->n", S, np.matmul(Z, v))
    return np.mean(softplus(-y * f))


def blocks(np, softmax, softplus, v, W, X, y, P):
    """The loss with positions multiplied in once for all samples."""
    d = X.shape[2]
    W11, W12, W21, W22 = W[:d, :d], W[:d, d:], W[d:, :d], W[d:, d:]
    left = np.matmul(X, W11.T) + np.matmul(P, W12.T)
    A = np.matmul(left, np.swapaxes(X, 1, 2)) + (np.matmul(X, np.matmul(P, W21).T) + np.matmul(P, np.matmul(P, W22).T))
    S = softmax(A, 2)
    u = np.matmul(X, v[:d]) + np.matmul(P, v[d:])
    return np.mean(softplus(-y * np.einsum("nji,ni->n", S, u)))


def closed(np, softmax, softplus, sigmoid, join, v, W, X, y, P):
    """The closed form with the block structure, for a compiler to fuse."""
    n, D, d = X.shape
    W11, W12, W21, W22 = W[:d, :d], W[:d, d:], W[d:, :d], W[d:, d:]
    left = np.matmul(X, W11.T) + np.matmul(P, W12.T)
    A = np.matmul(left, np.swapaxes(X, 1, 2)) + (np.matmul(X, np.matmul(P, W21).T) + np.matmul(P, np.matmul(P, W22).T))
    S = softmax(A, 2)
    u = np.matmul(X, v[:d]) + np.matmul(P, v[d:])
    ubar = np.matmul(S, u[:, :, None])
    t = y * ubar.sum((1, 2))
    c = (-y * sigmoid(-t) / n)[:, None, None]
    G = c * S * (u[:, None, :] - ubar)
    T, K, rows = (c * S).sum(1), np.matmul(G, X), X.reshape(n * D, d)
    dW11 = np.matmul(K.reshape(n * D, d).T, rows)
    dW12, dW21 = np.matmul(K.sum(0).T, P), np.matmul(P.T, np.matmul(G.reshape(n * D, D).T, rows))
    dW22 = np.matmul(np.matmul(P.T, G.sum(0).T), P)
    dv = join([np.matmul(T.reshape(n * D), rows), np.matmul(P.T, T.sum(0))], 0)
    return np.mean(softplus(-t)), dv, join([join([dW11, dW12], 1), join([dW21, dW22], 1)], 0)


def autograd(arrays):
    """HIPS autograd of the formula."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    def softmax(A, axis):
        E = anp.exp(A - anp.max(A, axis=axis, keepdims=True))
        return E / anp.sum(E, axis=axis, keepdims=True)
    v, W, *data = arrays
    call = value_and_grad(lambda p: formula(anp, softmax, lambda t: anp.logaddexp(0.0, t), *p, *data))

    def run():
        loss, (dv, dW) = call((v, W))
        return loss, dv, dW
    return run


def jax(which):
    """jit of the formula, of its blocks, or of the closed form; all in float64."""
    def build(arrays):
        import jax
        import jax.numpy as jnp
        jax.config.update("jax_enable_x64", True)
        arrays = [jnp.asarray(a) for a in arrays]
        if which is closed:
            compiled = jax.jit(functools.partial(closed, jnp, jax.nn.softmax, jax.nn.softplus, jax.nn.sigmoid,
                                                 jnp.concatenate))
            return lambda: jax.block_until_ready(compiled(*arrays))
        compiled = jax.jit(jax.value_and_grad(functools.partial(which, jnp, jax.nn.softmax, jax.nn.softplus), (0, 1)))

        def run():
            loss, (dv, dW) = jax.block_until_ready(compiled(*arrays))
            return loss, dv, dW
        return run
    return build


def torch(which, compiled):
    """torch, eager or compiled, of the formula or the closed form; threads as torch chooses them."""
    def build(arrays):
        import torch
        arrays = [torch.from_numpy(a) for a in arrays]
        softplus = torch.nn.functional.softplus
        if which is closed:
            call = functools.partial(closed, torch, torch.softmax, softplus, torch.sigmoid, torch.cat)
            call = torch.compile(call) if compiled else call
            return lambda: call(*arrays)
        loss_of = functools.partial(which, torch, torch.softmax, softplus)
        loss_of = torch.compile(loss_of) if compiled else loss_of
        v, W = (a.clone().requires_grad_() for a in arrays[:2])

        def run():
            loss = loss_of(v, W, *arrays[2:])
            dv, dW = torch.autograd.grad(loss, (v, W))
            return loss.detach(), dv, dW
        return run
    return build


# name -> (package needed, builder, is it a peer)
CONTENDERS = {
    "gsref, 1 thread": (None, ours(1), False),
    "gsref, 2 threads": (None, ours(2), False),
    "gsref, plain formulas": (None, plain, False),
    "autograd": ("autograd", autograd, True),
    "jax, formula": ("jax", jax(formula), True),
    "jax, blocks": ("jax", jax(blocks), True),
    "jax, closed form": ("jax", jax(closed), True),
    "torch, formula": ("torch", torch(formula, False), True),
    "torch, closed form": ("torch", torch(closed, False), True),
    "torch.compile, formula": ("torch", torch(formula, True), True),
    "torch.compile, closed form": ("torch", torch(closed, True), True),
}
