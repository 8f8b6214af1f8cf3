"""What `import chronoline` brings, and what it does not."""

import subprocess
import sys

import chronoline
import chronoline.client

LAZY = {"AsyncClient", "Client", "Retry", "ToSend", "Worker"}


def test_grpc_is_not_imported_before_the_client_is_used() -> None:
    program = (
        "import sys, chronoline\n"
        "assert 'grpc' not in sys.modules\n"
        "from chronoline import Client\n"
        "assert 'grpc' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_everything_that_is_named_is_there() -> None:
    assert set(chronoline.__all__) >= LAZY
    assert all(hasattr(chronoline, name) for name in chronoline.__all__)
    assert set(dir(chronoline)) >= set(chronoline.__all__)
    assert all(getattr(chronoline, name) is getattr(chronoline.client, name) for name in LAZY)
    assert not hasattr(chronoline, "nothing")
