"""How does a report read?  As text, as JSON, as JUnit XML."""

import shlex
from xml.sax.saxutils import escape, quoteattr

from gsref.report import to_json, versions

SCHEMA = "gsref-oracle-report-1"
DETAILED = 8          # failing cases that are printed entry by entry; the rest get one line each


def repeat_line(name, dtype, case, seed=0, strict=False, tolerance=1.0, system=None, rejects=False):
    """One line that repeats a failure alone: a shell command if the candidate can be imported, else a line of Python."""
    if name:
        line = f"python -m gsref.oracle check {shlex.quote(name)} --dtype {dtype}"
        line += "" if system is None or system.name == "transformer" else f" --system {system.where}"
        line += " --rejects" if rejects else f" --case {shlex.quote(case)}"
        return line + (f" --seed {seed}" if seed else "") + (" --strict" if strict else "") \
            + (f" --tolerance {tolerance:g}" if tolerance != 1 else "")
    options = [f"dtype={dtype!r}"] + (["rejects=True"] if rejects else [f"cases={case!r}"]) \
        + ([f"seed={seed}"] if seed else []) + (["strict=True"] if strict else []) \
        + ([f"tolerance={tolerance:g}"] if tolerance != 1 else [])
    return f"print(gsref.oracle.check(candidate, {', '.join(options)}))"


def place(c):
    """block[index] of a comparison's worst entry."""
    return c.block + (str(list(c.index)) if c.index else "")


def line(c):
    """One comparison in one line."""
    if c.index is None or c.absolute is None:
        return f"{place(c)}: {c.reason}"
    relative = "" if c.relative is None else f", relative {c.relative:.2e}"
    return (f"{c.block}: {c.reason}; worst {place(c)}: got {c.got!r}, wanted {c.wanted!r}, absolute {c.absolute:.2e}{relative}, "
            f"{c.ulps:.3g} ulp, tolerance {c.tolerance:.2e}")


def text(report):
    """The report as text: verdict, diagnosis, a line a block, then what failed with a line that repeats it."""
    cases = dict.fromkeys(c.case for c in report.comparisons)
    out = [f"{report.verdict.upper()}: {report.candidate}, {report.dtype}, {report.system} case set {report.version}, "
           f"{len(cases)} cases, {report.seconds:.1f} s"]
    if report.tolerance != 1:
        out.append(f"tolerances are {report.tolerance:g} times the derived ones")
    if report.diagnosis:
        out += [f"diagnosis: {entry}" for entry in report.diagnosis]
    if report.first_wrong:
        out.append(f"first wrong along the computation: {report.first_wrong}")
    if report.unseen and report.verdict != "fail":
        out.append(f"no case that ran could show an error of {', '.join(report.unseen)}")
    out += ["", *_blocks(report)]
    if report.skipped:
        out.append(f"not run, outside the range of {report.dtype}: {', '.join(report.skipped)}")
    bad = {case: [c for c in report.comparisons if c.case == case and c.verdict != "pass"] for case in cases}
    bad = {case: found for case, found in bad.items() if found}
    for k, (case, found) in enumerate(bad.items()):
        if k < DETAILED:
            out += ["", f"{case}"] + [f"  {c.verdict:12s} {line(c)}" for c in found] + [f"  repeat: {report.repeat[case]}"]
        else:
            out += ([""] if k == DETAILED else []) + [f"{case}: {', '.join(c.block for c in found)}; repeat: {report.repeat[case]}"]
    sources = dict.fromkeys(c.source for found in bad.values() for c in found if c.source)
    return "\n".join(out + [f"\ntolerance: {source}" for source in sources]) + "\n"


def _blocks(report):
    rows = [("block", "pass", "fail", "inconclusive", "hidden", "worst error", "in case")]
    for block in dict.fromkeys(c.block for c in report.comparisons):
        found = [c for c in report.comparisons if c.block == block]
        count = [sum(c.verdict == verdict for c in found) for verdict in ("pass", "fail", "inconclusive")]
        hidden = sum(c.verdict == "pass" and not c.seen for c in found)
        scored = [(c.absolute / c.tolerance if c.tolerance else float("inf"), c) for c in found if c.absolute]
        ratio, worst = max(scored, key=lambda item: item[0], default=(0.0, None))
        rows.append((block, *map(str, count), str(hidden), f"{ratio:.2g} tol" if worst else "-", worst.case if worst else ""))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def json_text(report):
    """The report as JSON; a non-finite `got` is a string, so that it is not lost."""
    comparisons = [{**{key: getattr(c, key) for key in c.__dataclass_fields__ if key != "got"},
                    "got": c.got if c.got is None or abs(c.got) < float("inf") else repr(c.got)} for c in report.comparisons]
    head = {key: getattr(report, key) for key in report.__dataclass_fields__ if key != "comparisons"}
    return to_json({"schema": SCHEMA, **head, "versions": versions(), "comparisons": comparisons})


def junit_text(report):
    """The report as JUnit XML: one test case a case and block; inconclusive is an error, not a pass."""
    count = {verdict: sum(c.verdict == verdict for c in report.comparisons) for verdict in ("fail", "inconclusive")}
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           f'<testsuite name="gsref.oracle {report.system} {report.dtype}" tests="{len(report.comparisons)}" '
           f'failures="{count["fail"]}" errors="{count["inconclusive"]}" time="{report.seconds:.3f}">']
    for c in report.comparisons:
        head = f"  <testcase classname={quoteattr(_clean(c.case))} name={quoteattr(_clean(c.block))}"
        if c.verdict == "pass":
            out.append(head + "/>")
            continue
        tag = "failure" if c.verdict == "fail" else "error"
        body = "\n".join([line(c), f"repeat: {report.repeat[c.case]}", *report.diagnosis])
        out.append(f"{head}><{tag} message={quoteattr(_clean(c.reason))}>{escape(_clean(body))}</{tag}></testcase>")
    return "\n".join(out + ["</testsuite>"]) + "\n"


def _clean(string):
    """Without the characters that XML 1.0 cannot hold (an exception's text may have any)."""
    return "".join(ch if ch in "\t\n\r" or 0x20 <= ord(ch) < 0xD800 or 0xE000 <= ord(ch) <= 0xFFFD or ord(ch) > 0xFFFF
                   else "?" for ch in string)
