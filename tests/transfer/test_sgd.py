"""Online SGD in a batch: the closed-form gradient, independence of members, perfect and uniform attention, mistakes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gsref import OrderParameters, Problem, forward, loss_and_gradient
from gsref.problem import positions
from gsref.transfer import sgd
from gsref.transfer.rates import linear_error
from gsref.transfer.sgd import (attention_step, default_step, linear_step, mistake_bound, rotated, train_attention,
                                train_linear, unrotated)
from gsref.transfer.task import DownstreamTask

EPS = np.finfo(float).eps


def unit(d, seed=0):
    v = np.random.default_rng(seed).standard_normal(d)
    return v / np.linalg.norm(v)


def a_task(d=3, D=4, relevant=1, law="gaussian", margin=0.5):
    return DownstreamTask(Problem(d, D, relevant=relevant), unit(d), law, margin)


def a_model(d, D, seed=0, scale=0.5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(d + D), scale * rng.standard_normal((d + D, d + D))


def step_failures(B, D, d, seed):
    """Members and blocks at which one batched step differs from (v, W) - eta * loss_and_gradient of its own sample."""
    rng = np.random.default_rng(seed)
    v, W = rng.standard_normal((B, d + D)), 0.5 * rng.standard_normal((B, d + D, d + D))
    X, y, eta = rng.standard_normal((B, D, d)), np.where(rng.random(B) < 0.5, -1.0, 1.0), rng.random(B) + 0.1
    P = positions(D)
    blocks = rotated(v, W, P)
    attention_step(blocks, X, y, eta, np.sqrt((D + 1) / 2))
    v_new, W_new = unrotated(blocks, P)
    lines = []
    for b in range(B):
        _, dv, dW = loss_and_gradient(v[b], W[b], X[b:b + 1], y[b:b + 1], P)
        for name, got, wanted in (("v", v_new[b], v[b] - eta[b] * dv), ("W", W_new[b], W[b] - eta[b] * dW)):
            # scores of size 10 lose a digit, sums of (d + D)^2 terms another: far below any wrong term
            if not np.abs(got - wanted).max() <= 1e-12 * (1 + np.abs(wanted).max()):
                lines.append((b, name))
    return lines


@pytest.mark.derives("transfer.4")
@given(B=st.integers(1, 4), D=st.integers(1, 5), d=st.integers(1, 4), seed=st.integers(0, 10**6))
@settings(max_examples=60)
def test_batched_step_is_the_closed_form_gradient(B, D, d, seed):
    assert step_failures(B, D, d, seed) == []


@pytest.mark.parametrize("broken", ["factor", "score", "transposed"])
def test_planted_errors_in_the_step_are_caught(monkeypatch, broken):
    if broken == "factor":
        real = sgd.logistic_factor
        monkeypatch.setattr(sgd, "logistic_factor", lambda t: 1.01 * real(t))
    elif broken == "score":
        real = sgd.score_gradient
        monkeypatch.setattr(sgd, "score_gradient", lambda A, S, u: S * u[:, :, None])          # ubar_j forgotten
    else:
        real = sgd.score_gradient
        monkeypatch.setattr(sgd, "score_gradient", lambda A, S, u: real(A, S, u).transpose(0, 2, 1))
    assert step_failures(2, 3, 2, 5)


def test_rotation_of_positions_is_undone():
    d, D = 3, 5
    v, W = a_model(d, D)
    back = unrotated(rotated(v, W, positions(D)), positions(D))
    np.testing.assert_allclose(back[0], v, atol=8 * EPS * np.abs(v).max())
    np.testing.assert_allclose(back[1], W, atol=16 * EPS * D * np.abs(W).max())


def test_run_equals_a_plain_loop_over_samples():
    task, P, at = a_task(), positions(4), [1, 7, 150]
    v, W = a_model(3, 4, scale=0.2)
    run = train_attention(task, v, W, 0.05, [11], at)
    rng, states, mistakes, wrong = np.random.default_rng(11), [], [], 0
    samples = [task.sample(sgd.CHUNK, rng) for _ in range(2)]
    X, y = (np.concatenate(part) for part in zip(*samples))
    for n in range(150):
        loss, dv, dW = loss_and_gradient(v, W, X[n:n + 1], y[n:n + 1], P)
        wrong += loss >= np.log(2)             # y f <= 0
        v, W = v - 0.05 * dv, W - 0.05 * dW
        if n + 1 in at:
            states.append((v, W))
            mistakes.append(wrong)
    assert run.mistakes[0].tolist() == mistakes
    for (v_run, W_run), (v, W) in zip(run.states, states):
        np.testing.assert_allclose(v_run[0], v, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(W_run[0], W, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("d, D", [(3, 4), (1, 2), (5, 3), (8, 8)])
def test_one_seed_equals_the_batch_bit_for_bit(d, D):
    task, seeds, eta = a_task(d, D), [5, 8, 2, 2, 13, 21, 34], [0.01, 0.02, 0.04, 0.3, 0.02, 0.01, 0.1]
    v, W = a_model(d, D)
    for train in (lambda eta, seeds: train_attention(task, v, W, eta, seeds, [3, 140]),
                  lambda eta, seeds: train_linear(task, eta, seeds, [3, 140])):
        together = train(eta, seeds)
        for b, (seed, rate) in enumerate(zip(seeds, eta)):
            alone = train(rate, [seed])
            assert (alone.mistakes[0] == together.mistakes[b]).all()
            for one, all_of_them in zip(alone.states, together.states):
                for part, batch in zip(one, all_of_them):
                    assert (part[0] == batch[b]).all()
        # the same seed at two step sizes: the same samples, another path
        assert not (together.states[-1][0][2] == together.states[-1][0][3]).all()


def test_same_seeds_same_numbers_wherever_one_looks():
    task = a_task()
    v, W = a_model(3, 4)
    a = train_attention(task, v, W, 0.02, [1, 2], [10, 200])
    b = train_attention(task, v, W, 0.02, [1, 2], [3, 10, 77, 200])
    assert (a.mistakes == b.mistakes[:, [1, 3]]).all()
    assert (a.states[-1][1] == b.states[-1][1]).all()
    assert not (a.states[-1][1] == train_attention(task, v, W, 0.02, [1, 3], [10, 200]).states[-1][1])[1].all()


def perfect(d, D, relevant, gap):
    """(v, W): v zero, and every query gives group `relevant` a score `gap` above the others."""
    problem = Problem(d, D, relevant=relevant)
    return OrderParameters(0, 0, 0, gap, gap, -gap / (D - 1)).to_params(problem)


@pytest.mark.derives("transfer.5")
def test_perfect_attention_learns_as_a_logistic_regression_exactly():
    # D a power of two, so that D times a value is exact; the d features of the group and an intercept
    d, D, r = 3, 4, 2
    task, root = a_task(d, D, r), np.sqrt((D + 1) / 2)
    _, W = perfect(d, D, r, 4000.0)
    run = train_attention(task, np.zeros(d + D), W, 0.03, [4], [1, 2, 30, 400])
    rng = np.random.default_rng(4)
    X, y = (np.concatenate(part) for part in zip(*(task.sample(sgd.CHUNK, rng) for _ in range(4))))
    phi = np.concatenate([D * X[:, r], np.full((len(X), 1), D * root)], axis=1)
    w, states = [np.zeros((1, d + 1))], {}
    wrong = 0
    for n in range(400):
        wrong += ~(linear_step(w, phi[n:n + 1], y[n:n + 1], 0.03) > 0)
        states[n + 1] = w[0][0].copy()
    for n, (v, W_now) in zip(run.at, run.states):
        blocks = rotated(v, W_now, positions(D))
        # sums of d terms may be taken in another order: a few units in the last place, where nothing amplifies them
        np.testing.assert_allclose(blocks[0][0], states[n][:d], rtol=0, atol=64 * EPS * np.abs(states[n]).max())
        np.testing.assert_allclose(blocks[1][0, r], states[n][d], rtol=0, atol=64 * EPS * np.abs(states[n]).max())
        np.testing.assert_allclose(np.delete(blocks[1][0], r), 0, atol=1e-12 * np.abs(states[n]).max())
        np.testing.assert_allclose(W_now[0], W, rtol=0, atol=16 * EPS * np.abs(W).max())
    assert run.mistakes[0, -1] == wrong


def test_perfect_attention_is_bit_for_bit_a_logistic_regression():
    # D = 2 makes products and sums of D equal values exact, d = 1 leaves no order of summation: equality to the last bit
    D, r, root = 2, 1, np.sqrt(1.5)
    rng = np.random.default_rng(0)
    gap = np.zeros((1, D, D))
    gap[0, r] = 2000.0
    blocks = [np.zeros((1, 1)), np.zeros((1, D)), np.zeros((1, 1, 1)), np.zeros((1, 1, D)), np.zeros((1, D, 1)), gap.copy()]
    w = [np.zeros((1, 2))]
    for _ in range(300):
        X = rng.standard_normal((1, D, 1))
        y = np.sign(X[:, r, 0])
        t = attention_step(blocks, X, y, np.array([0.01]), root)
        assert t == linear_step(w, np.array([[D * X[0, r, 0], D * root]]), y, np.array([0.01]))
        assert blocks[0][0, 0] == w[0][0, 0] and blocks[1][0, r] == w[0][0, 1] and blocks[1][0, 0] == 0
        assert (blocks[5] == gap).all() and not blocks[2].any() and not blocks[3].any() and not blocks[4].any()


@pytest.mark.parametrize("d, D", [(3, 4), (8, 2), (1, 9)])
def test_default_step_moves_the_logit_of_its_own_sample_by_twice_the_factor(d, D):
    # with all attention on the group one step changes f by eta c |phi|^2; its mean over samples without margin is 2 c
    task = a_task(d, D, 0, margin=0.0)
    W, P, change = perfect(d, D, 0, 4000.0)[1], positions(D), []
    X, y = task.sample(500, np.random.default_rng(0))
    for n in range(len(y)):
        blocks = rotated(np.zeros((1, d + D)), W[None], P)
        attention_step(blocks, X[n:n + 1], y[n:n + 1], np.array([default_step(d, D)]), np.sqrt((D + 1) / 2))
        change.append(y[n] * forward(*(part[0] for part in unrotated(blocks, P)), X[n:n + 1], P)[0][0] / 0.5)
    assert abs(np.mean(change) - 2) <= 4 * np.std(change) / np.sqrt(len(change))


def test_uniform_attention_does_not_learn_as_the_group_alone():
    d, D, r = 3, 4, 2
    task = a_task(d, D, r)
    perfectly = train_attention(task, np.zeros(d + D), perfect(d, D, r, 4000.0)[1], default_step(d, D), range(8), [400])
    uniformly = train_attention(task, np.zeros(d + D), np.zeros((d + D, d + D)), default_step(d, D), range(8), [400])
    ours, theirs = perfectly.mistakes[:, -1], uniformly.mistakes[:, -1]
    assert theirs.mean() - ours.mean() > 4 * np.hypot(ours.std(ddof=1), theirs.std(ddof=1)) / np.sqrt(8)
    assert np.abs(uniformly.states[-1][1]).max() > 1e-3                  # W moves


@pytest.mark.derives("transfer.6")
@pytest.mark.parametrize("d, D", [(2, 2), (8, 4)])
def test_mistakes_stay_below_the_bound(d, D):
    # every run, not on average: the bound is deterministic for |x_r|^2 = d
    task, n = a_task(d, D, 0, "rademacher", 0.25), 2000
    R2 = D**2 * (d + (D + 1) / 2)
    for multiple in (0.25, 1.0, 1.9):
        run = train_attention(task, np.zeros(d + D), perfect(d, D, 0, 4000.0)[1], multiple / R2, range(12), [n])
        assert run.mistakes.max() <= mistake_bound(n, D * 0.25, R2, multiple / R2)
    linear = train_linear(task, 1 / (d * D), range(12), [n])
    assert linear.mistakes.max() <= mistake_bound(n, 0.25, d * D, 1 / (d * D))


def test_mistake_bound_is_the_claimed_form():
    # at eta = 1/R^2, with |x_r|^2 = d: ((d + kappa) log^2(n)/gamma^2 + 2)/log 2
    d, D, gamma, n = 5, 4, 0.3, 700
    R2 = D**2 * (d + (D + 1) / 2)
    wanted = ((d + (D + 1) / 2) * np.log(n) ** 2 / gamma**2 + 2) / np.log(2)
    assert mistake_bound(n, D * gamma, R2, 1 / R2) == pytest.approx(wanted, rel=1e-13)


def test_mistake_bound_can_be_exceeded_without_a_margin():
    # labels that are pure noise have no margin: a learner exceeds the bound of margin 1, which so can fail
    class Noise:
        d, D = 2, 2

        def sample(self, n, rng):
            return 2.0 * rng.integers(0, 2, (n, 2, 2)) - 1, 2.0 * rng.integers(0, 2, n) - 1
    run = train_linear(Noise(), 0.25, range(4), [4000])
    assert run.mistakes.min() > mistake_bound(4000, 1.0, 4, 0.25)
    with pytest.raises(ValueError, match="eta: got 0.5, expected less than 0.5"):
        mistake_bound(10, 1.0, 4, 0.5)


def drift(task, seeds, mistakes_of):
    """(mean difference, its standard error) over seeds of mistakes and of the sum of exact error rates before them."""
    run = train_linear(task, 0.05, range(seeds), list(range(1, 41)))
    exact = np.array([[1.0] + [linear_error(task, run.states[k][0][s])[0] for k in range(39)]
                      for s in range(seeds)]).sum(axis=1)
    difference = mistakes_of(run) - exact
    return difference.mean(), difference.std(ddof=1) / np.sqrt(seeds)


@pytest.mark.derives("transfer.7")
def test_online_error_is_unbiased():
    mean, error = drift(a_task(2, 2, 0), 400, lambda run: run.online_error[:, -1] * 40)
    assert abs(mean) <= 4 * error


def test_planted_error_mistakes_counted_after_the_step_are_caught():
    task = a_task(2, 2, 0)

    def after(run):
        drawn = [task.sample(sgd.CHUNK, np.random.default_rng(seed)) for seed in range(len(run.mistakes))]
        X, y = (np.stack(part)[:, :40] for part in zip(*drawn))
        w = np.stack([state[0] for state in run.states], axis=1)
        return np.count_nonzero(y * np.einsum("snji,snji->sn", X, w) <= 0, axis=1)
    mean, error = drift(task, 400, after)
    assert mean < -4 * error


def test_a_logit_of_zero_is_a_mistake():
    run = train_linear(a_task(), 0.1, [1, 2, 3], [1])
    assert (run.mistakes == 1).all()


@pytest.mark.parametrize("changes, error, text", [
    ({"at": []}, ValueError, "at: got"), ({"at": [5, 3]}, ValueError, "at: got"), ({"at": [0]}, ValueError, "at: got 0"),
    ({"eta": 0.0}, ValueError, "eta: got 0"), ({"eta": [0.1, 0.2, 0.3]}, ValueError, "broadcast|shape"),
    ({"seeds": [-1, 2]}, ValueError, "seeds: got -1"), ({"seeds": [0.5, 1]}, TypeError, "seeds: got 0.5"),
    ({"v": np.zeros(3)}, ValueError, "v: got shape"), ({"W": np.full((7, 7), np.nan)}, ValueError, "W: got nan"),
])
def test_bad_arguments_are_refused(changes, error, text):
    arguments = {"v": np.zeros(7), "W": np.zeros((7, 7)), "eta": 0.1, "seeds": [1, 2], "at": [5]} | changes
    with pytest.raises(error, match=text):
        train_attention(a_task(), **arguments)


def test_inputs_are_not_modified():
    v, W = a_model(3, 4)
    kept = v.copy(), W.copy()
    train_attention(a_task(), v, W, 0.1, [1], [5])
    assert (v == kept[0]).all() and (W == kept[1]).all()
