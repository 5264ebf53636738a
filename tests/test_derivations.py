"""Text, code and tests are held together: every labelled equation has one place in the code and a test of its own.

A label is *defined* in derivations/*.md by a line that begins with `**[name.k]**`, *cited* as `[name.k]` by the
docstring of a function or class of gsref, and *tested* by a test that carries `@pytest.mark.derives("name.k")`.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LABEL = r"\[([a-z][a-z0-9_]*\.[0-9]+)\]"


def defined_labels(folder):
    """The labels that the texts define, one entry a definition."""
    return [label for text in _texts(folder) for label in re.findall(rf"^\*\*{LABEL}\*\*", text, re.MULTILINE)]


def mentioned_labels(folder):
    """The labels that the texts use, defined or not."""
    return {label for text in _texts(folder) for label in re.findall(LABEL, text)}


def _texts(folder):
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))]


def _nodes(folder, kinds):
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                yield path.relative_to(folder).as_posix(), node


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def cited_labels(folder):
    """{label: places whose docstring cites it}; two citations in one docstring are one place."""
    cited = {}
    for file, node in _nodes(folder, DEFINITIONS):
        for label in set(re.findall(LABEL, ast.get_docstring(node) or "")):
            cited.setdefault(label, []).append(f"{file}:{node.name}")
    return cited


def labels_of_tests(folder):
    """{label: tests whose marker names it}; only functions and classes that pytest collects count."""
    tested = {}
    for file, node in _nodes(folder, DEFINITIONS):
        if not node.name.startswith(("test_", "Test")):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.derives":
                for argument in mark.args:
                    tested.setdefault(ast.literal_eval(argument), []).append(f"{file}:{node.name}")
    return tested


def disagreements(derivations, package, tests):
    """Everything that breaks the rule, one line each; an empty list is agreement."""
    defined, cited, tested = defined_labels(derivations), cited_labels(package), labels_of_tests(tests)
    lines = [f"{label}: defined {times} times" for label, times in Counter(defined).items() if times > 1]
    for label in sorted(set(defined)):
        places = cited.get(label, [])
        if len(places) != 1:
            lines.append(f"{label}: cited by {len(places)} functions ({', '.join(places)}), expected one")
        if label not in tested:
            lines.append(f"{label}: named by no test")
    for what, labels in (("cited", cited), ("tested", tested), ("mentioned", mentioned_labels(derivations))):
        lines += [f"{label}: {what} but defined nowhere" for label in sorted(set(labels) - set(defined))]
    return lines


def test_text_code_and_tests_agree():
    assert defined_labels(ROOT / "derivations"), "no label found: the parser or the folder is wrong"
    assert disagreements(ROOT / "derivations", ROOT / "gsref", ROOT / "tests") == []


def test_derivations_are_numbered_without_gaps_and_listed():
    names = sorted(path.name for path in (ROOT / "derivations").glob("*.md") if path.name != "README.md")
    index = (ROOT / "derivations" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d\d_[a-z0-9_]+\.md)\)", index) == names
    assert all(re.fullmatch(r"\d\d_[a-z0-9_]+\.md", name) for name in names), names
    assert [int(name[:2]) for name in names] == list(range(1, len(names) + 1))


# the checker itself, on a small tree of which one part at a time is spoilt

TEXT = "# Title\n\n**[demo.1]** x = 1\n\nBy [demo.1] also\n\n**[demo.2]** y = 2\n"
CODE = 'def one():\n    """x  [demo.1]."""\n\nclass Two:\n    """y  [demo.2], and again [demo.2]."""\n'
TEST = ('import pytest\n\n@pytest.mark.derives("demo.1")\ndef test_one():\n    pass\n\n'
        '@pytest.mark.derives("demo.2", "demo.1")\n@pytest.mark.slow\nclass TestTwo:\n    pass\n')


def checked(tmp_path, text=TEXT, code=CODE, test=TEST):
    for name, file, content in (("d", "01_demo.md", text), ("g", "demo.py", code), ("t", "test_demo.py", test)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(content, encoding="utf-8")
    return disagreements(tmp_path / "d", tmp_path / "g", tmp_path / "t")


def test_checker_accepts_the_sound_tree(tmp_path):
    assert checked(tmp_path) == []


@pytest.mark.parametrize("spoilt, complaint", [
    ({"text": TEXT + "\n**[demo.2]** z = 3\n"}, "demo.2: defined 2 times"),
    ({"text": TEXT + "\n**[demo.3]** z = 3\n"}, "demo.3: cited by 0 functions (), expected one"),
    ({"text": TEXT + "\n**[demo.3]** z = 3\n"}, "demo.3: named by no test"),
    ({"text": TEXT + "\nsee [demo.4]\n"}, "demo.4: mentioned but defined nowhere"),
    ({"text": TEXT.replace("**[demo.2]**", "[demo.2]")}, "demo.2: cited but defined nowhere"),
    ({"text": TEXT.replace("**[demo.2]**", "[demo.2]")}, "demo.2: tested but defined nowhere"),
    ({"code": CODE + '\ndef three():\n    """[demo.1]"""\n'},
     "demo.1: cited by 2 functions (demo.py:one, demo.py:three), expected one"),
    ({"code": CODE + '\nclass C:\n    def f(self):\n        """[demo.9]"""\n'}, "demo.9: cited but defined nowhere"),
    ({"code": CODE.replace('"""x  [demo.1]."""', "return 1  # [demo.1]")},
     "demo.1: cited by 0 functions (), expected one"),
    ({"test": TEST.replace('"demo.2", ', "")}, "demo.2: named by no test"),
    ({"test": TEST.replace("TestTwo", "Helper")}, "demo.2: named by no test"),
    ({"test": TEST.replace('"demo.2"', '"demo.7"')}, "demo.7: tested but defined nowhere"),
])
def test_checker_finds_a_planted_disagreement(tmp_path, spoilt, complaint):
    assert complaint in checked(tmp_path, **spoilt)
