"""Rows of claims as JSON that every parser reads, and as a table that fits."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gsref.report import VERDICTS, Check, jsonable, table, text_of, to_json, versions

CHECK = Check("A3", "the relevant group wins", "S >= 1 - exp(-D)", 0.98765432, 1e-4, "fails",
              {"slope": np.float64(-2.25)})


def strict(text):
    """Parse, and refuse the bare NaN and Infinity that Python's parser lets through."""
    def refuse(name):
        raise ValueError(name)
    return json.loads(text, parse_constant=refuse)


def test_the_strict_parser_refuses_a_bare_nan():
    for bad in ("[NaN]", "[Infinity]", "[-Infinity]"):
        with pytest.raises(ValueError):
            strict(bad)


def test_check_has_the_keys_of_a_report_in_order():
    row = strict(to_json(CHECK))
    assert list(row) == ["id", "claim", "claimed", "measured", "error", "verdict", "details"]
    assert row["measured"] == 0.98765432 and row["details"] == {"slope": -2.25}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_four_verdicts(verdict):
    assert Check("A1", "", "", 0, 0, verdict).verdict == verdict


@pytest.mark.parametrize("verdict", ["Holds", "true", "", None, True])
def test_other_verdicts_are_refused(verdict):
    with pytest.raises(ValueError, match="^verdict: got .*, expected one of holds, fails, undecided, not in regime$"):
        Check("A1", "", "", 0, 0, verdict)


@pytest.mark.parametrize("value, plain", [
    (np.float64(0.1), 0.1), (np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (True, True),
    (None, None),
    (np.nan, None), (np.inf, None), (np.float64("-inf"), None), (np.array([1.0, np.nan]), [1.0, None]),
    (np.array(2), 2),
    (np.array([[1], [2]]), [[1], [2]]), ((1, [2.5, "x"]), [1, [2.5, "x"]]), ({1: np.int8(2)}, {"1": 2}),
    (np.str_("a"), "a"),
    ([CHECK], [{"id": "A3", "claim": "the relevant group wins", "claimed": "S >= 1 - exp(-D)", "measured": 0.98765432,
                "error": 1e-4, "verdict": "fails", "details": {"slope": -2.25}}])])
def test_values_become_plain_ones(value, plain):
    got = jsonable(value)
    assert got == plain and type(got) is type(plain)
    assert strict(to_json(value)) == plain


@dataclass
class Row:
    x: int = 1


@pytest.mark.parametrize("value", [1j, object(), {1, 2}, b"x", np.array([1j]), Row, [Row]])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(TypeError, match="^value: got .*, expected something that JSON can hold$"):
        to_json(value)


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)))
def test_everything_plain_survives_and_is_valid_json(value):
    def cleaned(x):
        if isinstance(x, float):
            return x if np.isfinite(x) else None
        if isinstance(x, list):
            return [cleaned(y) for y in x]
        return {k: cleaned(y) for k, y in x.items()} if isinstance(x, dict) else x
    assert strict(to_json(value)) == cleaned(value)


@pytest.mark.parametrize("value, text", [
    (None, "-"), (np.nan, "-"), (np.float32("nan"), "-"), (0.98765, "0.9877"), (np.float64(1e-12), "1e-12"),
    (3, "3"), ("x", "x"),
    (np.inf, "inf")])
def test_cells(value, text):
    assert text_of(value) == text


words = st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"]), max_size=200)


@given(st.lists(st.builds(Check, st.sampled_from(["A1", "B12"]), words, words, words | st.floats(), words | st.none(),
                          st.sampled_from(VERDICTS)), max_size=4))
def test_table_fits_its_width_and_shows_every_row(checks):
    lines = table(checks).splitlines()
    assert max(map(len, lines)) <= 118
    assert lines[0].split() == ["id", "verdict", "claim", "claimed", "measured", "error"]
    assert set(lines[1]) == {"-", " "}
    starts = [line.split()[0] for line in lines[2:] if line[:2] in ("A1", "B1")]
    assert starts == [check.id for check in checks]


def test_table_keeps_all_words_of_a_long_cell():
    claim = " ".join(f"word{k}" for k in range(60))
    text = table([Check("A1", claim, "", 0.5, None, "not in regime")])
    assert all(f"word{k}" in text for k in range(60)) and "not in regime" in text and "0.5" in text


def test_versions_are_those_in_use():
    import scipy
    assert versions()["numpy"] == np.__version__ and versions()["scipy"] == scipy.__version__ and "python" in versions()
