"""The README's examples run, and its commands are those of the project."""

import re
from pathlib import Path

import pytest

from gsref import oracle

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks():
    """Indented blocks of the README, without their indent."""
    found = re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", README, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in found]


@pytest.mark.parametrize("code", [block for block in blocks() if block.startswith("import numpy as np\nimport gsref")])
def test_python_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})


def test_the_implementation_in_the_readme_passes_and_its_transpose_is_named():
    code = next(block for block in blocks() if "def step(v, W, X, y, P)" in block)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    for dtype in ("float64", "float32"):
        assert oracle.check(names["step"], dtype=dtype).passed
    exec(compile(code.replace("dv, dW\n", "dv, dW.T\n"), "README.md", "exec"), names)
    assert "diagnosis: dW is transposed" in str(oracle.check(names["step"]))


def test_the_two_commands():
    lines = README.splitlines()
    assert "    pip install . && python -m gsref.run_theorem1" in lines
    assert "    pip install '.[test]' && python -m pytest" in lines


def test_every_module_is_in_the_map():
    named = set(re.findall(r"`([a-z_0-9]+)`", README[README.index("## Module map"):]))
    modules = {path.stem for path in (ROOT / "gsref").glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in (ROOT / "gsref").glob("*/__init__.py")}
    assert modules | packages <= named, sorted((modules | packages) - named)


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target
