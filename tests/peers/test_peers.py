"""Real clients: the model as a user would write it in jax, autograd and torch, in float64 and float32."""

import numpy as np
import pytest

from gsref import oracle


def jax_step(dtype):
    jax = pytest.importorskip("jax", reason="not run: jax is not installed (extra `peers`)")
    jnp = jax.numpy

    def loss(v, W, X, y, P):
        Z = jnp.concatenate([X, jnp.broadcast_to(P, (X.shape[0], *P.shape))], axis=2)
        S = jax.nn.softmax(Z @ W @ Z.transpose(0, 2, 1), axis=1)
        f = jnp.einsum("nij,ni->n", S, Z @ v)
        return jax.nn.softplus(-y * f).mean()

    def step(v, W, X, y, P):
        with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
            value, (dv, dW) = jax.value_and_grad(loss, argnums=(0, 1))(*(jnp.asarray(x, dtype=dtype) for x in (v, W, X, y, P)))
            return value, dv, dW
    return step


def autograd_step(dtype):
    autograd = pytest.importorskip("autograd", reason="not run: autograd is not installed (extra `peers`)")
    anp = autograd.numpy

    def loss(parameters, X, y, P):
        v, W = parameters
        Z = np.concatenate([X, np.broadcast_to(P, (X.shape[0], *P.shape))], axis=2)
        A = anp.matmul(anp.matmul(Z, W), Z.transpose(0, 2, 1))
        E = anp.exp(A - anp.max(A, axis=1, keepdims=True))
        S = E / anp.sum(E, axis=1, keepdims=True)
        f = anp.einsum("nij,ni->n", S, anp.matmul(Z, v))
        return anp.mean(anp.logaddexp(np.zeros_like(y), -y * f))

    def step(v, W, X, y, P):
        value, (dv, dW) = autograd.value_and_grad(loss)((v, W), X, y, P)
        return value, dv, dW
    return step


def torch_step(dtype):
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")

    def step(v, W, X, y, P):
        v, W, X, y, P = (torch.tensor(x, dtype=getattr(torch, dtype)) for x in (v, W, X, y, P))
        v.requires_grad_(), W.requires_grad_()
        Z = torch.cat([X, P.expand(len(X), *P.shape)], dim=2)
        S = torch.softmax(Z @ W @ Z.transpose(1, 2), dim=1)
        f = torch.einsum("nij,ni->n", S, Z @ v)
        loss = -torch.nn.functional.logsigmoid(y * f).mean()
        loss.backward()
        return loss.detach(), v.grad, W.grad
    return step


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("peer", [jax_step, autograd_step, torch_step])
def test_peer_passes(peer, dtype):
    oracle.assert_matches(peer(dtype), dtype=dtype)
