"""Which images are there to learn from?  Two pairs of classes, and in words where they come from.

They come from a folder with the CIFAR-10 python batches, from the 8x8 digits that an installed scikit-learn ships, or
are drawn here.  Nothing is downloaded.
"""

import gzip
import importlib.util
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))
TEST_BATCH = "test_batch"
CHANNELS, SIDE = 3, 32                         # of CIFAR-10
POOLED = 8                                     # side of the grey images that a patch holds
PER_CLASS = 500                                # images of a class, as published (of 5000)
CIFAR_PAIRS = ((0, 6), (1, 7))                 # airplane and frog, as published; automobile and horse for the transfer
CIFAR_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class UnusableImages(ValueError):
    """The images asked for are not there or not in the format expected; the text says which file and what is wrong."""


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that makes NumPy arrays and plain containers and refuses to run anything else."""

    ALLOWED = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"),
               ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
               ("numpy.core.numeric", "_frombuffer"), ("numpy._core.numeric", "_frombuffer")}

    def find_class(self, module, name):
        if (module, name) not in self.ALLOWED:
            raise UnusableImages(f"contains {module}.{name}, expected arrays, numbers and text only")
        return super().find_class(module, name)


def read_batch(path):
    """One CIFAR-10 python batch: images (n, 32, 32, 3) uint8 and classes (n,) from 0 to 9.

    Raises UnusableImages, naming the file, for anything else.
    """
    try:
        with open(path, "rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        data, classes = np.asarray(batch["data"]), np.asarray(batch["labels"])
    except UnusableImages as problem:
        raise UnusableImages(f"{path}: {problem}") from None
    except OSError as problem:
        raise UnusableImages(f"{path}: {problem.strerror}") from None
    except Exception as problem:               # a damaged pickle raises nearly anything
        raise UnusableImages(f"{path}: not a CIFAR-10 python batch ({type(problem).__name__}: {problem})") from None
    size = CHANNELS * SIDE * SIDE
    if data.ndim != 2 or data.shape[1] != size or data.dtype != np.uint8:
        raise UnusableImages(f"{path}: got data of shape {data.shape} and dtype {data.dtype}, expected (n, {size}) uint8")
    if classes.shape != (len(data),) or classes.dtype.kind not in "iu" or not np.isin(classes, range(10)).all():
        raise UnusableImages(f"{path}: expected {len(data)} labels from 0 to 9")
    return data.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1), classes


def grey_small(images):
    """Mean over channels and over blocks of pixels: (n, 32, 32, 3) uint8 to (n, 64) floats from 0 to 1."""
    block = SIDE // POOLED
    return images.reshape(-1, POOLED, block, POOLED, block, CHANNELS).mean(axis=(2, 4, 5)).reshape(-1, POOLED**2) / 255


@dataclass(frozen=True)
class Images:
    """Two classes of images for learning and others for testing: x (n, d), y (n,) of +-1; `source` and `classes` in words."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str
    classes: tuple


def _two_classes(x, classes, pair, x_test=None, classes_test=None, most=None, rng=None):
    """(x, y, x_test, y_test) of a pair of classes; without test images, every fourth one is kept for testing."""
    parts = []
    for images, labels in ((x, classes), (x_test, classes_test)):
        if images is None:
            continue
        rows = [np.flatnonzero(labels == one) for one in pair]
        if most is not None:
            rows = [rng.permutation(row)[:most] for row in rows]
        parts.append((np.concatenate([images[row] for row in rows]), np.repeat([1.0, -1.0], [len(row) for row in rows])))
    if x_test is None:
        kept = np.arange(len(parts[0][1])) % 4 != 0
        parts = [tuple(part[kept] for part in parts[0]), tuple(part[~kept] for part in parts[0])]
    for (images, y), what in zip(parts, ("learning", "testing")):
        counts = [np.count_nonzero(y == side) for side in (1, -1)]
        if min(counts) < 2:
            raise UnusableImages(f"{counts[0]} and {counts[1]} images of the two classes for {what}, expected 2 or more")
    return (*parts[0], *parts[1])


def cifar(folder, rng):
    """Two pairs of classes from the CIFAR-10 python batches in `folder`, 500 images a class, grey, 8x8; a list of Images.

    Uses the data_batch_* files that are there (at least one) and test_batch if it is.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UnusableImages(f"{folder}: no such folder")
    if (folder / "cifar-10-batches-py").is_dir():
        folder = folder / "cifar-10-batches-py"
    names = [name for name in BATCHES if (folder / name).exists()]
    if not names:
        raise UnusableImages(f"{folder}: no {BATCHES[0]} .. {BATCHES[-1]}, expected the CIFAR-10 python batches")
    batches = [read_batch(folder / name) for name in names]
    x, classes = grey_small(np.concatenate([b[0] for b in batches])), np.concatenate([b[1] for b in batches])
    test = (None, None)
    if (folder / TEST_BATCH).exists():
        images, labels = read_batch(folder / TEST_BATCH)
        test = grey_small(images), labels
    sets = []
    for pair in CIFAR_PAIRS:
        try:
            parts = _two_classes(x, classes, pair, *test, most=PER_CLASS, rng=rng)
        except UnusableImages as problem:
            raise UnusableImages(f"{folder}: {problem}") from None
        sets.append(Images(*parts, f"CIFAR-10 from {folder} ({len(names)} batches), reduced to {POOLED}x{POOLED} grey",
                           tuple(CIFAR_NAMES[one] for one in pair)))
    return sets


def installed_digits():
    """Two pairs of digits from the 8x8 digits of an installed scikit-learn (1797 images), or None if there is none."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if not path.exists():
        return None
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    return [Images(*_two_classes(table[:, :-1] / 16, table[:, -1], pair), "the 8x8 digits of the installed scikit-learn",
                   tuple(f"digit {one}" for one in pair)) for pair in ((3, 8), (4, 9))]


def drawn(rng, n=600):
    """Two pairs of drawn 8x8 images, n of each class: bars that lie or stand, and filled or hollow squares."""
    rows, columns = np.mgrid[0:POOLED, 0:POOLED]

    def shapes(kind):
        centre, half = rng.integers(2, POOLED - 2, (n, 2, 1, 1)), rng.integers(2, 4, (n, 1, 1))
        down, across = np.abs(rows - centre[:, 0]), np.abs(columns - centre[:, 1])
        far = np.maximum(down, across)
        return {"lying bar": (down < 1) & (across <= half), "standing bar": (across < 1) & (down <= half),
                "filled square": far < half, "hollow square": far == half}[kind]

    sets = []
    for pair in (("lying bar", "standing bar"), ("filled square", "hollow square")):
        x = np.concatenate([shapes(kind) for kind in pair]).reshape(2 * n, -1) + 0.1 * rng.standard_normal((2 * n, POOLED**2))
        classes = np.repeat([0, 1], n)
        sets.append(Images(*_two_classes(x, classes, (0, 1)), "images drawn by this run (no image data was found)", pair))
    return sets


def available(folder, rng):
    """The images of `folder` (CIFAR-10), or without one the installed digits, or drawn ones; two pairs of classes."""
    return cifar(folder, rng) if folder is not None else installed_digits() or drawn(rng)
