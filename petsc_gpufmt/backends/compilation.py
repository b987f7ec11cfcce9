"""Modules that are compiled while the program goes on, on all cores but one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from io import BufferedWriter

from petsc_gpufmt.backends import nvrtc
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_store import Compiled, Folder
from petsc_gpufmt.user_cache import make_folder


class Compilation:
    """Compiles modules into a folder. With the first of `modules` that is asked for, threads begin with the others.

    What fails in a thread is an error only of who asks for it.
    """

    def __init__(self, folder: Folder, modules: Iterable[Module]):
        self.folder = folder
        self.futures: dict[Module, Future[Compiled]] = {module: Future() for module in modules}
        self._waiting = iter(list(self.futures.items()))  # the threads share it
        self._threads: list[threading.Thread] | None = None
        self._stopped = False

    def compiled(self, module: Module) -> Compiled:
        """A module, whether it is one of `modules` or not: from the thread that has begun it, else compiled at once.

        GpufmtError if it does not compile.
        """
        future = self.futures.get(module)
        begun = future is not None and not future.cancel()
        if future is not None and self._threads is None:
            self._threads = self._started()
        return future.result() if future is not None and begun else self._compile(module)

    def stop(self) -> None:
        """End the threads, after the modules that they have begun."""
        self._stopped = True
        for thread in self._threads or ():
            thread.join()

    def _started(self) -> list[threading.Thread]:
        """Threads that compile what waits; none if another process does, or nothing can be kept, or none starts."""
        lock = self._lock()
        if lock is None:
            return []
        # all cores of this process but the one that the program is on
        threads = max(1, len(os.sched_getaffinity(0)) - 1)
        started: list[threading.Thread] = []
        with contextlib.suppress(RuntimeError):  # no more threads
            while len(started) < threads:
                thread = threading.Thread(target=self._work, args=(lock,), name="kernels")
                thread.start()
                started.append(thread)
        if not started:
            lock.close()
        return started

    def _lock(self) -> BufferedWriter | None:
        """A file that is locked as long as it is open; None if another process has it, or if there can be none."""
        with contextlib.suppress(OSError):
            make_folder(self.folder.path)
            file = open(os.path.join(self.folder.path, "lock"), "wb")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except OSError:
                file.close()
        return None

    def _work(self, lock: BufferedWriter) -> None:
        for module, future in self._waiting:
            # when the main thread has ended, Python waits for the others
            if self._stopped or not threading.main_thread().is_alive():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._compile(module))
            except BaseException as e:
                future.set_exception(e)
        if all(future.done() for future in self.futures.values()):
            lock.close()

    def _compile(self, module: Module) -> Compiled:
        found = self.folder.read(module)  # of another process
        if found is None:
            found = nvrtc.compile_module(module, self.folder.scalar, self.folder.index, self.folder.architecture)
            self.folder.keep(module, found)
        return found
