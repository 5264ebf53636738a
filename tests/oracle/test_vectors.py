"""Exported cases: layout, hashes, what is refused; and results verified as a candidate would be."""

import json
import shutil

import numpy as np
import pytest

from gsref.commands import UsageError
from gsref.files import DamagedFile
from gsref.gradients import loss_and_gradient
from gsref.oracle import check
from gsref.oracle.vectors import SCHEMA, export, read
from gsref.oracle.verdict import UnknownCase
from gsref.oracle.verify import verify


@pytest.fixture(scope="module", params=["npy", "npz"])
def exported(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors") / request.param
    export(folder, "float64", request.param)
    return folder


@pytest.fixture()
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "copy")


def answer(folder, results, candidate=loss_and_gradient, form="npz", skip=()):
    """Results as another language would write them."""
    results.mkdir()
    for task in read(folder)[1]:
        if task.case.id in skip:
            continue
        out = dict(zip(("loss", "dv", "dW"), candidate(*task.inputs.values())))
        if form == "npz":
            np.savez(results / f"{task.case.id}.npz", **out)
        else:
            (results / task.case.id).mkdir()
            for name, x in out.items():
                np.save(results / task.case.id / f"{name}.npy", x)
    return results


def test_manifest_says_what_an_implementer_must_know(exported):
    manifest = json.loads((exported / "manifest.json").read_text())
    assert manifest["schema"] == SCHEMA and manifest["dtype"] == "float64"
    said = " ".join(manifest["conventions"].values())
    for word in ("C order", "-1 or +1", "mean over n", "key's side", "softmax over the key"):
        assert word in said
    kinds = {entry["id"]: entry["result"] for entry in manifest["cases"]}
    assert kinds["generic-3-5-4"] == "accept" and kinds["reject-labels-01"] == "reject"
    assert all(entry["flags"] and entry["files"] for entry in manifest["cases"])
    rejected = [entry for entry in manifest["cases"] if entry["result"] == "reject"]
    assert {entry["reason"] for entry in rejected} >= {"labels 0 and 1", "an empty batch", "a NaN in X"}


def test_tensors_are_little_endian_c_order_and_without_pickles(exported):
    for path in exported.rglob("*.np[yz]"):
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            arrays = [content] if isinstance(content, np.ndarray) else [content[name] for name in content.files]
        assert all(x.dtype.str == "<f8" and x.flags.c_contiguous for x in arrays)


def test_what_is_read_is_what_was_written(exported):
    _, tasks, rejected = read(exported)
    for task in tasks[:3]:
        right = loss_and_gradient(*task.inputs.values())
        assert all((np.abs(a - task.wanted[name]) <= task.allowed[name]).all() for name, a in zip(task.wanted, right))
    assert any(np.isnan(case.inputs["X"]).any() for case in rejected)


def test_small_cases_as_json_with_17_digits(exported):
    text = (exported / "all-one.json").read_text()
    tensors, (_, tasks, _) = json.loads(text), read(exported)
    task = next(task for task in tasks if task.case.id == "all-one")
    assert np.array_equal(tensors["W"], task.inputs["W"]) and tensors["expected.loss"] == float(task.wanted["loss"])
    assert max(len(word.strip("-[],").split("e")[0].replace(".", "").lstrip("0")) for word in text.split()) == 17


def test_low_precision_is_on_its_grid(tmp_path):
    export(tmp_path / "b", "bfloat16")
    assert np.load(tmp_path / "b" / "generic-3-5-4" / "X.npy").dtype.str == "<f4"
    X = np.load(tmp_path / "b" / "generic-3-5-4" / "X.npy")
    assert not (X.view(np.uint32) & 0xFFFF).any()                    # the lower half of the float32 is empty: bfloat16
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_right_results_pass_in_either_layout(exported, tmp_path, form):
    report = verify(exported, answer(exported, tmp_path / "results", form=form))
    assert report.passed, str(report)
    direct = check(loss_and_gradient)
    assert [(c.case, c.block, c.verdict, c.seen) for c in report.comparisons] == \
        [(c.case, c.block, c.verdict, c.seen) for c in direct.comparisons]


def test_wrong_results_get_the_report_and_the_diagnosis_of_check(exported, tmp_path):
    def wrong(*args):
        loss, dv, dW = loss_and_gradient(*args)
        return loss, dv, dW.T
    report, direct = verify(exported, answer(exported, tmp_path / "results", wrong)), check(wrong)
    assert report.verdict == "fail" and report.diagnosis == ("dW is transposed",)
    assert {(c.case, c.block) for c in report.comparisons if c.verdict == "fail"} == \
        {(c.case, c.block) for c in direct.comparisons if c.verdict == "fail" and c.block[0] == "W"}
    assert report.repeat["generic-3-5-4"].endswith("results --case generic-3-5-4")
    alone = verify(exported, tmp_path / "results", ["generic-3-5-4"])
    assert {c.case for c in alone.comparisons} == {"generic-3-5-4"}


def failures(folder, results):
    return {(c.case, c.block): c.reason for c in verify(folder, results).comparisons if c.verdict == "fail"}


def test_missing_extra_misshapen_and_mistyped_tensors_are_named(exported, tmp_path):
    results = answer(exported, tmp_path / "results", form="npy", skip=["all-one"])
    folder = results / "generic-3-5-4"
    (folder / "dv.npy").unlink()
    np.save(folder / "dV.npy", np.zeros(3))
    np.save(folder / "dW.npy", np.load(folder / "dW.npy").reshape(-1))
    np.save(folder / "loss.npy", np.array(1))
    (results / "notes.txt").write_text("x")
    (results / "generic-9-9-9").mkdir()
    found = failures(exported, results)
    assert found["generic-3-5-4", "dv"].startswith("missing")
    assert found["generic-3-5-4", "dV"].startswith("extra tensor")
    assert found["generic-3-5-4", "dW"] == "shape: got (81,), wanted (9, 9)"
    assert found["generic-3-5-4", "loss"].startswith("type: got int")
    assert all(found["all-one", name].startswith("missing") for name in ("loss", "dv", "dW"))
    assert found["notes.txt", "results"] == found["generic-9-9-9", "results"] == "extra file, no case has this name"
    assert not any(case not in ("generic-3-5-4", "all-one", "notes.txt", "generic-9-9-9") for case, _ in found)


def test_a_result_for_what_must_be_rejected_fails(exported, tmp_path):
    results = answer(exported, tmp_path / "results")
    np.savez(results / "reject-nan.npz", loss=1.0)
    assert failures(exported, results) == {("reject-nan", "rejects"): "has a result, but must be rejected: a NaN in X"}


def test_a_nan_result_fails(exported, tmp_path):
    results = answer(exported, tmp_path / "results", lambda *args: (np.nan, *loss_and_gradient(*args)[1:]))
    assert failures(exported, results)["all-one", "loss"].startswith("not finite")


class Evil:
    def __reduce__(self):
        return (print, ("a pickle was run",))


def test_pickles_are_refused(exported, tmp_path, capsys):
    results = answer(exported, tmp_path / "results", form="npy")
    np.save(results / "all-one" / "dv.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedFile, match="dv.npy: holds Python objects"):
        verify(exported, results)
    import pickle
    (results / "all-one" / "dv.npy").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DamagedFile, match="dv.npy"):
        verify(exported, results)
    assert "a pickle was run" not in capsys.readouterr().out


@pytest.mark.parametrize("keep", [0, 5, 60, 100])
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_truncated_results_are_refused(exported, tmp_path, keep, form):
    results = answer(exported, tmp_path / "results", form=form)
    path = results / "all-one.npz" if form == "npz" else results / "all-one" / "dv.npy"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedFile, match=path.name):
        verify(exported, results)


def test_a_changed_byte_of_an_export_is_found(copy, tmp_path):
    results = answer(copy, tmp_path / "results")
    for path in (next(iter(sorted(copy.glob("generic-3-5-4*/X.npy"))), None) or copy / "generic-3-5-4.npz", copy / "all-one.json"):
        good = path.read_bytes()
        path.write_bytes(good[:-3] + bytes([good[-3] ^ 1]) + good[-2:])
        with pytest.raises(DamagedFile, match=f"{path.name}: SHA-256 differs"):
            verify(copy, results)
        path.unlink()
        with pytest.raises(DamagedFile, match=f"{path.name}: missing"):
            verify(copy, results)
        path.write_bytes(good)
    assert verify(copy, results).passed


@pytest.mark.parametrize("content, complaint", [
    ("", "not a manifest"), ("{", "not a manifest"), ("[]", "not a manifest"), ('{"schema": "other"}', "got schema 'other'"),
    (f'{{"schema": "{SCHEMA}"}}', "not a manifest"), ("\x00\xff", "not a manifest")])
def test_a_damaged_manifest_is_one_line(copy, tmp_path, content, complaint):
    (copy / "manifest.json").write_text(content)
    with pytest.raises(DamagedFile, match=complaint) as caught:
        verify(copy, tmp_path)
    assert "\n" not in str(caught.value) and "manifest.json" in str(caught.value)


def test_a_manifest_may_not_name_files_elsewhere(copy, tmp_path):
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["cases"][0]["files"]["../secret"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedFile, match="outside its folder"):
        verify(copy, tmp_path)


def test_missing_folders(exported, tmp_path):
    with pytest.raises(DamagedFile, match="No such file"):
        verify(tmp_path / "nowhere", tmp_path)
    with pytest.raises(DamagedFile, match="no such folder"):
        verify(exported, tmp_path / "nowhere")
    with pytest.raises(UnknownCase, match="case: got 'x'"):
        verify(exported, tmp_path, ["x"])


def test_export_never_writes_over_something(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        export(tmp_path)
    with pytest.raises(UsageError, match="cannot write"):
        export(tmp_path / "mine.txt" / "below")
    assert (tmp_path / "mine.txt").read_text() == "x"


def test_two_exports_are_the_same_bytes(exported, tmp_path):
    form = json.loads((exported / "manifest.json").read_text())["format"]
    export(tmp_path / "again", "float64", form)
    files = sorted(path.relative_to(exported) for path in exported.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file())
    assert all((exported / path).read_bytes() == (tmp_path / "again" / path).read_bytes() for path in files)
