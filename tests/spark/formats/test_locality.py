"""Where a task runs, seen from the driver."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chronoline.core.errors import InvalidInput
from chronoline.spark.formats.locality import Locality, locate

ELSEWHERE = "the file lies on one machine, and this master is not local"


def test_the_same_process_is_local() -> None:
    locate().check("the file")


@pytest.mark.parametrize("host", ["another-machine", ""])
def test_another_machine_is_not(host: str) -> None:
    with pytest.raises(InvalidInput, match=ELSEWHERE):
        replace(locate(), host=host).check("the file")


def test_where_no_jvm_is_known_the_machine_decides() -> None:
    assert locate().jvm is None  # nothing above a test is a JVM
    replace(locate(), jvm=1).check("the file")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
def test_the_tasks_of_a_local_master_know_their_jvm(spark: SparkSession) -> None:
    def find(_: int) -> tuple[str, int | None]:
        here = locate()
        return here.host, here.jvm

    found = set(spark.sparkContext.parallelize(range(4), 4).map(find).collect())
    ((host, jvm),) = found
    assert (host, jvm is not None) == (locate().host, True)
    with pytest.raises(InvalidInput, match=ELSEWHERE):
        _check_in_another_jvm(Locality(host=host, jvm=jvm), jvm)


def _check_in_another_jvm(locality: Locality, jvm: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "chronoline.spark.formats.locality._jvm_above",
            lambda _: None if jvm is None else jvm + 1,
        )
        locality.check("the file")
