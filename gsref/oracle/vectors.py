"""How do cases travel to other languages?  A folder of tensors with a manifest, written and read.

Layout: manifest.json; for `npy` one file a tensor, ID/NAME.npy, for `npz` one file a case, ID.npz.  Names: the inputs,
`expected.NAME` and `tolerance.NAME` for each output.  Little-endian, C order, no pickles.  Cases of at most 200 numbers
also as ID.json, with 17 significant digits.
"""

import hashlib
import io
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np

from gsref.commands import UsageError
from gsref.files import DamagedFile, write_atomic, write_text
from gsref.oracle.cases import Case
from gsref.oracle.precision import precision
from gsref.oracle.system import TRANSFORMER
from gsref.oracle.verdict import Task, prepare, select
from gsref.report import versions

SCHEMA = "gsref-oracle-vectors-1"
FORMATS = ("npy", "npz")
SMALL = 200          # numbers in a case that is also written as JSON
RESULTS = ("one folder; for each case to be accepted either ID.npz with the outputs as members or one file a tensor, "
           "ID/OUTPUT.npy; floating point, C order; nothing for a case to be rejected")


def export(folder, dtype="float64", form="npy", system=TRANSFORMER, seed=0, thorough=False):
    """Write the cases in the precision `dtype` into `folder`, which must be new or empty; returns the manifest.

    UsageError if the folder cannot be used.
    """
    folder, p = Path(folder), precision(dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"DIR: {str(folder)!r} is not empty, expected a new or empty folder")
        return _export(folder, p, form, system, seed, thorough)
    except OSError as problem:
        raise UsageError(f"DIR: cannot write to {str(folder)!r} ({problem.strerror}), expected a writable folder") from None


def _export(folder, p, form, system, seed, thorough):
    entries = []
    for task in prepare(select(system.cases(seed, True), None, thorough), p, system):
        if task.skip:
            continue
        tensors = {name: x.astype(np.dtype(p.container).newbyteorder("<")) for name, x in task.inputs.items()}
        for kind, values in (("expected", task.wanted), ("tolerance", task.allowed)):
            tensors.update({f"{kind}.{name}": np.asarray(values[name], dtype="<f8") for name in system.outputs})
        entries.append({**_describe(task.case, "accept"), "source": task.source,
                        **_write(folder, task.case.id, tensors, form)})
    for case in system.rejected(seed):
        tensors = {name: np.asarray(x).astype(np.dtype(p.container).newbyteorder("<")) for name, x in case.inputs.items()}
        entries.append({**_describe(case, "reject"), "reason": case.flags[0], **_write(folder, case.id, tensors, form)})
    manifest = {"schema": SCHEMA, "system": system.name, "version": system.version, "seed": seed, "dtype": p.name,
                "container": p.container, "inputs": list(system.inputs), "outputs": list(system.outputs), "format": form,
                "conventions": dict(system.conventions), "results": RESULTS,
                "pass": "abs(result - expected) <= tolerance, entry by entry; NaN fails",
                "versions": versions(), "cases": entries}
    write_text(folder / "manifest.json", json.dumps(manifest, indent=1, allow_nan=False) + "\n")
    return manifest


def _describe(case, result):
    return {"id": case.id, "result": result, "flags": list(case.flags), "sizes": dict(case.sizes)}


def _write(folder, id, tensors, form):
    """Write the tensors of one case; what the manifest says of them."""
    said = {name: {"dtype": x.dtype.str, "shape": list(x.shape)} for name, x in tensors.items()}
    files = {}

    def keep(path, data):
        (folder / path).parent.mkdir(exist_ok=True)
        write_atomic(folder / path, lambda file: file.write(data))
        files[path] = hashlib.sha256(data).hexdigest()
    if form == "npz":
        buffer = io.BytesIO()
        np.savez(buffer, **tensors)
        keep(f"{id}.npz", buffer.getvalue())
    else:
        for name, x in tensors.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(x, order="C"), version=(1, 0), allow_pickle=False)
            keep(f"{id}/{name}.npy", buffer.getvalue())
    if sum(x.size for x in tensors.values()) <= SMALL and all(np.isfinite(x).all() for x in tensors.values()):
        text = ",\n".join(f' "{name}": {_seventeen(x.tolist())}' for name, x in tensors.items())
        keep(f"{id}.json", f"{{\n{text}\n}}\n".encode())
    return {"tensors": said, "files": files}


def _seventeen(value):
    """JSON of nested lists of numbers with 17 significant digits, which give back the same float64."""
    return "[" + ", ".join(map(_seventeen, value)) + "]" if isinstance(value, list) else f"{value:.17g}"


def read(folder):
    """The manifest of an exported folder, and its Tasks and rejected Cases, every hash checked.

    DamagedFile, naming the file, if anything is missing, damaged or not what the manifest says.
    """
    folder = Path(folder)
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["schema"] != SCHEMA:
            raise DamagedFile(f"{path}: got schema {manifest['schema']!r}, expected {SCHEMA!r}")
        tasks, rejected = [], []
        for entry in manifest["cases"]:
            tensors = _read_case(folder, entry, manifest["format"])
            case = Case(entry["id"], tuple(entry["flags"]),
                        {name: tensors[name].astype(np.float64) for name in manifest["inputs"]}, entry["sizes"])
            if entry["result"] == "reject":
                rejected.append(case)
            else:
                wanted, allowed = ({name: tensors[f"{kind}.{name}"] for name in manifest["outputs"]}
                                   for kind in ("expected", "tolerance"))
                tasks.append(Task(case, case.inputs, wanted, allowed, entry["source"]))
    except OSError as problem:
        raise DamagedFile(f"{path}: cannot be read ({problem.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, DamagedFile):
            raise
        raise DamagedFile(f"{path}: not a manifest of exported cases ({type(problem).__name__}: {problem})") from None
    return manifest, tasks, rejected


def _read_case(folder, entry, form):
    for name, digest in entry["files"].items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise DamagedFile(f"{folder / 'manifest.json'}: names the file {name!r} outside its folder")
        if not file.is_file():
            raise DamagedFile(f"{file}: missing")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise DamagedFile(f"{file}: SHA-256 differs from the manifest: the file is damaged or was changed")
    tensors = load(folder / f"{entry['id']}.npz") if form == "npz" else \
        {name: load(folder / entry["id"] / f"{name}.npy") for name in entry["tensors"]}
    for name, said in entry["tensors"].items():
        if name not in tensors or tensors[name].dtype.str != said["dtype"] or list(tensors[name].shape) != said["shape"]:
            raise DamagedFile(f"{folder / entry['id']}: the tensor {name} is not what the manifest says")
    return tensors


def load(path):
    """An array from a .npy, a mapping of arrays from a .npz; DamagedFile for a pickle or a damaged or truncated file."""
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return content
            with content:
                return {name: content[name] for name in content.files}
    except OSError as problem:
        raise DamagedFile(f"{path}: cannot be read ({problem.strerror or problem})") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as problem:
        text = str(problem)
        why = "holds Python objects (a pickle), expected numbers" if "Object arrays" in text else \
            "neither .npy nor .npz (damaged, or a pickle)" if "pickle" in text else f"damaged ({text})"
        raise DamagedFile(f"{path}: {why}") from None
