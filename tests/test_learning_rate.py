import pytest

from gsref.learning_rate import LearningRate
from gsref.problem import Problem


@pytest.mark.parametrize("text, D, eta", [
    ("0.5", 8, 0.5), ("0.5/D", 8, 0.0625), ("2*D", 8, 16.0), ("8/D^3", 4, 0.125), ("1e-2 / D**2", 10, 1e-4),
    ("0.5*D^0.5", 16, 2.0),
])
def test_rules(text, D, eta):
    assert LearningRate.parse(text).at(Problem(2, D)) == pytest.approx(eta, rel=1e-14)


@pytest.mark.parametrize("text", ["", "D", "0", "-1", "nan", "inf", "1/E", "0.5/D/D", "1/D^", "stabl", "1e", "0x1"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="expected a number > 0, a rule such as 0.5/D"):
        LearningRate.parse(text)


def test_text_is_kept():
    assert LearningRate.parse(" 0.5/D ").text == "0.5/D" and LearningRate.parse("stable").stable
    with pytest.raises(ValueError, match="stability.stable_eta"):
        LearningRate.parse("stable").at(Problem(2, 3))
