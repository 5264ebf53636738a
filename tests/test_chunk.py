"""The arrangement of one chunk: products in pieces, added rows, workspaces; and the threads that chunks run in."""

import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cases import make
from gsref import batched, chunk
from gsref.threads import SINGLE_BLAS, run

EPS = np.finfo(float).eps


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 9), st.integers(1, 600))
def test_products_in_pieces_are_the_products(k, a, b, small):
    rng = np.random.default_rng([k, a, b])
    rows, B, C = rng.standard_normal((k, a)), rng.standard_normal((a, b)), rng.standard_normal((k, b))
    out = np.empty((k, b))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "SMALL", small)               # pieces, a remainder, or both
        chunk.product(rows, B, out)
        turned = chunk.transposed_product(C, rows)
    assert (np.abs(out - rows @ B) <= 2 * a * EPS * (np.abs(rows) @ np.abs(B))).all()
    assert (np.abs(turned - C.T @ rows) <= 2 * k * EPS * (np.abs(C).T @ np.abs(rows))).all()


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 5))
def test_the_same_row_is_added_to_each(k, l, times):
    rng = np.random.default_rng([k, l])
    rows, row = rng.standard_normal((k, l)), rng.standard_normal(l)
    wanted = rows + row
    chunk.add_row(rows, np.tile(row, times))
    np.testing.assert_array_equal(rows, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_workspaces_lie_on_cache_lines_and_do_not_overlap(dtype):
    spaces = chunk.workspaces(3, 5, 3, 7, dtype)
    arrays = [array for space in spaces for array in vars(space).values() if array is not space.ones]
    assert all(array.ctypes.data % chunk.LINE == 0 for array in arrays)
    for i, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[:i])


@pytest.mark.derives("batch.5")
@given(st.integers(1, 4), st.integers(1, 9), st.floats(0, 30), st.integers(0, 2**32 - 1))
def test_dominating_keys_are_found_and_no_others(m, D, spread, seed):
    rng = np.random.default_rng(seed)
    A = np.rint(4 * spread * rng.standard_normal((m, D, D))) / 4         # ties, and gaps from nothing to extreme
    work = chunk.Workspace(m, D, 1, np.dtype(float))
    work.right[0] = rng.standard_normal((m, D))
    E, sums = chunk.attention(A, work)
    np.testing.assert_allclose(sums[0], (E * work.right[0, :, None, :]).sum(axis=2), rtol=0, atol=4 * D * EPS * 5 * sums[1].max())
    np.testing.assert_allclose(sums[1], E.sum(axis=2), rtol=2 * D * EPS)
    share = E / E.sum(axis=2, keepdims=True)
    clear = np.abs(share - chunk.MOST) > 1e-12                          # rounding may decide on the border
    wanted = {(n * D + j, i) for n, j, i in np.argwhere((share > chunk.MOST) & clear)}
    allowed = wanted | {(n * D + j, i) for n, j, i in np.argwhere(~clear)}
    found = set(zip(*(array.tolist() for array in chunk.dominating(E, sums))))
    assert wanted <= found <= allowed
    for r in (*chunk.signs(D), rng.choice([-1, 1], D)):
        assert (np.abs(E @ r) >= (2 * E.max(axis=2) - sums[1]) - 4 * D * EPS * sums[1]).all()


def test_restored_entries_are_those_of_zero_column_sums():
    rng = np.random.default_rng(0)
    G = rng.standard_normal((2, 3, 3))
    wanted = G.copy()
    wanted[1, 0, 2] = -(G[1, 0, 0] + G[1, 0, 1])
    chunk.restore(G, np.array([3]), np.array([2]))
    np.testing.assert_array_equal(G, wanted)


def test_every_product_of_a_call_keeps_blas_to_one_thread(monkeypatch):
    case, seen = make(6, 3, 2, seed=3), []
    for name in ("prepare", "loss_and_gradient", "gradient_blocks"):
        real = getattr(chunk, name)
        monkeypatch.setattr(chunk, name, lambda *args, name=name, real=real: (seen.append((name, SINGLE_BLAS._inside)),
                                                                              real(*args))[1])
    batched.loss_and_gradient(*case.args)
    assert {name for name, _ in seen} == {"prepare", "loss_and_gradient", "gradient_blocks"}
    assert all(inside for _, inside in seen) and SINGLE_BLAS._inside == 0


def test_chunks_are_equal_shares_and_even_in_number_where_threads_are_worth_it():
    def sizes(n, D, d):
        call = batched.Call(np.zeros(d + D), np.zeros((d + D, d + D)), np.eye(D), D, d, np.dtype(float), 1, None, None)
        return -(-n // call.chunk(n)), call.chunk(n), call.work(n) > batched.WORTH_THREADS
    for n in (1, 2, 100, 300, 511, 700, 5000):
        count, size, worth = sizes(n, 16, 16)
        assert size * 16 * 16 <= batched.ELEMENTS and count * size - n < count
        assert not worth or count % 2 == 0


def test_run_calls_each_argument_in_its_own_thread_and_raises_when_all_are_done():
    ids, barrier = [], threading.Barrier(3, timeout=60)

    def work(argument):
        barrier.wait()                                     # all three at once, or none
        ids.append((argument, threading.get_ident()))
        if argument == 1:
            raise ArithmeticError("one")
    with pytest.raises(ArithmeticError, match="one"):
        run(work, [0, 1, 2])
    assert sorted(argument for argument, _ in ids) == [0, 1, 2]
    assert len({ident for _, ident in ids}) == 3 and (0, threading.get_ident()) in ids
