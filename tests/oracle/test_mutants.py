"""The table of wrong gradients: every one is caught, in every precision, by the default cases."""

import numpy as np
import pytest

from gsref.oracle import check, table
from gsref.oracle.cases import transformer_cases
from gsref.oracle.mutants import FAULTS, known_wrong
from gsref.oracle.plain import Arithmetic, Plain
from gsref.oracle.precision import PRECISIONS

FAST = ("sum-for-mean", "wrong-axis", "diagonal-jacobian", "keys-and-queries", "zero-dW21", "labels-01", "sign-of-one-label",
        "W-transposed", "no-shift", "factor-cut", "last-row", "labels-broadcast")
PATTERNS = [fault for fault in FAULTS if fault.pattern]


def test_there_are_at_least_forty_each_with_its_own_name():
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len({fault.says for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_all_are_caught_by_the_default_cases(dtype):
    missed = [name for name, ids in table.catches(dtype, first=True).items() if not ids]
    assert missed == []


@pytest.mark.parametrize("seed", [1, 2])
def test_all_are_caught_by_other_draws_too(seed):
    missed = [name for name, ids in table.catches("bfloat16", seed=seed, first=True).items() if not ids]
    assert missed == []


def test_no_two_patterns_give_the_same_values():
    """Each fault is another fault: on the whole set no two give the same numbers."""
    seen = {}
    for fault in PATTERNS:
        candidate = fault.make(Arithmetic())
        values = [np.concatenate([np.ravel(x) for x in candidate(*case.inputs.values())]) for case in transformer_cases(0)]
        flat = np.nan_to_num(np.concatenate(values), nan=7e77, posinf=8e88, neginf=-8e88)
        for name, other in seen.items():
            assert not np.allclose(flat, other, rtol=1e-12, atol=0), (fault.name, name)
        seen[fault.name] = flat


def test_a_fault_is_one_fault():
    """What a fault does not touch stays bit for bit what the right candidate has."""
    case = transformer_cases(0)[0].inputs
    right = Plain()(*case.values())
    for name in ("zero-dW21", "dW-transposed", "one-entry", "sign-of-dW"):
        wrong = known_wrong("float64")[name](*case.values())
        assert wrong[0] == right[0] and np.array_equal(wrong[1], right[1]) and not np.array_equal(wrong[2], right[2])


def test_the_table_says_what_is_missed():
    text = table.text({"float64": {"a": ["x", "y", "z", "w"], "b": []}, "float32": {"a": ["y"], "b": ["x"]}})
    assert "NOT CAUGHT: b in float64" in text and "2 known faults" in text
    assert text.splitlines()[1].split() == ["a", "4", "1", "y"]


def diagnosis_of(fault, dtype="float64"):
    return check(fault.make(Arithmetic(PRECISIONS[dtype])), dtype).diagnosis


@pytest.mark.parametrize("name", FAST)
def test_diagnosis_names_the_fault(name):
    fault = next(fault for fault in FAULTS if fault.name == name)
    assert fault.says in diagnosis_of(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", PATTERNS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_diagnosis_names_every_fault(fault, dtype):
    assert fault.says in diagnosis_of(fault, dtype)
