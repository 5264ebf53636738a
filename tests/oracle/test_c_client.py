"""Another language: a C program reads the exported cases, and its results pass; with a planted fault they do not."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gsref.oracle.__main__ import main

SOURCE = Path(__file__).with_name("candidate.c")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def results(tmp_path, source):
    program, vectors, out = tmp_path / "candidate", tmp_path / "vectors", tmp_path / "results"
    file = tmp_path / "candidate.c"
    file.write_text(source, encoding="utf-8")
    subprocess.run([COMPILER, "-O2", "-ffp-contract=off", "-o", program, file, "-lm"], check=True, timeout=60)
    assert main(["export", str(vectors)]) == 0
    for case in json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))["cases"]:
        if case["result"] == "accept":
            (out / case["id"]).mkdir(parents=True)
            subprocess.run([program, vectors / case["id"], out / case["id"]], check=True, timeout=60)
    return vectors, out


@pytest.mark.skipif(COMPILER is None, reason="not run: no C compiler on this machine")
def test_c_program_passes_and_a_planted_fault_does_not(tmp_path, capsys):
    source = SOURCE.read_text(encoding="utf-8")
    for name, text, status in (("right", source, 0), ("wrong", source.replace("dW[a * m + b] +=", "dW[b * m + a] +="), 1)):
        (tmp_path / name).mkdir()
        vectors, out = results(tmp_path / name, text)
        capsys.readouterr()
        assert main(["verify", str(vectors), str(out)]) == status
        assert ("dW is transposed" in capsys.readouterr().out) == (status == 1)
