"""Has a process of Spark forked by `tests.spark.daemon`, and ends with it: `SOCKET PYTHON MODULE ARGUMENT…`.

If nobody serves the socket, it becomes that process itself. It starts without our modules, so it is light.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    path, python, module, *arguments = sys.argv[1:]
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(path)
    except OSError:
        own = ["tests.spark.daemon", *arguments, path] if module == "pyspark.daemon" else [module]
        os.execv(python, [python, "-m", *own])
    given = {
        "arguments": [module, *arguments],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    asked = json.dumps(given).encode()
    socket.send_fds(line, [len(asked).to_bytes(4)], [0, 1, 2])
    line.sendall(asked)
    line.recv(1)  # nothing comes; it returns at the end of the process
