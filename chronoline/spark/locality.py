"""Locality: refuses files of one machine to the executors of a cluster."""

from __future__ import annotations

from pyspark import TaskContext

from chronoline.core.errors import InvalidInput


def check_local(what: str, advice: str) -> None:
    """Refuses a place on one machine, in a task whose master says that it runs on several."""
    task = TaskContext.get()
    master = None if task is None else task.getLocalProperty("spark.master")
    if master is None or master == "local" or master.startswith("local["):
        return
    raise InvalidInput(
        f"{what} lies on one machine and cannot serve the executors of {master}: {advice}, or a local master"
    )
