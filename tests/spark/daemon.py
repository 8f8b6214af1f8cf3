"""The process that forks the Python workers of the shared session, which come and go by dozens.

What starts no thread is imported before they are forked. And pyarrow imports pandas, if it is there, with the
first array that it makes: a second of work in each worker, of which nothing here has any use.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from pyspark.daemon import manager

import chronoline.log
import chronoline.stores.factory  # noqa: F401 - so that workers have it


class WithoutPandas(MetaPathFinder):
    """As if it were not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("workers of tests do without pandas", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())
    importlib.import_module(sys.argv[1])
    manager()
