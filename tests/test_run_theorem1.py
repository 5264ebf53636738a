"""The command as a user meets it: what it writes, what it says, how it is interrupted, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gsref import plots, run_theorem1

SMALL = ["--mode", "position_only", "--D", "4,8,16", "--eps", "0.1,0.01,0.001,0.0003"]


def constant(text):
    raise ValueError(f"{text} in JSON")


def report(folder):
    return json.loads((folder / "report.json").read_text(encoding="utf-8"), parse_constant=constant)


def arrays(folder):
    with np.load(folder / "trajectory.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_what_a_run_writes_and_prints(tmp_path, capsys):
    assert run_theorem1.main([*SMALL, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    found = report(tmp_path)
    assert [check["id"] for check in found["checks"]] == ["A1", "A2", "A3", "A3.T", "A3.eps", "A4", "A5", "late"]
    for check in found["checks"]:
        assert {"id", "claim", "claimed", "measured", "error", "verdict"} <= set(check)
        assert check["verdict"] in ("holds", "fails", "undecided", "not in regime")
        assert f"\n{check['id']} " in printed.out and check["verdict"] in printed.out
    assert found["problem"] == {"d": 4, "D": [4, 8, 16], "sigma": 1.0, "relevant": 0, "mode": "position_only"}
    assert found["learning_rate_rule"] == "0.5/D" and set(found["versions"]) == {"python", "numpy", "scipy"}
    kept = arrays(tmp_path)
    for D in (4, 8, 16):
        mine = {key.split("/")[1]: value for key, value in kept.items() if key.startswith(f"position_only_D{D}/")}
        n = len(mine["step"])
        assert mine["order"].shape == (n, 6) and mine["error"].shape == (n, 7) and mine["loss"].shape == (n,)
        assert mine["loss"][-1] <= min(1 / D**2, 0.0003) and np.all(np.diff(mine["step"]) > 0)
        np.testing.assert_array_equal(mine["attention"], 1 - mine["leak"])
        assert mine["attention_1pct"].shape == mine["quantile_step"].shape
    for name in ("loss", "leak", "order", "attention", "times"):
        assert {(tmp_path / f"{name}.{kind}").stat().st_size > 500 for kind in ("png", "svg", "json")} == {True}
    assert not (tmp_path / "checkpoint.npz").exists()


def test_strict_turns_a_failing_claim_into_status_1(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "save", lambda *_: None)
    assert run_theorem1.main([*SMALL, "--strict", "--out", str(tmp_path)]) == 1
    verdicts = {check["id"]: check["verdict"] for check in report(tmp_path)["checks"]}
    assert verdicts["A1"] == verdicts["A2"] == verdicts["late"] == "holds"
    assert verdicts["A3.T"] == verdicts["A4"] == "fails"          # at 0.5/D: exponents 5 and -4/3, claimed 3 and -2


@pytest.mark.parametrize("when", [30, 160, 420])
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path, monkeypatch, capsys, when):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    monkeypatch.setattr(plots, "save", lambda *_: None)           # pictures have their own tests
    assert run_theorem1.main([*SMALL, "--out", str(whole)]) == 0
    plain, calls = run_theorem1.RunProgress.step, []

    def interrupt(self, *state):
        calls.append(state)
        if len(calls) == when:
            raise KeyboardInterrupt
        return plain(self, *state)
    monkeypatch.setattr(run_theorem1.RunProgress, "step", interrupt)
    assert run_theorem1.main([*SMALL, "--out", str(broken)]) == 130
    assert "--resume" in capsys.readouterr().err
    assert (broken / "checkpoint.npz").exists() and not (broken / "report.json").exists()
    before = len(calls)
    assert run_theorem1.main([*SMALL, "--out", str(broken), "--resume"]) == 0
    assert len(calls) - before < before + 1200                    # it went on, it did not start anew
    one, other = arrays(whole), arrays(broken)
    assert set(one) == set(other)
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)
    assert report(whole)["checks"] == report(broken)["checks"]


def test_sigterm_leaves_a_checkpoint_and_resume_finishes(tmp_path):
    # the first checkpoint is there at the latest when the first of six sizes is done
    command = [sys.executable, "-m", "gsref.run_theorem1", "--mode", "position_only", "--D", "4,5,6,7,8,9",
               "--eta", "1e-3", "--eps", "0.2", "--out", str(tmp_path)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "checkpoint.npz").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in said, said
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, env=environment, timeout=240)
    assert again.returncode == 0, again.stderr
    assert report(tmp_path)["checks"] and "starting anew" not in again.stderr


@pytest.fixture
def interrupted(tmp_path, monkeypatch, capsys):
    """An output folder with the checkpoint of a run of SMALL that was interrupted early."""
    def interrupt(self, *state):
        if state[3] > 20:
            raise KeyboardInterrupt
    monkeypatch.setattr(run_theorem1.RunProgress, "step", interrupt)
    assert run_theorem1.main([*SMALL, "--out", str(tmp_path)]) == 130
    capsys.readouterr()
    return tmp_path


def test_a_checkpoint_of_other_options_is_refused(interrupted, capsys):
    with pytest.raises(SystemExit) as stop:
        run_theorem1.main([*SMALL, "--sigma", "2", "--out", str(interrupted), "--resume"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "sigma: '1.0' there, '2.0' now" in said and said.count("\n") == 1


@pytest.mark.parametrize("option, allowed", [
    (["--d", "0"], "an integer from 1 to 4096"),
    (["--d", "two"], "an integer from 1 to 4096"),
    (["--D", "1,4"], "integers from 2 to 65536"),
    (["--D", ""], "integers from 2 to 65536"),
    (["--eps", "0.1,1"], "numbers between 0 and 0.69"),
    (["--eps", "nan"], "numbers between 0 and 0.69"),
    (["--eta", "fast"], "a number > 0, a rule such as 0.5/D"),
    (["--eta", "-1"], "a number > 0, a rule such as 0.5/D"),
    (["--eta", "0.5/D^9999"], "which is 0 at D = 8, expected a finite number > 0"),
    (["--eta", "1e300*D^300"], "which is inf at D = 8, expected a finite number > 0"),
    (["--sigma", "0"], "a number from 1e-100 to 1000"),
    (["--sigma", "inf"], "a number from 1e-100 to 1000"),
    (["--sigma", "1e-200"], "a number from 1e-100 to 1000"),
    (["--mode", "half"], "position_only"),
    (["--rtol", "1"], "a number > 0 and <= 0.1"),
    (["--steps", "0"], "an integer from 1"),
    (["--seed", "-1"], "an integer >= 0"),
])
def test_a_bad_option_is_one_line_and_status_2(option, allowed, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        run_theorem1.main([*option, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert option[0] in said and allowed in said
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_fails_before_any_computation(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(run_theorem1, "descend", lambda *_, **__: pytest.fail("computed something"))
    with pytest.raises(SystemExit) as stop:
        run_theorem1.main(["--out", str(tmp_path / "file" / "out")])
    assert stop.value.code == 2 and "--out: cannot write to" in capsys.readouterr().err


def test_resume_without_a_checkpoint_says_so(tmp_path, capsys):
    assert run_theorem1.main(["--mode", "position_only", "--D", "4", "--eps", "0.2", "--out", str(tmp_path), "--resume"]) == 0
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("options", [
    ["--D", "3", "--steps", "1"],                                # nothing reaches any loss: empty pictures
    ["--D", "4", "--eta", "1e60", "--eps", "0.5"],               # an absurd rate
    ["--D", "4,8,16", "--eta", "1e5", "--eps", "0.5"],           # leaks of 0 to rounding
    ["--D", "4", "--eps", "1e-9"],                               # steps beyond 64-bit integers
    pytest.param(["--D", "2", "--d", "1", "--sigma", "1e-3", "--eps", "0.5"], marks=pytest.mark.slow),
    pytest.param(["--D", "2", "--d", "1", "--sigma", "1e-30", "--steps", "5"], marks=pytest.mark.slow),
    # below what the integrator can do
    pytest.param(["--D", "4", "--rtol", "1e-300", "--eps", "0.2"], marks=pytest.mark.slow),
])
def test_extreme_runs_end_with_a_report(tmp_path, options):
    assert run_theorem1.main(["--mode", "position_only", *options, "--out", str(tmp_path)]) == 0
    assert {check["verdict"] for check in report(tmp_path)["checks"]} <= {"holds", "fails", "undecided", "not in regime"}


def test_a_run_without_a_small_D_has_no_attention_picture(tmp_path, capsys):
    """At D = 65536 the matrix would be 32 GiB."""
    assert run_theorem1.main(["--mode", "position_only", "--D", "65536", "--d", "1", "--steps", "2", "--out",
                              str(tmp_path)]) == 0
    assert "no picture of the attention matrix" in capsys.readouterr().err
    assert not (tmp_path / "attention.png").exists() and (tmp_path / "loss.png").exists()


@pytest.mark.parametrize("change, message", [
    (lambda a: a.pop("position_only_D4/loss"), "got no loss"),
    (lambda a: a.update({"position_only_D4/loss": a["position_only_D4/loss"][:-1]}), "loss: got float64"),
    (lambda a: a.update({"position_only_D4/order": a["position_only_D4/order"] * np.nan}), "order: got float64"),
    (lambda a: a.update({"position_only_D4/step": a["position_only_D4/step"][:0]}), "step: got int64"),
    (lambda a: a.update({"position_only_D4/error": a["position_only_D4/error"].astype(str)}), "error: got <U"),
])
def test_a_checkpoint_with_other_arrays_is_refused_in_one_line(interrupted, capsys, change, message):
    path = interrupted / "checkpoint.npz"
    with np.load(path) as file:
        kept = dict(file)
    change(kept)
    np.savez(path, **kept)
    with pytest.raises(SystemExit) as stop:
        run_theorem1.main([*SMALL, "--out", str(interrupted), "--resume"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1 and "not a usable checkpoint" in said and message in said


def test_a_folder_in_the_place_of_an_output_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plots, "save", lambda *_: None)
    (tmp_path / "report.json").mkdir()
    with pytest.raises(SystemExit) as stop:
        run_theorem1.main(["--mode", "position_only", "--D", "3", "--steps", "1", "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "--out: cannot write to" in said.splitlines()[-1] and "Traceback" not in said


def test_a_run_that_cannot_take_a_step_decides_nothing_about_alpha(tmp_path):
    assert run_theorem1.main(["--mode", "position_only", "--D", "4", "--eta", "1e300", "--out", str(tmp_path)]) == 0
    (found,) = (check for check in report(tmp_path)["checks"] if check["id"] == "A2")
    assert found["verdict"] == "undecided" and "no step was taken" in found["measured"]
