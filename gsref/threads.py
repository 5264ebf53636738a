"""How many threads?  The caller's choice, and BLAS kept to one while chunks of samples run beside each other."""

import _thread
import os
import threading

from gsref.arguments import integer

VARIABLE = "GSREF_THREADS"


def cores():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number(threads=None):
    """`threads` if given, else the environment variable GSREF_THREADS, else one a core if BLAS can be limited, else 1.

    Without threadpoolctl (extra `fast`) the threads of chunks would compete with those of BLAS inside each chunk, so
    that one thread is then the default; what is lost is the share of the other cores.
    """
    if threads is not None:
        return integer("threads", threads)
    text = os.environ.get(VARIABLE)
    if text is not None:
        try:
            return integer(VARIABLE, int(text))
        except ValueError:
            raise ValueError(f"{VARIABLE}: got {text!r}, expected an integer >= 1") from None
    return cores() if SINGLE_BLAS.libraries() else 1


class _SingleBlas:
    """A context in which BLAS uses one thread, if threadpoolctl is installed; else it does nothing.

    The number of BLAS threads belongs to the process.  Calls may overlap in time, and each would take for the original
    number what another has set; so the first one in keeps it, and the last one out restores it.
    """

    def __init__(self):
        self._lock, self._inside, self._libraries, self._before = threading.Lock(), 0, None, []

    def libraries(self):
        """The BLAS libraries that can be limited: a list, empty without threadpoolctl."""
        if self._libraries is None:
            try:
                from threadpoolctl import ThreadpoolController
            except ImportError:
                self._libraries = []
            else:
                self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries

    def __enter__(self):
        with self._lock:
            if self._inside == 0:
                self._before = [(library, library.get_num_threads()) for library in self.libraries()]
                for library, before in self._before:
                    if before != 1:
                        library.set_num_threads(1)
            self._inside += 1

    def __exit__(self, *error):
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for library, before in self._before:
                    if before != 1:
                        library.set_num_threads(before)


SINGLE_BLAS = _SingleBlas()


def run(work, arguments):
    """Call `work` with each of the `arguments`, each in a thread, the first in this one; raise the first exception."""
    errors, locks = [], []

    def guarded(argument):
        try:
            work(argument)
        except BaseException as error:
            errors.append(error)

    def other(argument, started, done):
        started.release()
        guarded(argument)
        done.release()
    for argument in arguments[1:]:             # bare threads: threading.Thread takes twice the time to start and join one
        started, done = _thread.allocate_lock(), _thread.allocate_lock()
        started.acquire(), done.acquire()
        _thread.start_new_thread(other, (argument, started, done))
        locks.append((started, done))
    # Waiting until they run is what makes them run beside this one: Linux often puts a new thread on the core of its
    # parent, where it waits until the parent sleeps; the parent then wakes up on an idle core.
    for started, _ in locks:
        started.acquire()
    guarded(arguments[0])
    for _, done in locks:
        done.acquire()
    if errors:
        raise errors[0]
