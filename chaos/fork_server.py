"""A process that has imported everything and forks workers on request: `-m chaos.fork_server`.

Imports take two seconds of CPU time; a campaign that replaces a worker every two seconds would do little else. A
fork is an independent process with its own memory, threads and connections.

Reads orders from its standard input and writes what happens to its standard output, a line of JSON each. When its input
ends, because the starting process has ended, it kills its workers and ends too.
"""

import gc
import os
import selectors
import signal
import sys
from contextlib import suppress
from types import FrameType

import msgspec

from chaos.messages import Order, WorkerEnded, WorkerReport, WorkerStarted
from chaos.worker import work

_STDIN, _STDOUT = 0, 1


class ForkServer:
    """Forks workers, and reports their starts and ends."""

    def __init__(self) -> None:
        self._orders = b""
        self._numbers: dict[int, int] = {}
        # Workers hold the reading end only. It is closed when this process ends, even by SIGKILL, and then they end
        # as well.
        self._lifeline, self._held_end = os.pipe()

    def run(self) -> None:
        """Serve until the input ends."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, _nothing)  # but the wake-up
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starting process decides
        signal.set_wakeup_fd(wake)
        with selectors.DefaultSelector() as selector:
            selector.register(_STDIN, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == woken:
                        os.read(woken, 4096)
                        self._bury()
                    elif not self._listen():
                        return self._end()

    def _listen(self) -> bool:
        heard = os.read(_STDIN, 65536)
        *orders, self._orders = (self._orders + heard).split(b"\n")
        for order in orders:
            self._bear(msgspec.json.decode(order, type=Order))
        return bool(heard)

    def _bear(self, order: Order) -> None:
        if pid := os.fork():
            self._numbers[pid] = order.number
            _tell(WorkerStarted(order.number, pid))
            return
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._held_end)
            code = work(order, lifeline=self._lifeline, say=lambda text: _tell(WorkerReport(order.number, text)))
        except BaseException as error:
            sys.stderr.write(f"worker {order.number}: {type(error).__name__}: {error}\n")
            raise
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                _tell(WorkerEnded(self._numbers.pop(pid), os.waitstatus_to_exitcode(status)))

    def _end(self) -> None:
        for pid in self._numbers:
            os.kill(pid, signal.SIGKILL)


def _nothing(_number: int, _frame: FrameType | None) -> None: ...


def _tell(event: WorkerStarted | WorkerEnded | WorkerReport) -> None:
    """One write: lines of several processes never mix, as long as they are short."""
    os.write(_STDOUT, msgspec.json.encode(event) + b"\n")


if __name__ == "__main__":
    gc.freeze()
    ForkServer().run()
