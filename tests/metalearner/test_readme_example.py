"""The README's implementation of the metalearner passes the oracle; with dW transposed or one label less it is named."""

import re
from pathlib import Path

import pytest

from gsref import oracle
from gsref.metalearner.oracle import METALEARNER

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def code():
    found = [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in
             re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", README, re.MULTILINE) if "def meta_step(" in block]
    assert len(found) == 1
    return found[0]


def judged(code):
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    return oracle.check(names["meta_step"], system=METALEARNER)


def test_it_passes(code):
    assert judged(code).passed


@pytest.mark.parametrize("old, new, said", [
    ("-muhat.T @ (c[:, None] * x)", "(-muhat.T @ (c[:, None] * x)).T", "dW is transposed"),
    ("-muhat.T @", "muhat.T @", "dW has the wrong sign"), ("expit(-t) * y / len(y)", "expit(-t) * y", "dW misses 1/B"),
    ("expit(-t) * y / len(y)", "expit(-t) / len(y)", "the label of the query is missing from dW"),
    (") / X.shape[1]", ")", "the context mean is not divided by N")])
def test_planted_faults_are_named(code, old, new, said):
    assert code.count(old) == 1
    report = judged(code.replace(old, new))
    assert report.verdict == "fail" and any(said in line for line in report.diagnosis), report.diagnosis
