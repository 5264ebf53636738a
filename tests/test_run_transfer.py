"""The command: outputs, honest exit status, interruption and resumption bit for bit, bad options before any run."""

import json
import pickle
import re

import numpy as np
import pytest

from gsref import run_transfer
from gsref.report import Check
from gsref.transfer import experiments, images

SMALL = ["--d", "2", "--D", "3", "--eps", "0.2,0.1", "--seeds", "4", "--margin", "0.5", "--quick"]


@pytest.fixture(autouse=True)
def small_and_the_same_everywhere(monkeypatch):
    monkeypatch.setattr(experiments, "FRESH", 50)
    monkeypatch.setattr(experiments, "REST", 8)
    monkeypatch.setattr(images, "installed_digits", lambda: None)       # the same images on every machine
    real = images.drawn
    monkeypatch.setattr(images, "drawn", lambda rng: real(rng, n=20))


def run(out, *more):
    return run_transfer.main([*SMALL, "--out", str(out), *more])


def test_run_writes_what_it_says(tmp_path, capsys):
    assert run(tmp_path / "out") == 0
    text = capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text(), parse_constant=lambda bad: pytest.fail(bad))
    assert {check["id"] for check in report["checks"]} >= {"A6", "A6.size", "A6.eps", "A7.size", "A7.eps", "A7.gain"}
    assert all(set(check) >= {"id", "claim", "claimed", "measured", "error", "verdict"} for check in report["checks"])
    assert "drawn by this run" in report["images"]["source"] and "images drawn by this run" in text
    assert set(report["tuning"]) == {"pretrained", "logistic_sgd", "from_zero", "max_likelihood"} and "hindsight" in text
    for name in ("accuracy", "samples", "margin_law", "attention", "patches"):
        for kind in ("png", "svg", "json"):
            assert (tmp_path / "out" / f"{name}.{kind}").stat().st_size > 100
    with np.load(tmp_path / "out" / "transfer.npz", allow_pickle=False) as file:
        assert any(name.endswith("/mistakes") for name in file.files)
    assert not (tmp_path / "out" / "checkpoint.npz").exists()


def test_interrupted_run_resumes_bit_for_bit(tmp_path, monkeypatch):
    assert run(tmp_path / "whole") == 0
    real, calls = run_transfer.measure, []

    def interrupted(*args, **options):
        calls.append(args[0])
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **options)
    monkeypatch.setattr(run_transfer, "measure", interrupted)
    assert run(tmp_path / "cut") == 130
    assert (tmp_path / "cut" / "checkpoint.npz").exists() and not (tmp_path / "cut" / "report.json").exists()
    monkeypatch.setattr(run_transfer, "measure", real)
    done = []
    monkeypatch.setattr(run_transfer, "pretrain", lambda *args, **options: done.append(1))               # already there
    assert run(tmp_path / "cut", "--resume") == 0 and not done
    with np.load(tmp_path / "whole" / "transfer.npz") as a, np.load(tmp_path / "cut" / "transfer.npz") as b:
        assert a.files == b.files
        for name in a.files:
            assert a[name].tobytes() == b[name].tobytes(), name
    assert (tmp_path / "whole" / "report.json").read_bytes() == (tmp_path / "cut" / "report.json").read_bytes()


def test_resumed_arrays_have_the_layout_that_the_first_run_had(tmp_path):
    args = run_transfer.parser().parse_args(["--out", str(tmp_path)])
    made = np.arange(24.0).reshape(2, 3, 4)
    unit = run_transfer.Unit("unit", 1.0, lambda found, show: {"a": made.T, "b": made[:, ::2, 1], "c": 1.0}, lambda arrays: None)
    first = run_transfer.Work(args, [unit]).results()["unit"]
    args.resume = True
    again = run_transfer.Work(args, [unit]).results()["unit"]
    assert {key: value.strides for key, value in first.items()} == {key: value.strides for key, value in again.items()}
    assert first["c"].shape == ()


@pytest.mark.parametrize("change, text", [
    (lambda arrays: arrays | {"pretrained d=2 D=3/v": np.zeros(4)}, r"pretrained d=2 D=3: v: got shape \(4,\), expected \(5,\)"),
    (lambda arrays: arrays | {"pretrained d=2 D=3/W": np.full((5, 5), np.nan)}, "W: got nan"),
    (lambda arrays: {name: value for name, value in arrays.items() if not name.endswith("/W")}, "W: missing"),
    (lambda arrays: arrays | {"pretrained, d = 2, D = 3, gaussian, margin 0.5/method": np.array("guessing")}, "method: got 'guessing'"),
])
def test_an_altered_checkpoint_is_one_line(tmp_path, capsys, monkeypatch, change, text):
    def interrupted(*args, **options):
        raise KeyboardInterrupt
    monkeypatch.setattr(run_transfer, "measure", interrupted)
    assert run(tmp_path) == 130
    with np.load(tmp_path / "checkpoint.npz") as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(tmp_path / "checkpoint.npz", **change(arrays))
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, "--resume")
    lines = capsys.readouterr().err.strip().splitlines()
    assert stopped.value.code == 2 and len(lines) == 1 and re.search(f"checkpoint.npz: not a usable .*{text}", lines[0]), lines


def test_a_checkpoint_belongs_to_the_file_it_was_made_from(tmp_path, capsys, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt
    monkeypatch.setattr(run_transfer, "measure", interrupted)
    model, out = tmp_path / "model.npz", tmp_path / "out"
    np.savez(model, v=np.zeros(5), W=np.zeros((5, 5)))
    assert run(out, "--pretrained", str(model)) == 130
    np.savez(model, v=np.zeros(5), W=np.eye(5))
    with pytest.raises(SystemExit):
        run(out, "--pretrained", str(model), "--resume")
    assert "belongs to a run with other options (inputs:" in capsys.readouterr().err


def test_strict_turns_a_failed_claim_into_status_one(tmp_path, monkeypatch):
    failed = [Check("A6", "claim", 1, 2, 0.1, "fails")]
    monkeypatch.setattr(run_transfer, "checks", lambda results: failed)
    monkeypatch.setattr(run_transfer, "write_outputs", lambda *args: None)
    assert run(tmp_path / "a", "--strict") == 1
    assert run(tmp_path / "a") == 0


def test_a_model_from_a_file_is_used(tmp_path, capsys):
    np.savez(tmp_path / "model.npz", v=np.zeros(5), W=np.zeros((5, 5)))
    assert run(tmp_path / "out", "--pretrained", str(tmp_path / "model.npz")) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    row = next(check for check in report["checks"] if check["id"] == "A6.S")["details"]["rows"][0]
    assert row[1] == pytest.approx(1 / 3) and "file " in capsys.readouterr().out


@pytest.mark.slow                                # the reader and the pair of classes have plain tests of their own
def test_cifar_images_of_a_folder_are_used(tmp_path):
    folder = tmp_path / "cifar"
    folder.mkdir()
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (40, 3072)).astype(np.uint8)
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": data, b"labels": [0, 6, 1, 7] * 10}, protocol=2))
    assert run(tmp_path / "out", "--images", str(folder)) == 0
    source = json.loads((tmp_path / "out" / "report.json").read_text())["images"]
    assert "CIFAR-10 from" in source["source"] and source["classes"] == [["airplane", "frog"], ["automobile", "horse"]]


@pytest.mark.parametrize("options, text", [
    (["--d", "0"], "--d: got '0', expected integers from 1 to 256"),
    (["--margin", "x"], "--margin: got 'x', expected numbers from 0 to 37"),
    (["--eps", "0.7"], "--eps: got '0.7', expected numbers between 0 and 0.5"),
    (["--law", "cauchy"], "--law: invalid choice: 'cauchy'"),
    (["--eta", "1e308*D"], "--eta: got '1e308.D', which is inf at D = 3, expected a finite number > 0"),
    (["--eta", "1e308"], "--eta: pretraining at d=2, D=3, eta=1e.308: order.alpha: got"),
    (["--eps", "1e-9"], "--eps: eps 1e-09 at d = 2, D = 3, margin 0.5 takes 6.4e.09 samples .pretrained., expected at most 1e.07"),
    (["--eta", "fast"], "--eta: got 'fast'"),
    (["--step", "-1"], "--step: got '-1', expected a number > 0"),
    (["--relevant", "3"], "--relevant: .*got 3, expected an integer from 0 to 2"),
    (["--law", "rademacher", "--margin", "5"], "--margin: d = 2, D = 3, rademacher, margin 5: margin: got 5, expected <= 1"),
    (["--pretrained", "absent.npz"], "--pretrained: absent.npz: no such file"),
    (["--pretrained", "absent.npz", "--D", "3,4"], "--pretrained: expected one --d and one --D"),
    (["--images", "absent"], "--images: absent: no such folder"),
])
def test_bad_options_are_one_line_and_status_two(tmp_path, capsys, monkeypatch, options, text):
    monkeypatch.setattr(run_transfer, "measure", lambda *args, **options: pytest.fail("ran"))
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path / "out", *options)
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and re.search(text, lines[0]), lines


def test_a_model_that_does_not_fit_is_refused_before_any_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_transfer, "measure", lambda *args, **options: pytest.fail("ran"))
    np.savez(tmp_path / "model.npz", v=np.zeros(6), W=np.zeros((6, 6)))
    with pytest.raises(SystemExit):
        run(tmp_path / "out", "--pretrained", str(tmp_path / "model.npz"))
    assert "v: got shape (6,), expected (5,) at d=2, D=3" in capsys.readouterr().err


def test_an_unwritable_folder_is_refused_before_any_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_transfer, "measure", lambda *args, **options: pytest.fail("ran"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        run(tmp_path / "file" / "out")
    assert "--out: cannot write" in capsys.readouterr().err
