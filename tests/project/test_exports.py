"""The names that `chronoline` and `chronoline.store` give to users."""

import subprocess
import sys

import chronoline
import chronoline.client
import chronoline.store
from chronoline.core.errors import ChronolineError

OF_THE_CLIENT = {"AsyncClient", "Client", "Lease", "Message", "Retry", "ToSend", "Worker"}


def test_grpc_is_not_imported_before_the_client_is_used() -> None:
    program = (
        "import sys, chronoline, chronoline.store\n"
        "assert 'grpc' not in sys.modules\n"
        "from chronoline import Client\n"
        "assert 'grpc' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_top_level_holds_the_sdk_and_its_errors_alone() -> None:
    errors = {
        name
        for name in set(chronoline.__all__) - OF_THE_CLIENT
        if issubclass(getattr(chronoline, name), ChronolineError)
    }
    assert set(chronoline.__all__) == OF_THE_CLIENT | errors
    assert set(dir(chronoline)) >= set(chronoline.__all__)
    assert all(
        getattr(chronoline, name) is getattr(chronoline.client, name) for name in OF_THE_CLIENT
    )
    assert not hasattr(chronoline, "open_store")


def test_every_exported_name_exists() -> None:
    for module in (chronoline, chronoline.client, chronoline.store):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_one_error_is_one_class_in_both_modules() -> None:
    shared = set(chronoline.__all__) & set(chronoline.store.__all__) - {"Lease", "Message"}
    assert "Refused" in shared
    assert all(getattr(chronoline, name) is getattr(chronoline.store, name) for name in shared)
