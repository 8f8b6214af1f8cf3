"""A disk whose flushes fail: a small library, loaded before the others, that stands for fsync.

Flushes fail with EIO as soon as a trigger file exists. The trigger's text says for which files: those whose
names end with it.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int broken(int fd) {
    char link[64], path[4096], ending[64];
    const char *trigger = getenv("FLUSH_TRIGGER");
    FILE *file = trigger ? fopen(trigger, "r") : NULL;
    if (!file) return 0;
    size_t wanted = fread(ending, 1, sizeof ending, file);
    fclose(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path);
    return size >= (ssize_t)wanted && !memcmp(path + size - wanted, ending, wanted);
}

int fsync(int fd) {
    if (broken(fd)) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    if (broken(fd)) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""


class BrokenDisk:
    """Environment for a process whose flushes fail from a moment on."""

    def __init__(self, folder: Path) -> None:
        self.trigger = folder / "trigger"
        self._library = _compile(folder)

    @property
    def environment(self) -> dict[str, str]:
        own = {"LD_PRELOAD": str(self._library), "FLUSH_TRIGGER": str(self.trigger)}
        return os.environ | own


def _compile(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not Path("/proc/self/fd").exists():
        reason = "no C compiler (or no /proc): that a failed fsync stops the process is NOT tested"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    source, library = folder / "flush.c", folder / "flush.so"
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library
