"""How is something kept on disk?  Whole or not at all."""

import json
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np


def write_atomic(path, write):
    """Call `write(binary_file)` on a new file beside `path`, then move it over `path` in one step.

    A crash or an exception at any moment leaves the old `path` (or none), never half of the new one.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)         # mkstemp gives 0600: an output should have the user's usual mode
        os.replace(name, path)
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise


def write_text(path, text):
    """Write `text` as UTF-8, atomically."""
    write_atomic(path, lambda file: file.write(text.encode()))


def write_arrays(path, arrays):
    """Write a mapping of arrays as `.npz`, atomically; no objects, so that it loads with allow_pickle=False."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise TypeError(f"{name}: got an object array, expected numbers or text")
    write_atomic(path, lambda file: np.savez_compressed(file, **arrays))


class DamagedFile(ValueError):
    """A file is there but is not what it should be."""


class Checkpoint:
    """The state of an unfinished run: a mapping of arrays, and the options it belongs to.

    `options` is a JSON-able mapping of everything that the numbers depend on: a checkpoint of other options is refused.
    """

    def __init__(self, path, options):
        self.path, self.options = Path(path), json.dumps(options, sort_keys=True)

    def save(self, arrays):
        write_arrays(self.path, {**arrays, "__options__": np.array(self.options)})

    def load(self):
        """The saved arrays, or None if there is no checkpoint.  DamagedFile or ValueError if it cannot be used."""
        if not self.path.exists():
            return None
        try:
            with zipfile.ZipFile(self.path), np.load(self.path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            options = str(arrays.pop("__options__"))
            theirs = dict(json.loads(options))
        except Exception as problem:           # zip, zlib, the npy header and the JSON each have errors of their own
            raise DamagedFile(f"{self.path}: not a readable checkpoint ({type(problem).__name__}: {problem}); "
                              "delete it to start anew") from None
        if options != self.options:
            ours = json.loads(self.options)
            differ = [f"{key}: {theirs.get(key)!r} there, {ours.get(key)!r} now"
                      for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
            raise ValueError(f"{self.path}: belongs to a run with other options ({'; '.join(differ)})")
        return arrays

    def remove(self):
        self.path.unlink(missing_ok=True)
