"""The process that forks the Python workers of Spark, and processes like itself.

Workers come and go by dozens, and share the modules that it imports before it forks them. A worker does
without pandas, which pyarrow imports with the first array if it is installed: that takes a second.

Spark starts such a process for each step of planning a data source, and one for each stream of a data source.
The first of them that plans also serves a socket, which is named by the JVM. The others of that JVM are
forked there, since importing the modules takes a second. `tests.spark.fork_client` asks for them.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn

from pyspark.daemon import manager

DAEMON = "pyspark.daemon"
_WORKER = "pyspark.worker"
_LOOK_EVERY_S = 1.0
_CHUNK_BYTES = 65_536


class WithoutPandas(MetaPathFinder):
    """Hides pandas, as if it were not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("workers of tests do without pandas", name=name)


_SHARED = (
    "chronoline.log",
    "chronoline.pipe.spark.intake_query",
    "chronoline.pipe.spark.lane_query",
    "chronoline.spark.log",
    "chronoline.pipe.spark.workers",
    "chronoline.stores.factory",
    "pyspark_chronoline",
)
_PLANNING = ("pyspark.sql.worker.plan_data_source_read", "pyspark_chronoline_log")


def serve_forks(path: str, parent_pid: int) -> NoReturn:
    """Forks a process for each request at the socket, until the parent ends."""
    for number in (0, 1):  # the parent's, for Spark
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    door = socket.socket(socket.AF_UNIX)
    try:
        door.bind(path)
    except OSError:  # another one serves this JVM
        os._exit(0)
    door.listen()
    while os.getppid() == parent_pid:
        if select.select([door], [], [], _LOOK_EVERY_S)[0]:
            line, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become(line)
            line.close()
    os._exit(0)


def become(line: socket.socket) -> NoReturn:
    """Runs the requested module in this process, with the files and the environment of the client."""
    size, descriptors, _, _ = socket.recv_fds(line, 4, 3)
    asked = b""
    while len(asked) < int.from_bytes(size):
        asked += line.recv(_CHUNK_BYTES)
    given = json.loads(asked)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    module, *arguments = given["arguments"]
    sys.argv = [module, *arguments]
    code = 1
    try:
        if module == DAEMON:
            importlib.import_module(arguments[0])
            manager()
        else:
            threading.Thread(target=end_with, args=(line,), daemon=True).start()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def end_with(line: socket.socket) -> None:
    """Ends this process when its client is killed."""
    with suppress(OSError):
        line.recv(1)
    os._exit(1)


if __name__ == "__main__":
    _, module, socket_path = sys.argv
    sys.argv = sys.argv[:2]
    serves = module != _WORKER
    sys.meta_path.insert(0, WithoutPandas())
    for name in (module, *_SHARED, *(_PLANNING if serves else ())):
        importlib.import_module(name)
    gc.freeze()  # a collection in a worker copies no page of theirs
    own_pid = os.getpid()
    if serves and os.fork() == 0:
        serve_forks(socket_path, own_pid)
    manager()
