"""Claims and intakes lock the rows of partitions in one order, so that they never wait in a circle."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputClaim
from chronoline.stores.postgres import engine
from tests.stores.line import NOW

PATIENCE_S = 60
UNTIL = NOW + 10_000

Change = Callable[[Store, Sequence[InputClaim]], object]


def renew(store: Store, claims: Sequence[InputClaim]) -> object:
    return store.renew_claims(claims, until_ms=UNTIL, now_ms=NOW)


def release(store: Store, claims: Sequence[InputClaim]) -> object:
    return store.release_claims(claims)


@pytest.mark.parametrize("change", [renew, release])
def test_rows_are_locked_by_partition(
    new_url: str, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    monkeypatch.setattr(engine, "PATIENT_MS", PATIENCE_S * 1_000)
    with open_store(new_url) as store, psycopg.connect(new_url) as caller:
        claims = store.claim_inputs("s", {0: 0, 1: 0}, "a", until_ms=UNTIL, now_ms=NOW)
        lock = "SELECT 1 FROM chronoline.inputs WHERE partition = %s FOR UPDATE NOWAIT"
        caller.execute(lock, [0])
        with ThreadPoolExecutor(1) as pool:
            changed = pool.submit(change, store, claims[::-1])
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
            while caller.execute(waiting).fetchone() is None:
                assert not changed.done()
            caller.execute(lock, [1])  # the other holds nothing while it waits for the first row
            caller.rollback()
            changed.result(PATIENCE_S)
