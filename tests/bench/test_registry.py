from collections.abc import Callable
from importlib import import_module

import pytest

from chronoline.core.errors import InvalidInput, MissingExtra
from chronoline_bench.registry import BENCHES, Bench, find_bench
from chronoline_bench.session import Session


@pytest.mark.parametrize("bench", BENCHES.values(), ids=str)
def test_every_bench_can_be_loaded(bench: Bench) -> None:
    measure: Callable[[Session], None] = bench.load()
    assert measure is import_module(bench.module).measure
    assert bench.summary
    assert find_bench(bench.name) is bench


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="no bench named 'speed'; there are: store, bodies"):
        find_bench("speed")


def test_missing_dependency_is_named_with_the_remedy() -> None:
    bench = Bench(name="b", summary="s", module="no_such_driver.bench")
    with pytest.raises(MissingExtra, match=r"bench b needs no_such_driver.*pip install"):
        bench.load()


def test_named_cases_can_be_chosen() -> None:
    bench = Bench(name="b", summary="s", module="m", cases=("one", "two"))
    assert bench.choose(["two"]) == ("two",)
    assert bench.choose([]) == ()
    with pytest.raises(InvalidInput, match="no case 'three' to choose; there are: one, two"):
        bench.choose(["one", "three"])
    with pytest.raises(InvalidInput, match="it runs as a whole"):
        find_bench("store").choose(["batches"])


def test_missing_module_of_chronoline_is_a_bug() -> None:
    bench = Bench(name="b", summary="s", module="chronoline_bench.no_such_bench")
    with pytest.raises(ModuleNotFoundError):
        bench.load()
