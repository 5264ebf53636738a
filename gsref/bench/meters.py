"""How long does a call take, and how much memory has the process taken?"""

import resource
import sys
import time


def best_time(call, repeats=5):
    """Seconds of the fastest of `repeats` calls, after one that fills the caches."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory():
    """MiB that this process has had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
