"""The command line: exit statuses, one line for what cannot be used, and reports on disk."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from gsref.gradients import loss_and_gradient
from gsref.oracle import table
from gsref.oracle.__main__ import main
from gsref.oracle.vectors import read

HERE = "oracle.test_main"


def right(v, W, X, y, P):
    return loss_and_gradient(v, W, X, y, P)


def transposed(v, W, X, y, P):
    loss, dv, dW = loss_and_gradient(v, W, X, y, P)
    return loss, dv, dW.T.copy()


def explodes(v, W, X, y, P):
    raise RuntimeError("control characters \x00\x1b and <tags> & \ud800")


number = 3


def run(*argv):
    return main([str(arg) for arg in argv])


def refused(capsys, *argv):
    """The one line on stderr of a command that exits with status 2."""
    with pytest.raises(SystemExit) as stopped:
        run(*argv)
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and out == "" and err.count("\n") == 1, err
    return err


def test_pass_fail_and_inconclusive(capsys):
    assert run("check", f"{HERE}:right") == 0
    assert capsys.readouterr().out.startswith(f"PASS: {HERE}:right, float64")
    assert run("check", f"{HERE}:transposed", "--case", "generic-3-5-4", "--case", "large-W") == 1
    assert "diagnosis: dW is transposed" in capsys.readouterr().out
    assert run("check", f"{HERE}:right", "--case", "margin-800-right") == 3
    assert run("check", f"{HERE}:right", "--strict", "--rejects", "--seed", 2, "--dtype", "float32", "--tolerance", 2) == 0


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "gsref.oracle", "check", "gsref:loss_and_gradient", "--case", "gap-8"],
                          capture_output=True, text=True, timeout=60, cwd=Path(__file__).resolve().parents[2])
    assert done.returncode == 0 and done.stdout.startswith("PASS") and done.stderr == ""


@pytest.mark.parametrize("argv, complaint", [
    (["check"], "required"), (["nonsense"], "invalid choice: 'nonsense'"), ([], "required"),
    (["check", "gsref"], "candidate: got 'gsref', expected package.module:name"),
    (["check", "no_such_module:f"], "cannot import 'no_such_module' (ModuleNotFoundError"),
    (["check", "gsref:nothing"], "'gsref' has no 'nothing'"), (["check", f"{HERE}:number"], "is a int, expected something"),
    (["check", f"{HERE}:right", "--dtype", "double"], "'double'"), (["check", f"{HERE}:right", "--case", "nope"], "got 'nope'"),
    (["check", f"{HERE}:right", "--tolerance", "nan"], "got 'nan', expected a number > 0"),
    (["check", f"{HERE}:right", "--tolerance", "-1"], "got '-1'"), (["check", f"{HERE}:right", "--tolerance", "x"], "got 'x'"),
    (["check", f"{HERE}:right", "--seed", "-1"], "got '-1'"),
    (["check", f"{HERE}:right", "--json", "/nonexistent/f.json"], "--json: cannot write '/nonexistent/f.json'"),
    (["check", f"{HERE}:right", "--junit", "/"], "--junit: cannot write '/'"),
    (["check", f"{HERE}:right", "--system", f"{HERE}:number"], "--system"),
    (["export", "/proc/x/y"], "DIR: cannot write"), (["export", "somewhere", "--format", "hdf5"], "'hdf5'"),
    (["verify", "/nonexistent", "/nonexistent"], "/nonexistent/manifest.json: cannot be read"),
    (["mutants", "--dtype", "int8"], "'int8'"),
])
def test_what_cannot_be_used_is_one_line(capsys, argv, complaint):
    assert complaint in refused(capsys, *argv)


def test_module_that_cannot_be_imported(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_candidate.py").write_text("def f(:\n")
    (tmp_path / "leaving_candidate.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "SyntaxError" in refused(capsys, "check", "broken_candidate:f")
    assert "SystemExit: 7" in refused(capsys, "check", "leaving_candidate:f")


def test_json_report(tmp_path, capsys):
    path = tmp_path / "report.json"
    assert run("check", f"{HERE}:transposed", "--json", path) == 1
    report = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert report["verdict"] == "fail" and report["diagnosis"] == ["dW is transposed"] and report["dtype"] == "float64"
    row = next(c for c in report["comparisons"] if c["case"] == "generic-3-5-4" and c["block"] == "W21")
    assert row["verdict"] == "fail" and row["failing"] == row["entries"] == 20 and len(row["index"]) == 2
    assert row["absolute"] > row["tolerance"] > 0 and row["ulps"] > 1 and "float64" in row["source"]
    assert f"check {HERE}:transposed" in report["repeat"]["generic-3-5-4"]


def test_junit_report_survives_any_text(tmp_path):
    path = tmp_path / "report.xml"
    assert run("check", f"{HERE}:explodes", "--junit", path) == 1
    suite = ElementTree.parse(path).getroot()
    assert int(suite.get("failures")) == len(suite) > 40 and "<tags> &" in suite[0][0].text
    assert run("check", f"{HERE}:right", "--junit", path) == 0
    suite = ElementTree.parse(path).getroot()
    assert suite.get("failures") == "0" and len(suite) > 300 and not any(len(case) for case in suite)


def test_not_finite_results_are_valid_json(tmp_path):
    path = tmp_path / "report.json"
    assert run("check", f"{HERE}:infinite", "--json", path, "--case", "generic-3-5-4") == 1
    report = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"bare {name}"))
    assert {c["got"] for c in report["comparisons"] if c["block"] == "loss"} == {"inf"}


def infinite(v, W, X, y, P):
    return np.inf, *loss_and_gradient(v, W, X, y, P)[1:]


def test_cases_lists_every_case_and_what_it_cannot_show(capsys):
    assert run("cases") == 0
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if line.startswith("margin-800-right"))
    assert line.endswith("cannot discriminate") and "n=4 D=3 d=5" in line
    assert "hides W11 W12 W21 W22" in next(line for line in out.splitlines() if line.startswith("all-one"))


@pytest.mark.slow
def test_mutants_prints_the_table_and_exits_0_if_all_are_caught(capsys):
    assert run("mutants") == 0
    out = capsys.readouterr().out
    assert "all caught in float64, float32, tf32, float16, bfloat16" in out
    assert any(line.startswith("wrong-axis") for line in out.splitlines())


@pytest.mark.parametrize("ids, status", [(["all-one"], 0), ([], 1)])
def test_mutants_exits_1_if_one_is_missed(monkeypatch, capsys, ids, status):
    monkeypatch.setattr(table, "catches", lambda *args, **kwargs: {"sign": ["all-one"], "zeros": ids})
    assert run("mutants", "--dtype", "float64") == status
    assert ("NOT CAUGHT: zeros in float64" in capsys.readouterr().out) == (status == 1)


def test_export_and_verify(tmp_path, capsys):
    assert run("export", tmp_path / "vectors") == 0
    assert "50 cases and 6 inputs to be rejected" in capsys.readouterr().out
    (tmp_path / "results").mkdir()
    for task in read(tmp_path / "vectors")[1]:
        np.savez(tmp_path / "results" / f"{task.case.id}.npz", **dict(zip(("loss", "dv", "dW"), right(*task.inputs.values()))))
    assert run("verify", tmp_path / "vectors", tmp_path / "results", "--json", tmp_path / "r.json") == 0
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "pass"
    assert run("verify", tmp_path / "vectors", tmp_path / "results", "--case", "margin-800-right") == 3
    (tmp_path / "results" / "all-one.npz").unlink()
    assert run("verify", tmp_path / "vectors", tmp_path / "results") == 1
    capsys.readouterr()
    (tmp_path / "results" / "gap-1.npz").write_bytes(b"PK")
    assert "gap-1.npz: neither .npy nor .npz" in refused(capsys, "verify", tmp_path / "vectors", tmp_path / "results")
    assert "got 'x'" in refused(capsys, "verify", tmp_path / "vectors", tmp_path / "results", "--case", "x")


def test_output_cut_short_by_its_reader_is_no_traceback():
    command = f"{sys.executable} -m gsref.oracle check {HERE}:right --case all-one | sleep 0"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, cwd=root,
                          env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"})
    assert done.stderr == ""
