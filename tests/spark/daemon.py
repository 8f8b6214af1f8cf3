"""The process that forks the Python workers of the shared session.

They come and go by dozens, and share the modules that it imports before it forks them. A worker does without
pandas, which pyarrow imports with the first array if it is installed: that takes a second.
"""

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from pyspark.daemon import manager


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

if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())
    for name in (sys.argv[1], *_SHARED):
        importlib.import_module(name)
    gc.freeze()  # a collection in a worker copies no page of theirs
    manager()
