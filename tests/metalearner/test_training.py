"""Training on W and on the kernel are one path; the choice goes by counts and memory; runs can be split."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gsref.metalearner import training
from gsref.metalearner.max_margin import full_kernel
from gsref.metalearner.model import loss_and_gradient
from gsref.metalearner.problem import MetaProblem, Tasks
from gsref.metalearner.training import Kernel, choose_way, combine, direct_cost, kernel_cost, train, trainer


def tasks(B, d, k=2, R=2.0, N=10, seed=0, **options):
    return MetaProblem(d, k, R, **options).sample_tasks(B, N, np.random.default_rng(seed))


def plain(t, eta, steps):
    """Gradient descent in its plainest form: W and the losses before each step."""
    W, losses = np.zeros((t.x.shape[1],) * 2), []
    for _ in range(steps):
        loss, dW = loss_and_gradient(W, t.muhat, t.x, t.y)
        losses.append(loss)
        W = W - eta * dW
    return W, np.array(losses)


@pytest.mark.derives("meta.4")
@given(B=st.integers(1, 60), d=st.integers(2, 12), steps=st.integers(0, 150), seed=st.integers(0, 10**6),
       eta=st.sampled_from([0.01, 0.3, 3.0, 100.0]))
@settings(max_examples=40)
def test_both_ways_and_the_plain_loop_agree_to_1e_10(B, d, steps, seed, eta):
    t = tasks(B, d, seed=seed)
    eta = min(eta, 8 * B / np.linalg.eigvalsh(full_kernel(t))[-1])         # 2/|Hessian|: beyond it rounding grows
    W, losses = plain(t, eta, steps)
    for way in ("direct", "kernel"):
        got = train(t, eta, steps, way)
        assert got.way == way and got.losses.shape == (steps,)
        np.testing.assert_allclose(got.W, W, rtol=0, atol=1e-10 * max(np.abs(W).max(), 1e-300))
        np.testing.assert_allclose(got.losses, losses, rtol=0, atol=1e-10)
        np.testing.assert_allclose(got.margins, t.y * np.einsum("bd,bd->b", t.muhat @ W, t.x), rtol=0,
                                   atol=1e-10 * max(1.0, np.abs(got.margins).max()))


@pytest.mark.derives("meta.4")
def test_published_settings_at_a_size_with_several_windows_and_tiles(monkeypatch):
    t = tasks(300, 40, 4, 3.0, 40)
    monkeypatch.setattr(training, "TILE", 64)
    direct, kernel = (train(t, way=way) for way in ("direct", "kernel"))
    np.testing.assert_allclose(kernel.W, direct.W, rtol=0, atol=1e-12 * np.abs(direct.W).max())
    np.testing.assert_allclose(kernel.losses, direct.losses, rtol=0, atol=1e-13)


def test_windows_shrink_where_the_path_is_not_smooth():
    """At a large rate the first steps jump: a polynomial through 20 of 64 steps must be refused, and the result right."""
    t, widths = tasks(50, 6), []

    class Watched(training.KernelTrainer):
        def _window(self, n, recent):
            found = super()._window(n, recent)
            widths.append((n, found is not None))
            return found
    run = Watched(t, 100.0)
    run.advance(100)
    assert (64, False) in widths and any(accepted for _, accepted in widths)
    np.testing.assert_allclose(run.W, plain(t, 100.0, 100)[0], rtol=0, atol=1e-10 * np.abs(run.W).max())


@given(st.integers(1, 300))
def test_nodes_are_distinct_and_span_the_window(n):
    x = training._window_nodes(n)
    assert len(x) == min(n, training.NODES) and (np.diff(x) > 0).all() and x[0] == 0 and x[-1] == n - 1


def test_lagrange_is_exact_to_its_degree_and_not_beyond():
    x, r = np.array([0, 2, 3, 7]), np.arange(12)
    basis = training._lagrange(x, r)
    for power in range(4):
        np.testing.assert_allclose(basis @ x ** power, r ** power, rtol=1e-12, atol=1e-10)
    assert np.abs(basis @ x ** 4 - r ** 4).max() > 1.0


def test_kernel_product_is_the_gram_matrix_of_the_features(monkeypatch):
    monkeypatch.setattr(training, "TILE", 7)
    t = tasks(30, 5)
    xy = t.y[:, None] * t.x
    features = np.einsum("ba,bc->bac", t.muhat, xy).reshape(30, -1)
    C = np.random.default_rng(0).standard_normal((3, 30))
    np.testing.assert_allclose(Kernel(t.muhat, xy).of_rows(C), C @ features @ features.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(combine(t, C[0]).ravel(), C[0] @ features, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", ["direct", "kernel"])
def test_a_run_can_be_split_bit_for_bit(way):
    t = tasks(40, 6)
    whole = trainer(t, 0.1, 200, way)
    whole.advance(100)
    state, losses = whole.state.copy(), list(whole.losses)
    whole.advance(100)
    rest = trainer(t, 0.1, 200, way, state=state)
    rest.advance(100)
    assert np.array_equal(rest.state, whole.state) and losses + rest.losses == whole.losses


@pytest.mark.parametrize("way", ["direct", "kernel"])
def test_rotating_the_subspace_rotates_w(way):
    Q = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))[0]
    t = tasks(40, 6)
    turned = Tasks(t.muhat @ Q.T, t.x @ Q.T, t.y, t.mu @ Q.T)
    np.testing.assert_allclose(train(turned, 0.1, 50, way).W, Q @ train(t, 0.1, 50, way).W @ Q.T, atol=1e-13)


def test_choice_goes_by_operations():
    assert choose_way(20_000, 500, 300) == "kernel" and choose_way(2000, 2000, 300) == "kernel"
    assert choose_way(100_000, 20, 300) == "direct"
    for B, d, steps in ((20_000, 500, 300), (100_000, 20, 300), (500, 500, 10)):
        costs = {"direct": direct_cost(B, d, steps), "kernel": kernel_cost(B, d, steps)}
        fitting = {way: cost for way, (cost, size) in costs.items() if size <= 4e9}
        assert choose_way(B, d, steps) == min(fitting, key=fitting.get)


def test_choice_obeys_the_memory():
    assert choose_way(40_000, 500, 300) == "direct"                     # the kernel would take 6.6 GB
    assert kernel_cost(40_000, 500, 300)[1] > 4e9 > direct_cost(40_000, 500, 300)[1]
    with pytest.raises(MemoryError, match=r"training on 1000 tasks of dimension 100 needs direct 0.00424 GB, kernel "
                                          r"0.0\d+ GB; allowed are 0.001 GB"):
        train(tasks(1000, 100), memory=1e6)


def test_memory_count_covers_what_is_taken():
    import tracemalloc
    t = tasks(3000, 60)
    for way, cost in (("direct", direct_cost), ("kernel", kernel_cost)):
        tracemalloc.start()
        train(t, 0.01, 3, way)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < cost(3000, 60, 3)[1], way


def test_inputs_are_left_alone():
    t = tasks(20, 4)
    before = [a.copy() for a in (t.muhat, t.x, t.y)]
    for way in ("direct", "kernel"):
        train(t, 0.1, 10, way)
    assert all(np.array_equal(a, b) for a, b in zip(before, (t.muhat, t.x, t.y)))


@pytest.mark.parametrize("options, error, message", [
    ({"eta": 0.0}, ValueError, "eta: got 0.0"), ({"eta": float("inf")}, ValueError, "eta: got inf"),
    ({"steps": -1}, ValueError, "steps: got -1"), ({"steps": 1.5}, TypeError, "steps: got 1.5"),
    ({"way": "guess"}, ValueError, "way: got 'guess', expected one of auto, direct, kernel"),
])
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        train(tasks(3, 2), **options)


def test_bad_tasks_and_state():
    with pytest.raises(TypeError, match="tasks: got tuple"):
        train((1, 2, 3))
    with pytest.raises(ValueError, match=r"state: got shape \(3, 3\), expected \(2, 2\)"):
        trainer(tasks(3, 2), 0.1, 5, "direct", state=np.eye(3))
