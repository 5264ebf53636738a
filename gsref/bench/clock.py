"""How long does a call take?  The fastest of several, after one that fills the caches."""

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
