"""The page on deployment: its certificates are made, and are good for the node that it sets up."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chronoline.core.errors import MissingExtra
from tests.conftest import miss
from tests.deploy.tools import ROOT


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder in which the page's openssl commands ran."""
    if shutil.which("openssl") is None:
        miss("the deployment page", MissingExtra("openssl is not installed: apt install openssl"))
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8").replace("\\\n", "")
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", page, re.S)
        if "openssl x509" in block
        for line in block.splitlines()
        if line.startswith(("openssl ", "printf "))
    ]
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.parametrize("name", ["broker-1.example", "localhost", "127.0.0.1"])
def test_certificate_is_good_for_the_names_of_the_node(made: Path, name: str) -> None:
    of_node = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    of_node.load_cert_chain(made / "broker-1.pem", made / "broker-1-key.pem")
    of_client = ssl.create_default_context(cafile=str(made / "authority.pem"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with ThreadPoolExecutor(1) as beside:
        node = beside.submit(of_node.wrap_socket, far, server_side=True)
        with of_client.wrap_socket(near, server_hostname=name) as client:
            assert client.getpeercert()
        node.result().close()
