"""The fast loss and gradient against the plain one: every shape, layout, type and edge case; sums; threads; errors."""

import inspect
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from cases import LAYOUTS, blocks, cases, failures, make, margin_error, scales
from gsref import batched, gradients, loss_and_gradient, stream_loss_and_gradient
from gsref import chunk as kernel
from gsref.batched import Pairwise
from gsref.threads import SINGLE_BLAS
from test_gradients import REFERENCE_CASES, dyadic, fifty_digits, make_from, reference_failures
from test_model import BAD, GOOD
from gsref.model import _attention, _scores, _values

EPS = np.finfo(float).eps
SINGLE = np.finfo(np.float32).eps


def condition(case):
    """How many eps of its scale a block may be off because scores and margins are rounded."""
    v, W, X, y, P = case.floats
    n, D, d = X.shape
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    return (1 + 2 * np.einsum("nia,ab,njb->nij", np.abs(Z), np.abs(W), np.abs(Z)).max()
            + margin_error(v, W, X, P).max())


def apart(case, got, wanted, ulps=16, eps=EPS):
    """Blocks of two gradients that differ by more than rounding, and the loss."""
    d, n = case.X.shape[2], len(case.y)
    off = condition(case)
    lines = failures(blocks(*got[1:3], d), blocks(*wanted[1:3], d),
                     {k: ulps * eps * off * s + np.finfo(float).tiny for k, s in scales(*case.floats).items()})
    if not abs(got[0] - wanted[0]) <= ulps * eps * (off + n) * (1 + wanted[0]):
        lines.append(f"loss: got {got[0]!r}, wanted {wanted[0]!r}")
    return lines


@pytest.mark.derives("batch.1", "batch.2", "batch.3")
@given(cases(), st.integers(1, 4), st.integers(1, 3))
@example(make(2, 3, 4, gap=800.0, margin=800.0), 1, 1)
@example(make(5, 4, 3, gap=40.0, margin=-800.0), 2, 2)
@example(make(3, 4, 2, v_norm=0.0), 3, 1)
def test_equals_the_plain_one(case, size, threads):
    before = [a.copy() for a in case.args]
    got = loss_and_gradient(*case.args, chunk=size, threads=threads, dtype=np.float64)
    assert apart(case, got, gradients.loss_and_gradient(*case.args)) == []
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(case.args, before))


@pytest.mark.parametrize("shape", [(300, 8, 4), (300, 16, 16), (40, 16, 40), (20, 33, 17), (5, 40, 30)])
@pytest.mark.parametrize("gap", [1.0, 60.0, 900.0])
def test_equals_the_plain_one_at_sizes_of_use(shape, gap):
    case = make(*shape, seed=5, gap=gap)
    n, D, d = shape
    got, wanted = loss_and_gradient(*case.args), gradients.loss_and_gradient(*case.args)
    # sums of n D tokens: a random walk of that many roundings on top, four standard deviations
    off = (16 + 4 * np.sqrt(n * D)) * EPS * condition(case)
    S = np.ones((n, D, D)) / D if gap == 0 else _attention(_scores(case.W, case.X, case.P))
    v, W, X, y, P = case.floats
    Z = np.concatenate([X, np.broadcast_to(P, (n, D, D))], axis=2)
    U = np.abs(Z) @ np.abs(v)
    others = np.einsum("nij,ni->nj", S, U)[:, None, :] - S * U[:, :, None]             # sum over l != i of S U
    H = S * ((1 - S) * U[:, :, None] + others)
    scale = {"dv": np.einsum("nij,nia->a", S, np.abs(Z)).max() / n,
             "dW": (np.einsum("nij,nia->nja", H, np.abs(Z)).reshape(n * D, -1).T
                    @ np.abs(Z).reshape(n * D, -1)).max() / n}
    assert np.abs(got[1] - wanted[1]).max() <= off * scale["dv"]
    assert np.abs(got[2] - wanted[2]).max() <= off * scale["dW"]
    assert abs(got[0] - wanted[0]) <= off * (1 + wanted[0])


@pytest.mark.parametrize("case", REFERENCE_CASES, ids=repr)
def test_equals_fifty_digits(case):
    _, dv, dW = loss_and_gradient(*case.args)
    assert reference_failures(case, blocks(dv, dW, case.X.shape[2])) == []


@pytest.mark.derives("batch.1")
@pytest.mark.parametrize("gap", [1.0, 8.0, 64.0, 512.0])
@pytest.mark.parametrize("size", [0.5, 8.0])
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0]])
def test_dominated_scores_keep_their_digits(gap, size, order, monkeypatch):
    case = dyadic(gap, size)                     # key 0 dominates; then others, groups and positions exchanged
    case = make_from(case.v, case.W, case.X[:, order], case.y, case.P[order], f"{case.text}{order}")
    v, W, X, y, P = case.floats
    _, wanted = fifty_digits(case)
    t = 1 + (np.abs(_values(v, X, P)) * _attention(_scores(W, X, P)).sum(axis=2)).sum(axis=1).max()
    allowed = {k: 4 * EPS * t * s for k, s in scales(v, W, X, y, P).items()}
    assert failures(blocks(*loss_and_gradient(*case.args)[1:], 2), wanted, allowed) == []
    if gap >= 64:                                # without the restored entry the same bar fails
        monkeypatch.setattr(kernel, "restore", lambda *arguments: None)
        lost = failures(blocks(*loss_and_gradient(*case.args)[1:], 2), wanted, allowed)
        assert {line[:3] for line in lost} >= {"W11", "W12", "W21", "W22"}


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2 ** 32 - 1))
def test_equal_tokens_give_no_dW(n, D, d, seed):
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.integers(-3, 4, (n, 1, d)), D, axis=1)
    P = np.repeat(rng.integers(-3, 4, (1, D)), D, axis=0)
    v, W, y = rng.integers(-3, 4, d + D), rng.integers(-3, 4, (d + D, d + D)), rng.choice([-1, 1], n)
    assert (loss_and_gradient(v, W, X, y, P)[2] == 0).all()
    assert (loss_and_gradient(0 * v, rng.standard_normal(W.shape), X, y, rng.standard_normal(P.shape))[2] == 0).all()


def test_a_kernel_without_the_normalisation_is_refused(monkeypatch):
    case = make(4, 3, 2, seed=8, gap=3.0, v_norm=1.5)
    wanted = gradients.loss_and_gradient(*case.args)
    monkeypatch.setattr(kernel, "factors", lambda t: (np.log1p(np.exp(-t)), 1 / (1 + np.exp(-t))))
    assert apart(case, loss_and_gradient(*case.args), wanted)


# sums over samples

@pytest.mark.derives("batch.4")
@given(st.integers(1, 70), st.randoms(use_true_random=False))
def test_tree_is_the_same_in_any_order_and_accurate(count, random):
    rng = np.random.default_rng(count)
    vectors = rng.standard_normal((count, 3)) * 10.0 ** rng.integers(-3, 4, (count, 1))
    order, tree, other = random.sample(range(count), count), Pairwise(), Pairwise()
    for k in range(count):
        tree.add(k, vectors[k])
        other.add(order[k], vectors[order[k]])
    np.testing.assert_array_equal(tree.total(), other.total())
    exact = [float(sum(map(Fraction, vectors[:, a].tolist()))) for a in range(3)]
    assert (np.abs(tree.total() - exact) <= (np.log2(count) + 2) * EPS * np.abs(vectors).sum(axis=0)).all()


def test_a_running_sum_would_not_be_accurate_enough():
    tenth, tree = np.full(1, 0.1), Pairwise()
    running = np.zeros(1)
    for k in range(1 << 15):
        tree.add(k, tenth)
        running = running + tenth
    exact = (1 << 15) * 0.1
    assert abs(tree.total()[0] - exact) == 0 and abs(running[0] - exact) > 1000 * EPS * exact / 100


def test_result_does_not_depend_on_the_number_of_threads():
    case = make(700, 16, 8, seed=1, gap=3.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched, "WORTH_THREADS", 0)
        one, *others = (loss_and_gradient(*case.args, threads=k, chunk=16) for k in (1, 2, 3, 7))
    for other in others:
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n, sizes", [(3000, (1, 7, 128, 3000)),
                                      pytest.param(10 ** 6, (16, 1000), marks=pytest.mark.slow)])
def test_result_does_not_depend_on_the_chunk_size_beyond_1e_13_of_the_scale(n, sizes):
    rng = np.random.default_rng(2)
    D, d = 3, 2
    case = make(1, D, d, seed=2, gap=2.0)
    X, y = rng.standard_normal((n, D, d)), rng.choice([-1.0, 1.0], n)
    found = [loss_and_gradient(case.v, case.W, X, y, case.P, chunk=size) for size in sizes]
    scale = scales(case.v, case.W, X, y, case.P)
    for other in found[1:]:
        assert failures(blocks(*other[1:], d), blocks(*found[0][1:], d), {k: 1e-13 * s for k, s in scale.items()}) == []
        assert abs(other[0] - found[0][0]) <= 1e-13 * found[0][0]


@pytest.mark.slow
def test_a_million_samples_are_right_to_1e_13_of_the_scale():
    # integers times powers of two: the sums of one period, repeated, are known
    rng = np.random.default_rng(3)
    D, d, period, times = 3, 2, 1000, 1000
    case = make(1, D, d, seed=4, gap=2.0)
    X, y = rng.standard_normal((period, D, d)), rng.choice([-1.0, 1.0], period)
    singles = [gradients.loss_and_gradient(case.v, case.W, X[k:k + 1], y[k:k + 1], case.P) for k in range(period)]
    exact = [np.array([float(sum(map(Fraction, column.tolist())) / period) for column in
                       np.array([np.ravel(one[part]) for one in singles]).T]) for part in (0, 1, 2)]
    loss, dv, dW = loss_and_gradient(case.v, case.W, np.tile(X, (times, 1, 1)), np.tile(y, times), case.P)
    scale = {k: 1e-13 * s for k, s in scales(case.v, case.W, X, y, case.P).items()}
    assert failures(blocks(dv, dW, d), blocks(exact[1], exact[2].reshape(d + D, d + D), d), scale) == []
    assert abs(loss - exact[0][0]) <= 1e-13 * exact[0][0]


def test_memory_does_not_grow_with_the_number_of_samples(tmp_path):
    D, d = 16, 16
    case, rng = make(1, D, d), np.random.default_rng(0)
    X, y = rng.standard_normal((1000, D, d)), rng.choice([-1.0, 1.0], 1000)

    def peak(call):
        tracemalloc.start()
        call()
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top / 2 ** 20

    few, many = (peak(lambda: stream_loss_and_gradient(case.v, case.W, ((X, y) for _ in range(k)), case.P))
                 for k in (2, 20))
    assert many <= few + 1 <= 64                  # MiB; pairs waiting in the tree grow with the logarithm only
    path = tmp_path / "X.npy"
    np.save(path, np.tile(X, (10, 1, 1)))
    mapped = np.load(path, mmap_mode="r")
    got = loss_and_gradient(case.v, case.W, mapped, np.tile(y, 10), case.P)
    room = 2 * kernel.Workspace.size(1024, D, d, float) / 2 ** 20         # 2^18 elements are 1024 samples
    for threads in (1, 2, 64):
        top = peak(lambda: loss_and_gradient(case.v, case.W, mapped, np.tile(y, 10), case.P, threads=threads))
        assert top <= (room + 2 if threads < 3 else 56) <= 64
    np.testing.assert_allclose(got[2], loss_and_gradient(case.v, case.W, X, y, case.P)[2], rtol=0, atol=1e-15)


# options

@given(cases(dtypes=("float64",)), st.integers(1, 3))
def test_a_stream_is_the_whole(case, size):
    v, W, X, y, P = case.args
    batches = [(X[k:k + size], y[k:k + size]) for k in range(0, len(y), size)]
    assert apart(case, stream_loss_and_gradient(v, W, iter(batches), P), loss_and_gradient(*case.args)) == []


@given(cases(dtypes=("float64",)), st.integers(0, 2 ** 32 - 1))
def test_weights_count_samples(case, seed):
    v, W, X, y, P = case.args
    times = np.random.default_rng(seed).integers(0, 4, len(y))
    times[0] += 1
    got = loss_and_gradient(v, W, X, y, P, weights=times)
    wanted = gradients.loss_and_gradient(v, W, np.repeat(X, times, axis=0), np.repeat(y, times), P)
    assert apart(case, got, wanted, ulps=16 * len(y)) == []
    scaled = loss_and_gradient(v, W, X, y, P, weights=times * 1e307)
    assert apart(case, scaled, got) == []
    streamed = stream_loss_and_gradient(v, W, [(X, y, times)], P)
    assert apart(case, streamed, got) == []


@given(cases(dtypes=("float32",)))
def test_float32_stays_float32_and_is_right_to_its_rounding(case):
    loss, dv, dW = loss_and_gradient(*case.args)
    assert dv.dtype == dW.dtype == np.float32
    off = SINGLE * condition(case)
    wanted = gradients.loss_and_gradient(*case.args)
    d = case.X.shape[2]
    if off < 0.01:                               # else single precision says nothing about scores of this size
        allowed = {k: 16 * off * s + np.finfo(np.float32).tiny for k, s in scales(*case.floats).items()}
        assert failures(blocks(dv, dW, d), blocks(*wanted[1:], d), allowed) == []
        assert abs(loss - wanted[0]) <= 16 * off * (1 + wanted[0])
    assert np.isfinite(dv).all() and np.isfinite(dW).all()


def test_types():
    v, W, X, y, P = make(4, 3, 2, dtype="float32").args
    assert loss_and_gradient(v, W, X, y, P.astype(float))[1].dtype == np.float64
    assert loss_and_gradient(v, W, X, y, P, dtype="float64")[1].dtype == np.float64
    assert loss_and_gradient(*make(4, 3, 2).args, dtype=np.float32)[2].dtype == np.float32
    for wrong in ("float16", complex, "text", "a", 3):
        with pytest.raises(ValueError, match="^dtype: got .*, expected float32 or float64"):
            loss_and_gradient(v, W, X, y, P, dtype=wrong)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_out_is_written_and_returned(layout):
    case = make(6, 3, 2, seed=3, layout=layout)
    dv, dW = np.full(5, np.nan), np.full((7, 7), np.nan)[1:6, :5].T
    _, got_v, got_W = loss_and_gradient(*case.args, out=(dv, dW))
    assert got_v is dv and got_W is dW
    wanted = loss_and_gradient(*case.args)
    np.testing.assert_array_equal(dv, wanted[1])
    np.testing.assert_array_equal(dW, wanted[2])


def test_bad_options_are_named():
    v, W, X, y, P = make(4, 3, 2).args
    locked = np.zeros(5)
    locked.flags.writeable = False
    good = np.zeros(5), np.zeros((5, 5))
    for options, error, message in [
            ({"out": (np.zeros(4), good[1])}, ValueError, r"out\[0\]: got float64 \(4,\), expected a float64"),
            ({"out": (good[0], np.zeros((5, 5), np.float32))}, ValueError, r"out\[1\]: got float32"),
            ({"out": (locked, good[1])}, ValueError, r"out\[0\]: got a read-only"),
            ({"out": (v, good[1])}, ValueError, r"out\[0\]: shares memory with an argument"),
            ({"out": (good[1][0], good[1])}, ValueError, "out: the two buffers share memory"),
            ({"out": 3}, TypeError, "out: got int, expected a pair"),
            ({"weights": [1, 1, -1, 1]}, ValueError, "weights: got -1 at index 2, expected numbers >= 0"),
            ({"weights": np.zeros(4)}, ValueError, "weights: got only zeros"),
            ({"weights": np.ones(3)}, ValueError, r"weights: got shape \(3,\)"),
            ({"chunk": 0}, ValueError, "chunk: got 0"), ({"threads": 0}, ValueError, "threads: got 0"),
            ({"threads": 1.5}, TypeError, "threads: got 1.5"),
            ({"direction": (v, W[:4])}, ValueError, r"direction\[1\]: got shape \(4, 5\)"),
            ({"direction": v[0]}, TypeError, "direction: got float64, expected a pair")]:
        with pytest.raises(error, match=f"^{message}"):
            loss_and_gradient(v, W, X, y, P, **options)
    with pytest.raises(ValueError, match="^batches: got none"):
        stream_loss_and_gradient(v, W, [], P)


# errors as of the plain one

@pytest.mark.parametrize("name, value, error, message", BAD)
def test_bad_input_is_named(name, value, error, message):
    names = [k for k in inspect.signature(loss_and_gradient).parameters if k in GOOD]
    with pytest.raises(error, match=f"^{name}: {message}"):
        loss_and_gradient(**{**{k: GOOD[k] for k in names}, name: value})


@pytest.mark.parametrize("changed", [
    {"W": np.full((3, 3), 1e308), "X": np.full((1, 2, 1), 1e10)},
    {"W": np.full((3, 3), 1e308) * [1, -1, 1], "X": np.full((1, 2, 1), 1e10)},
    {"v": np.array([1e308, 0, 0]), "X": np.array([[[1.0], [1e10]]])}, {"v": np.array([1e308, 0, 0])},
    {"X": np.full((1, 2, 1), 1e200), "W": np.zeros((3, 3)), "v": np.array([-1e-200, 1.0, 0.0])}])
def test_overflow_is_the_error_of_the_plain_one(changed):
    arguments = {"v": np.ones(3), "W": np.eye(3), "X": np.ones((1, 2, 1)), "y": [1.0], "P": np.eye(2), **changed}
    with pytest.raises(OverflowError) as plain:
        gradients.loss_and_gradient(**arguments)
    with pytest.raises(OverflowError) as fast:
        loss_and_gradient(**arguments)
    assert str(fast.value) == str(plain.value)


@pytest.mark.parametrize("scale, gap", [(1e-290, 100.0), (1e-200, 0.5), (1.0, 200.0)])
def test_products_near_underflow_keep_their_digits(scale, gap):
    # c / Z alone would underflow, c S does not
    case = make(3, 3, 2, seed=2, gap=gap, v_norm=scale)
    for v in (case.v, 600 * case.v / scale):     # margins of some 600: c near 1e-260
        y = np.sign(np.einsum("nij,ni->n", _attention(_scores(case.W, case.X, case.P)), _values(v, case.X, case.P)))
        got, wanted = (f(v, case.W, case.X, y, case.P) for f in (loss_and_gradient, gradients.loss_and_gradient))
        for a, b in zip(got[1:], wanted[1:]):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * np.abs(b).max())


def test_numbers_beyond_float32_are_an_error_and_not_a_warning():
    v, W, X, y, P = make(6, 3, 2, seed=1).args
    for options in ({}, {"squared_norms": True}, {"direction": (v, W)}):
        with pytest.raises(OverflowError, match="^(dv|squared_norms|HW|Hv): overflow"):
            loss_and_gradient(0 * v, 0 * W, X * 1e50, y, P, dtype=np.float32, **options)
    loss, dv, _ = loss_and_gradient(0 * v, 0 * W, X * 1e50, y, P)
    assert loss == pytest.approx(np.log(2)) and np.isfinite(dv).all()


def test_place_of_a_fault_is_that_in_the_whole_batch():
    v, W, X, y, P = make(9, 3, 2).floats
    X[7, 1, 0] = np.nan
    with pytest.raises(ValueError, match=r"^X: got nan at index \(7, 1, 0\), expected finite numbers"):
        loss_and_gradient(v, W, X, y, P, chunk=2)
    X[7, 1, 0] = 1e200
    W[0, 0] = 1e200
    with pytest.raises(OverflowError) as plain:
        gradients.loss_and_gradient(v, W, X, y, P)
    with pytest.raises(OverflowError) as fast:
        loss_and_gradient(v, W, X, y, P, chunk=2)
    assert str(fast.value) == str(plain.value) and "scores: overflow at index (7, " in str(fast.value)


def test_huge_scores_and_squares_are_fine_as_long_as_they_are_finite():
    W, P = np.diag([0.0, 1.6e308, -1.6e308]), np.array([[1.0, 0.1], [0.1, -1.0]])
    for X in (np.ones((1, 2, 1)), np.array([[[1e160], [1.0]]])):
        args = np.array([1e-160, 1.0, 1.0]), W, X, [1.0], P
        for got, wanted in zip(loss_and_gradient(*args), gradients.loss_and_gradient(*args)):
            np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=0)


# no state left behind

def test_blas_threads_and_error_state_are_as_before():
    case = make(5, 3, 2)
    before = [library.get_num_threads() for library in SINGLE_BLAS.libraries()], np.geterr()
    loss_and_gradient(*case.args, threads=2)
    with pytest.raises(ValueError):
        loss_and_gradient(*case.args[:2], case.X * np.nan, *case.args[3:], threads=2)
    assert before == ([library.get_num_threads() for library in SINGLE_BLAS.libraries()], np.geterr())


def test_environment_sets_the_threads(monkeypatch):
    from gsref.threads import number
    monkeypatch.setenv("GSREF_THREADS", "3")
    assert number() == 3 and number(2) == 2
    monkeypatch.setenv("GSREF_THREADS", "many")
    with pytest.raises(ValueError, match="^GSREF_THREADS: got 'many', expected an integer >= 1"):
        number()


def test_works_without_threadpoolctl(monkeypatch):
    from gsref import threads
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)            # import fails
    monkeypatch.delenv("GSREF_THREADS", raising=False)
    monkeypatch.setattr(threads.SINGLE_BLAS, "_libraries", None)
    case = make(5, 3, 2)
    assert threads.number() == 1 and threads.SINGLE_BLAS.libraries() == []
    assert apart(case, loss_and_gradient(*case.args, threads=2), gradients.loss_and_gradient(*case.args)) == []
