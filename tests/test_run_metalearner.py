"""The command as a user meets it: what it writes, what it says, how it is interrupted, what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gsref import plots, run_metalearner
from gsref.metalearner import claims, experiments
from gsref.report import Check

VERDICTS = ("holds", "fails", "undecided", "not in regime")


@pytest.fixture(scope="module", autouse=True)
def small():
    """The quick run at sizes of a test: every measurement, each in a fraction of a second."""
    with pytest.MonkeyPatch.context() as patch:
        first = replace(run_metalearner.FIGURE1_QUICK, d=30, k=(4,), B=120, M=(1, 5, 20), T=100, T_svm=20)
        second = replace(run_metalearner.FIGURE2_QUICK, d=40, k=(5, 10), R=(3.0, 4.0), B=40, M=(1, 5, 20), T=100)
        for name, value in (("FIGURE1_QUICK", first), ("FIGURE2_QUICK", second), ("GRID_SIZES", (40, 320, 2560, 20480)),
                            ("GRID_R", (2.0, 2.83, 4.0, 5.66)), ("TASKS_QUICK", ((8, 12), (100, 400), 200)),
                            ("PREDECESSOR_QUICK", ((8, 12), 5))):
            patch.setattr(run_metalearner, name, value)
        patch.setattr(experiments, "CHUNK", 16)
        yield


def run(out, *more):
    return run_metalearner.main(["--quick", "--steps", "40", "--out", str(out), *more])


def report(folder):
    text = (folder / "report.json").read_text(encoding="utf-8")
    return json.loads(text, parse_constant=lambda bad: pytest.fail(f"{bad} in JSON"))


def arrays(folder):
    with np.load(folder / "measurements.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The outputs of a run that was not interrupted (without pictures)."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save", lambda *_: None)
        assert run(folder) == 0
    return folder


def test_what_a_run_writes_and_prints(tmp_path, capsys):
    assert run(tmp_path) == 0
    printed, found = capsys.readouterr().out, report(tmp_path)
    assert [check["id"] for check in found["checks"]] == ["B1", "B2", "B3", "B4", "B5", "B6"]
    for check in found["checks"]:
        assert {"id", "claim", "claimed", "measured", "error", "verdict", "details"} == set(check)
        assert check["verdict"] in VERDICTS and f"\n{check['id']} " in printed and check["error"]
    assert [check["verdict"] for check in found["checks"][4:]] == ["not in regime"] * 2      # not the published sizes
    assert found["problem"] == {"d": 30, "k": [4], "R": [2.0, 3.0], "B": 120, "M": [1, 5, 20], "N": 40, "T": 100, "T_svm": 20,
                                "eta": 0.01, "steps": 40, "label_noise": 0.0}
    assert set(found["population"]) == {"2.0", "3.0"} and found["learning_rate_rule"] == "0.01, 40 steps"
    assert set(found["versions"]) == {"python", "numpy", "scipy"} and found["seed"] == 0
    assert "The predecessor's setting" in printed and found["predecessor"]["flips"] == 0.2
    kept = arrays(tmp_path)
    assert kept["figure 1 R=2/trained"].shape == (3,) and kept["figure 2 k=10 R=4/minus_full"].shape == (3,)
    for name in ("figure1", "figure2", "direction", "examples_needed", "tasks_needed", "training"):
        assert {(tmp_path / f"{name}.{kind}").stat().st_size > 500 for kind in ("png", "svg", "json")} == {True}
    assert not (tmp_path / "checkpoint.npz").exists()


def test_options_reach_the_measurements(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "save", lambda *_: None)
    options = {"--d": 20, "--k": 3, "--R": "2.5", "--B": 50, "--N": 7, "--M": "2,4", "--eta": 0.5, "--steps": 5, "--seed": 9}
    assert run(tmp_path, *(str(text) for pair in options.items() for text in pair)) == 0
    found = report(tmp_path)
    assert found["problem"] | {"T": 0, "T_svm": 0} == {"d": 20, "k": [3], "R": [2.5], "B": 50, "M": [2, 4], "N": 7, "T": 0,
                                                       "T_svm": 0, "eta": 0.5, "steps": 5, "label_noise": 0.0}
    assert found["seed"] == 9 and found["figure2"]["N"] == 7 and arrays(tmp_path)["figure 1 R=2.5/losses"].shape == (5,)


def test_published_sizes_are_those_of_the_figures():
    parse = run_metalearner.parser().parse_args
    for options, published in ((["--figure2"], (True, True)), ([], (True, False)), (["--quick"], (False, False)),
                               (["--figure2", "--d", "400"], (False, True)), (["--figure2", "--steps", "10"], (False, False))):
        assert run_metalearner.figures(parse(options))[2] == published, options
    first, second, _ = run_metalearner.figures(parse(["--figure2"]))
    assert (first.d, first.k, first.B, first.R, first.M) == (500, (30,), 20000, (2.0, 3.0), (1, 5, 10, 20, 30, 40, 50, 100))
    assert (second.d, second.B, second.k, second.R) == (2000, 2000, (500, 1000, 1500), (5.0, 7.0, 9.0))
    assert second.M == (1, 5, 20, 50, 150, 250, 500, 700) and (first.eta, first.steps, first.N) == (0.01, 300, 40)


@pytest.mark.parametrize("place", [1, *(pytest.param(place, marks=pytest.mark.slow) for place in (4, 12))])
def test_an_interrupted_run_goes_on_bit_for_bit(whole, tmp_path, monkeypatch, capsys, place):
    """Interrupted in the middle of the `place`-th measurement; training in it, if any, goes on from its own state."""
    monkeypatch.setattr(plots, "save", lambda *_: None)
    monkeypatch.setattr(run_metalearner, "SAVE_EVERY", 0.0)
    real, started = run_metalearner.Keep, []

    def keep(show, load, save):
        started.append(1)

        def interrupting(share):
            if len(started) == place and share > 0.0 or len(started) > place:
                raise KeyboardInterrupt
            show(share)
        return real(interrupting, load, save)
    monkeypatch.setattr(run_metalearner, "Keep", keep)
    assert run(tmp_path) == 130
    assert "--resume goes on from" in capsys.readouterr().err
    assert (tmp_path / "checkpoint.npz").exists() and not (tmp_path / "report.json").exists()
    monkeypatch.setattr(run_metalearner, "Keep", real)
    again, trainer = [], experiments.trainer

    def watched(*args, **options):
        again.append(options["state"] is not None)
        return trainer(*args, **options)
    monkeypatch.setattr(experiments, "trainer", watched)
    assert run(tmp_path, "--resume") == 0
    assert place != 1 or again[0]                                  # it went on from the state of the unfinished training
    one, other = arrays(whole), arrays(tmp_path)
    assert set(one) == set(other)
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name
    assert report(whole)["checks"] == report(tmp_path)["checks"]


def test_strict_turns_a_failed_claim_into_status_one(whole, tmp_path, monkeypatch):
    made = {}
    for name, value in arrays(whole).items():
        made.setdefault(name.split("/")[0], {})[name.split("/")[1]] = value
    monkeypatch.setattr(claims, "b4", lambda *_: Check("B4", "claim", 1, 2, 0.1, "fails"))
    monkeypatch.setattr(run_metalearner, "write_outputs", lambda *_: None)
    monkeypatch.setattr(run_metalearner.Measurements, "__call__", lambda self, name, *_, **__: made[name])
    assert run(tmp_path, "--strict") == 1
    assert run(tmp_path) == 0


@pytest.mark.parametrize("options, text", [
    (["--d", "1"], "--d: got '1', expected an integer from 2 to 100000"),
    (["--k", "0"], "--k: got '0', expected an integer from 1 to 100000"),
    (["--k", "31"], "--k: got 31, expected an integer from 1 to --d = 30"),
    (["--R", "0"], "--R: got '0', expected numbers from 1.5 to 100"),
    (["--R", "2,x"], "--R: got '2,x', expected numbers from 1.5 to 100"),
    (["--R", "nan"], "--R: got 'nan', expected numbers from 1.5 to 100"),
    (["--B", "-1"], "--B: got '-1', expected an integer from 1 to 10000000"),
    (["--N", "0"], "--N: got '0', expected an integer from 1 to 1000000"),
    (["--M", "0,5"], "--M: got '0,5', expected integers from 1 to 100000"),
    (["--M", "31"], "--M: got 31, expected at most --d = 30: a longer context need not be separable"),
    (["--eta", "0"], "--eta: got '0', expected a number > 0 and <= 1000"),
    (["--steps", "2.5"], "--steps: got '2.5', expected an integer from 1 to 1000000"),
    (["--memory", "0.0001"], "--memory: training on 120 tasks of dimension 30 needs direct 0.000166 GB"),
    (["--seed", "-1"], "--seed: got '-1', expected an integer >= 0"),
    (["--figure3"], "unrecognized arguments: --figure3"),
])
def test_bad_options_are_one_line_and_status_two(tmp_path, capsys, monkeypatch, options, text):
    monkeypatch.setattr(run_metalearner, "measure", lambda *_: pytest.fail("ran"))
    with pytest.raises(SystemExit) as stop:
        run(tmp_path / "out", *options)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1 and text in said
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_fails_before_any_computation(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(run_metalearner, "measure", lambda *_: pytest.fail("ran"))
    with pytest.raises(SystemExit) as stop:
        run(tmp_path / "file" / "out")
    assert stop.value.code == 2 and "--out: cannot write to" in capsys.readouterr().err


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The checkpoint of a run that was stopped in its last measurement."""
    folder = tmp_path_factory.mktemp("stopped")

    def stop(*_, **__):
        raise KeyboardInterrupt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "predecessor", stop)
        assert run(folder) == 130
    return (folder / "checkpoint.npz").read_bytes()


@pytest.fixture
def interrupted(stopped, tmp_path):
    (tmp_path / "checkpoint.npz").write_bytes(stopped)
    return tmp_path


@pytest.mark.parametrize("change, more, text", [
    (lambda a: None, ["--N", "41"], "N: '40' there, '41' now"),
    (lambda a: a.pop("figure 1 R=2/trained"), [], "not a usable checkpoint"),
    (lambda a: a.update({"figure 1 R=2/minus_full": np.zeros(2)}), [], "not a usable checkpoint"),
    (lambda a: a.update({"SVM R=2/svm": np.array(["x"] * 3)}), [], "not a usable checkpoint"),
    (lambda a: a.pop("__options__"), [], "not a readable checkpoint"),
])
def test_an_altered_checkpoint_is_refused_in_one_line(interrupted, capsys, change, more, text):
    path = interrupted / "checkpoint.npz"
    with np.load(path) as file:
        kept = dict(file)
    change(kept)
    np.savez(path, **kept)
    with pytest.raises(SystemExit) as stop:
        run(interrupted, "--resume", *more)
    said = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2 and text in said[-1] and not any("Traceback" in line for line in said)


def test_a_damaged_checkpoint_is_refused_and_none_is_no_obstacle(interrupted, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt
    path = interrupted / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SystemExit) as stop:
        run(interrupted, "--resume")
    assert stop.value.code == 2 and "not a readable checkpoint" in capsys.readouterr().err
    path.unlink()
    monkeypatch.setattr(run_metalearner, "measure", interrupt)
    assert run(interrupted, "--resume") == 130 and "no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("options", [
    ["--d", "20", "--k", "20", "--R", "1.5,100", "--M", "1", "--steps", "1"],
    *(pytest.param(options, marks=pytest.mark.slow) for options in (
        ["--N", "1", "--eta", "1000"], ["--M", "1", "--B", "1"], ["--N", "1000000", "--R", "30", "--eta", "1e-9"]))])
def test_extreme_runs_end_with_a_report(tmp_path, monkeypatch, options):
    monkeypatch.setattr(plots, "save", lambda *_: None)
    assert run(tmp_path, *options) == 0
    assert {check["verdict"] for check in report(tmp_path)["checks"]} <= set(VERDICTS)
