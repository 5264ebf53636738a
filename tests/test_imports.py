"""Imports go one way.  The table says which modules of gsref a module may import; a new module needs a row."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# module (or sub-package: the row then holds for all its modules, which may also import each other)
#                    what it may import from gsref
ALLOWED = {
    # leaves
    "arguments":     "",
    "files":         "",
    "report":        "",
    "commands":      "files report",
    "differences":   "",
    "late_phase":    "arguments",
    "learning_rate": "arguments",
    "scaling":       "arguments",
    "quadrature":    "arguments",
    "sparse_grid":   "",
    # the line
    "problem":       "arguments",
    "model":         "arguments problem",
    "gradients":     "arguments problem model",
    "threads":       "arguments",
    "chunk":         "",
    "curvature":     "model chunk",
    "batched":       "arguments model chunk curvature threads",
    "order":         "arguments problem model gradients",
    "position_only": "",
    "mean_token":    "",
    "conditional":   "model quadrature mean_token",
    "few_groups":    "quadrature mean_token conditional",
    "zero_base":     "quadrature sparse_grid mean_token conditional",
    "exchangeable":  "mean_token quadrature sparse_grid few_groups zero_base",
    "population":    "arguments problem order position_only mean_token exchangeable conditional",
    "descent":       "arguments problem order population",
    "attention":     "arguments problem model order population quadrature",
    "second_derivative": "arguments problem order population position_only quadrature",
    "stability":     "arguments problem order population descent second_derivative",
    "full_run":      "arguments problem gradients order quadrature second_derivative stability",
    "phase_diagram": "arguments problem order population descent second_derivative stability report",
    "theorem1":      "arguments problem gradients order population descent attention report late_phase learning_rate "
                     "scaling",
    # beside the line
    "oracle":        "arguments problem model gradients differences order population descent files report commands",
    "transfer":      "arguments problem model gradients order population descent report scaling",
    "transfer.plots": "plots scaling transfer",
    "metalearner":   "arguments model threads quadrature scaling report descent oracle plots",
    "bench":         "commands order problem population exchangeable batched gradients threads report files scaling plots",
    # pictures
    "plots":         "arguments files report late_phase",
}
PLOTTING = "plots"                                     # the only module that imports matplotlib
DEPENDENCIES = {"numpy", "scipy"} | set(sys.stdlib_module_names)
# what a module may import if it is installed: competitors and helpers of the extras, inside functions
OPTIONAL = {"threads": {"threadpoolctl"}, "bench.peers": {"autograd", "jax", "torch"}}


def row_of(module):
    """The name of the row of ALLOWED that holds for `module` (dotted, without `gsref.`): its own, or its package's."""
    return module if module in ALLOWED else module.split(".")[0]


def may_import(module, other):
    """May `module` import `other` (both dotted, without `gsref.`)?  KeyError if the table has no row for `module`."""
    row, target = row_of(module), row_of(other)
    if row == "__init__":                              # the facade: anything that does not draw and is no command
        return target != PLOTTING and not target.startswith("run_")
    if row.startswith("run_"):                         # a command: anything but another command
        return not target.startswith("run_")
    return target == row or target in ALLOWED[row].split()


def modules(package):
    """{dotted name without the package: path} of every module below the folder `package`."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return names


def imports(path, package):
    """(modules of gsref, other top-level packages) that the file imports, at its top or inside a function."""
    inside, outside = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:                             # relative: resolve against the file's place
                folder = path.parents[node.level - 1].relative_to(package.parent)
                base = ".".join([*folder.parts, *filter(None, [node.module])])
            full = [base] if node.module and base != "gsref" else []
            known = modules(package)
            for alias in node.names:                   # `from gsref import model` imports gsref.model
                name = f"{base}.{alias.name}"
                if base.startswith("gsref") and name.removeprefix("gsref.") in known:
                    full.append(name)
                elif base == "gsref":
                    full.append("gsref.__init__")
        else:
            continue
        for name in full:
            (inside if name.split(".")[0] == "gsref" else outside).add(name)
    return ({name.removeprefix("gsref.") if name != "gsref" else "__init__" for name in inside},
            {name.split(".")[0] for name in outside})


def violations(package):
    """Every import that goes the wrong way, one line each."""
    lines, graph = [], {}
    for module, path in modules(package).items():
        inside, outside = imports(path, package)
        graph[module] = inside
        if row_of(module) not in ALLOWED and row_of(module) != "__init__" and not module.startswith("run_"):
            lines.append(f"{module}: no row in the table")
            continue
        lines += [f"{module}: imports {other}" for other in sorted(inside) if not may_import(module, other)]
        lines += [f"{module}: imports {other}" for other in sorted(outside - DEPENDENCIES - OPTIONAL.get(module, set()))
                  if not (other == "matplotlib" and module in (PLOTTING, f"metalearner.{PLOTTING}"))]
    return lines + [f"cycle: {' -> '.join(cycle)}" for cycle in cycles(graph)]


def cycles(graph):
    """The import cycles of {module: imported modules}, each found once."""
    found, done = [], set()

    def visit(module, path):
        if module in path:
            found.append([*path[path.index(module):], module])
        elif module not in done:
            for other in sorted(graph.get(module, ())):
                visit(other, [*path, module])
            done.add(module)
    for module in sorted(graph):
        visit(module, [])
    return found


def test_imports_go_one_way():
    assert {"arguments", "problem", "model", "gradients"} <= set(modules(ROOT / "gsref")), "the parser found no package"
    assert violations(ROOT / "gsref") == []


def test_table_itself_goes_one_way():
    assert cycles({module: set(row.split()) for module, row in ALLOWED.items()}) == []


def test_importing_the_package_does_not_load_matplotlib():
    code = "import sys, gsref; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


# the checker itself, on a small package of which one file at a time is spoilt

SOUND = {
    "__init__.py": "from gsref.model import forward\n",
    "arguments.py": "import math\nimport numpy as np\n",
    "model.py": "from gsref.arguments import labels\nfrom gsref import arguments\n",
    "plots.py": "import matplotlib.pyplot as plt\n",
    "oracle/__init__.py": "from gsref.oracle.cases import CASES\n",
    "oracle/cases.py": "from gsref.model import forward\n",
    "run_demo.py": "from gsref import plots\nfrom gsref.model import forward\n",
}


def checked(tmp_path, **changed):
    package = tmp_path / "gsref"
    for file, content in {**SOUND, **changed}.items():
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(content, encoding="utf-8")
    return violations(package)


def test_checker_accepts_the_sound_package(tmp_path):
    assert checked(tmp_path) == []


@pytest.mark.parametrize("file, content, complaint", [
    ("arguments.py", "from gsref.model import forward\n", "arguments: imports model"),
    ("arguments.py", "def f():\n    import gsref.model\n", "arguments: imports model"),
    ("arguments.py", "from .model import forward\n", "arguments: imports model"),
    ("arguments.py", "from . import model\n", "arguments: imports model"),
    ("arguments.py", "from gsref import forward\n", "arguments: imports __init__"),
    ("arguments.py", "import gsref\n", "arguments: imports __init__"),
    ("model.py", "from gsref import plots\n", "model: imports plots"),
    ("model.py", "def f():\n    from matplotlib import pyplot\n", "model: imports matplotlib"),
    ("model.py", "import torch\n", "model: imports torch"),
    ("oracle/cases.py", "from gsref.plots import draw\n", "oracle.cases: imports plots"),
    ("oracle/cases.py", "from ..plots import draw\n", "oracle.cases: imports plots"),
    ("oracle/cases.py", "import gsref.oracle\n", "cycle: oracle -> oracle.cases -> oracle"),
    ("model.py", "from gsref.oracle.cases import CASES\n", "model: imports oracle.cases"),
    ("run_other.py", "from gsref.run_demo import main\n", "run_other: imports run_demo"),
    ("__init__.py", "from gsref.plots import draw\n", "__init__: imports plots"),
    ("novelty.py", "", "novelty: no row in the table"),
])
def test_checker_finds_a_planted_import(tmp_path, file, content, complaint):
    assert complaint in checked(tmp_path, **{file: content})


def test_cycle_finder_finds_a_cycle():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c", "a"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
