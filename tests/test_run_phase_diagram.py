"""The command as a user meets it: what it writes, another executor, interruption, what it refuses."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from gsref import phase_diagram, run_phase_diagram

SMALL = ["--mode", "position_only", "--D", "4,8,16", "--rates", "6", "--d", "1"]


@pytest.fixture(autouse=True)
def few_bisections(monkeypatch):
    monkeypatch.setattr(run_phase_diagram, "BISECTIONS", {"position_only": 1, "full": 1})


def threads(argv):
    with ThreadPoolExecutor(1) as pool:
        return run_phase_diagram.main(argv, executor=pool)


def report(folder):
    return json.loads((folder / "report.json").read_text(encoding="utf-8"), parse_constant=float.fromhex)


def test_what_a_run_writes_and_prints(tmp_path, capsys):
    assert threads([*SMALL, "--out", str(tmp_path)]) == 0
    printed, found = capsys.readouterr().out, report(tmp_path)
    assert len(found["cells"]) == 18 and {cell["outcome"] for cell in found["cells"]} <= set(phase_diagram.OUTCOMES)
    assert {law["name"] for law in found["laws"]} >= {"no longer gradual", "few large steps"}
    for law in found["laws"]:
        assert law["error"] > 0 and all(low < high for low, high in zip(law["low"], law["high"]))
        assert f"D^({law['exponent']:.3f}" in printed
    assert "D = 16" in printed and "M1" in printed
    pictures = {f"phase_diagram.{kind}" for kind in ("png", "svg", "json")}
    assert {path.name for path in tmp_path.iterdir()} == {"report.json"} | pictures
    drawn = json.loads((tmp_path / "phase_diagram.json").read_text(encoding="utf-8"))
    assert drawn["cells"] == found["cells"] and drawn["laws"] == found["laws"]


def test_process_pool_and_threads_agree(tmp_path):
    small = ["--mode", "position_only", "--D", "4", "--rates", "4", "--d", "1"]
    assert threads([*small, "--out", str(tmp_path / "threads")]) == 0
    assert run_phase_diagram.main([*small, "--workers", "1", "--out", str(tmp_path / "processes")]) == 0
    assert report(tmp_path / "threads") == report(tmp_path / "processes")


def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path, monkeypatch, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert threads([*SMALL, "--out", str(whole)]) == 0
    plain, calls = phase_diagram.cell, []

    def interrupted(*job):
        calls.append(job)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return plain(*job)
    monkeypatch.setattr(run_phase_diagram, "cell", interrupted)
    assert threads([*SMALL, "--out", str(broken)]) == 130
    assert "--resume" in capsys.readouterr().err and (broken / "checkpoint.npz").exists()
    before = len(calls)
    assert threads([*SMALL, "--out", str(broken), "--resume"]) == 0
    assert report(whole) == report(broken) and not (broken / "checkpoint.npz").exists()
    # how many of the first were kept when the interruption came depends on the threads; a run that started anew takes 18
    assert len(set(calls)) == 18 and len(calls) - before < 18


def test_resume_without_or_with_a_foreign_checkpoint(tmp_path, monkeypatch, capsys):
    def interrupt(*job):
        raise KeyboardInterrupt
    monkeypatch.setattr(run_phase_diagram, "cell", interrupt)
    assert threads([*SMALL, "--out", str(tmp_path), "--resume"]) == 130
    assert "starting anew" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        threads([*SMALL, "--sigma", "2", "--out", str(tmp_path), "--resume"])
    assert stopped.value.code == 2 and "sigma" in capsys.readouterr().err


@pytest.mark.parametrize("option, message", [
    (["--D", "2"], "--D: got '2', expected integers from 3 to 4096"), (["--rates", "1"], "--rates"),
    (["--mode", "x"], "--mode"), (["--workers", "0"], "--workers"), (["--sigma", "-1"], "--sigma"),
    (["--sigma", "1e-101"], "a number from 1e-100 to 1000")])
def test_bad_options_are_one_line_and_status_2(option, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        run_phase_diagram.main(option)
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and message in err and err.count("\n") == 1


@pytest.mark.parametrize("arrays, message", [
    ({"other": [1.0]}, "KeyError"),
    ({"results": "{"}, "JSONDecodeError"),
    ({"results": '{"cells": [[["full"], {"D": 4}]], "edges": []}'}, "TypeError"),
])
def test_checkpoint_with_other_contents_is_one_line(tmp_path, capsys, arrays, message):
    argv = [*SMALL, "--out", str(tmp_path), "--resume"]
    args = run_phase_diagram.parser().parse_args(argv)
    args.resume = False
    run_phase_diagram.Store(args).checkpoint.save(arrays)
    with pytest.raises(SystemExit) as stop:
        threads(argv)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1 and "not a usable checkpoint" in said and message in said
