"""The set of cases: fixed, covering, and honest about what each can show."""

import hashlib

import numpy as np
import pytest

from gsref.gradients import loss_and_gradient
from gsref.model import forward, states
from gsref.oracle.cases import Draw, rejected_cases, transformer_cases
from gsref.oracle.precision import PRECISIONS
from gsref.oracle.system import TRANSFORMER
from gsref.oracle.table import discriminates

CASES = {case.id: case for case in transformer_cases(0, True)}


def margins(case):
    v, W, X, y, P = case.inputs.values()
    return y * forward(v, W, X, P)[0]


def test_raw_numbers_are_the_same_for_ever():
    """The bytes of the first draws, stored: PCG64's raw output is promised not to change, and neither may the set."""
    text = Draw(0, "generic-3-5-4")(3, 4)
    assert hashlib.sha256(text.astype("<f8").tobytes()).hexdigest() == \
        "e5257875d89388e3a22e36f4f98a8bf61ebce7f3e1dbd5d2781f674c6dd75cbb"


def test_ids_are_unique_and_default_is_a_subset():
    ids = [case.id for case in transformer_cases(0, True)]
    assert len(set(ids)) == len(ids)
    small = [case.id for case in transformer_cases(0)]
    assert small == [case.id for case in transformer_cases(0, True) if not case.thorough]
    assert 40 <= len(small) < len(ids)


def test_seeds_give_other_numbers_and_the_same_seed_the_same():
    for a, b, c in zip(transformer_cases(0), transformer_cases(0), transformer_cases(1)):
        for name in a.inputs:
            assert np.array_equal(a.inputs[name], b.inputs[name])
        assert not np.array_equal(a.inputs["X"], c.inputs["X"])


def test_generic_sizes_cannot_hide_a_transpose():
    for id in ("generic-3-5-4", "generic-4-3-5", "generic-5-6-2"):
        sizes = CASES[id].sizes
        assert len({sizes["n"], sizes["D"], sizes["d"]}) == 3
        W = CASES[id].inputs["W"]
        assert np.abs(W - W.T).max() > 0.1 * np.abs(W).max()


@pytest.mark.parametrize("size", [1, 12, 37, 100, 800])
def test_margins_are_what_the_id_says(size):
    assert margins(CASES[f"margin-{size}-right"]) == pytest.approx([size] * 4, abs=0.02)
    assert margins(CASES[f"margin-{size}-wrong"]) == pytest.approx([-size] * 4, abs=0.02)


def test_margins_in_one_batch():
    assert margins(CASES["margins-mixed"]) == pytest.approx([1, -12, 37, -100, 800, -800], abs=0.02)
    assert margins(CASES["margin-0"]) == pytest.approx([0] * 3, abs=1e-12)


@pytest.mark.parametrize("gap", [1, 8, 37, 100, 800, 5000])
def test_score_gaps_are_what_the_id_says(gap):
    v, W, X, y, P = CASES[f"gap-{gap}"].inputs.values()
    A = np.sort(states(v, W, X, P)[0], axis=1)
    got = A[:, -1] - A[:, -2]
    assert abs(np.median(got) - gap) < 2 + 0.1 * gap


def test_one_sample_with_large_scores():
    v, W, X, y, P = CASES["gap-of-one-sample"].inputs.values()
    A = states(v, W, X, P)[0]
    assert np.abs(A[0]).max() < 3 and np.abs(A[1] - 784).max() < 3


@pytest.mark.parametrize("id", ["equal-tokens", "one-token", "all-one", "zero-v"])
def test_dW_is_zero_where_it_must_be(id):
    dW = loss_and_gradient(**CASES[id].inputs)[2]
    assert np.abs(dW).max() <= 1e-16 and (id == "equal-tokens" or not dW.any())


def test_each_block_alone():
    for block in ("W11", "W12", "W21", "W22"):
        W = CASES[f"only-{block}"].inputs["W"]
        cut = {"1": slice(None, 4), "2": slice(4, None)}
        part = W[cut[block[1]], cut[block[2]]]
        assert part.all() and np.count_nonzero(W) == part.size
    for block in ("v1", "v2"):
        v = CASES[f"only-{block}"].inputs["v"]
        assert np.count_nonzero(v) == (4 if block == "v1" else 5)


def test_what_cannot_discriminate_says_so():
    assert discriminates(CASES["margin-800-right"], "float64") == ()
    assert discriminates(CASES["all-one"], "float64") == ("loss", "dv1", "dv2")
    assert discriminates(CASES["generic-3-5-4"], "float64") == TRANSFORMER.checked


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_every_block_is_seen_by_some_case_in_every_precision(dtype):
    seen = {step for case in transformer_cases(0) for step in discriminates(case, dtype)}
    assert seen == set(TRANSFORMER.checked)


def test_rejected_inputs_are_rejected_by_the_reference_implementation():
    cases = rejected_cases()
    assert len(cases) >= 6
    for case in cases:
        with pytest.raises((TypeError, ValueError)):
            loss_and_gradient(**case.inputs)


def test_inputs_are_read_only():
    with pytest.raises(ValueError):
        CASES["all-one"].inputs["v"][0] = 1.0
