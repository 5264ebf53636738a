"""The command as a user meets it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from gsref import run_stability


@pytest.mark.slow
def test_what_a_run_writes_and_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_stability, "QUICK", {"position_only": (4, 16), "full": ()})
    arguments = ["--quick", "--d", "1", "--points", "16", "--out", str(tmp_path)]
    assert run_stability.main(arguments) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert {check["id"]: check["verdict"] for check in found["checks"]} == {"S1": "holds", "S2": "holds"}
    assert [rate["D"] for rate in found["stable_rates"]] == [4, 16] and len(found["multipliers"]) == 2 * 3 * 2
    for row in found["multipliers"]:
        if row["rate"] == "stable":
            assert row["lowest"][0] >= -1
        elif row["D"] == 16:
            assert row["lowest"][0] < -1 and row["lowest"][1] == "v2"
    assert "S1" in printed and "D = 16" in printed
    for kind in ("png", "svg", "json"):
        assert (tmp_path / f"stability.{kind}").stat().st_size > 500
    drawn = json.loads((tmp_path / "stability.json").read_text(encoding="utf-8"))
    assert [run["what"] for run in drawn["runs"]] == ["measured", "predicted", "law"] * 2


@pytest.mark.parametrize("option, message", [(["--d", "4"], "--d: got '4'"), (["--eta", "0"], "--eta: got '0'"),
                                             (["--points", "x"], "--points: got 'x'")])
def test_bad_options_are_one_line_and_status_2(option, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_stability.main(option)
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and message.split(":")[0] in err and err.count("\n") == 1


def grown(factor, n=40, broken=None):
    residual = np.minimum(1e-15 * factor ** np.arange(n), 1.0)
    return SimpleNamespace(step=np.arange(n), residual=residual, size=np.ones(n), broken=broken)


@pytest.mark.parametrize("factor, predicted, verdict", [
    (3.0, 3.0, "holds"), (3.0, 3.001, "holds"), (3.0, 3.01, "fails"), (3.0, 2.0, "fails"),     # over 16 steps
    (1.0, 1.0, "holds"), (1.0, 3.0, "undecided")])
def test_growth_that_is_not_the_predicted_one_fails(factor, predicted, verdict):
    runs = {"eta": 0.5, "measured": grown(factor), "predicted": grown(predicted), "law": grown(predicted)}
    assert run_stability.growth_check(runs).verdict == verdict
