"""`chronoline up --roles timers`, alone and with `--nodes`."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.node.local_cluster import run_cluster
from chronoline.node.process import run_node
from chronoline.node.settings import NodeSettings
from chronoline.runtime.child_process import LineProcess, free_addresses
from tests.certificates import make_certificate
from tests.cli.command import Command
from tests.deadline import run_scene, until
from tests.node.cluster_process import ClusterProcess, cluster_process, make
from tests.node.processes import COMMAND, call, environment, started


def test_commands_of_the_banner_work(tmp_path: Path) -> None:
    address, at = free_addresses(2)
    port = at.rpartition(":")[2]
    with started(tmp_path, "--roles=timers", f"--timers={address}") as node:
        assert node.stdout
        banner = ""
        while "curl" not in banner:
            banner += node.stdout.readline()
        assert f"timers  http://{address} " in banner
        assert "calls   the public internet, and 127.0.0.0/8, ::1/128" in banner
        assert "chronoline timers listen 9000" in banner
        assert f"curl -si http://{address}/timers -d '" in banner
        listen = [*COMMAND, "timers", "listen", port]
        with LineProcess(listen, environment=environment()) as receiver:
            assert f"http://127.0.0.1:{port}/" in receiver.read_line()
            make(address, interval_s=0.01, uri=f"http://127.0.0.1:{port}/pop")
            shown = receiver.read_line()
            assert re.fullmatch(r"[0-9:.]{12}  /pop  sequence 1  hello", shown)
            command = Command(address)
            while command.json("timers", "list"):  # it is shown before it is answered
                pass
            receiver.send_signal(signal.SIGINT)
            assert receiver.wait() == 0
        # A token is needed from now on.
        command.token = call(tmp_path, "token", "create", "me").stdout.strip()
        assert command.json("timers", "list") == []
        command.token = ""
        assert "--token-file or in CHRONOLINE_TOKEN" in command.refusal("timers", "list")
        node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """One cluster for the tests that leave it unchanged."""
    with cluster_process(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_banner_lists_the_nodes(cluster: ClusterProcess) -> None:
    assert cluster.banner.startswith("3 nodes for timers. Ctrl-C stops them all.\n")
    for address in cluster.addresses:
        assert re.search(rf"  timers  http://{address}   process [0-9]+\n", cluster.banner)
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
    assert f"chronoline timers nodes --address {cluster.addresses[0]}\n" in cluster.banner
    assert f"  list    {cluster.nodes.nodes_file}\n" in cluster.banner
    assert "  calls   the public internet, and 127.0.0.0/8, ::1/128   (URLs" in cluster.banner


def test_signals_during_the_start_end_no_node(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    options = ["--roles=timers", "--nodes=1", f"--timers={address}", "--data=here"]
    with started(tmp_path, *options) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout
        assert process.stdout.readline() == "1 node for timers. Ctrl-C stops it.\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_stop_interrupts_the_start_of_a_node(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # a peer that takes requests, and no more
        peer = f"127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "nodes.toml").write_text(f'staying = ["{address}", "{peer}"]')
        given = ["--roles=timers", f"--timers={address}", "--set=replication.nodes=nodes.toml"]
        with started(tmp_path, *given) as process:
            asked, _ = silent.accept()
            with asked:
                process.send_signal(signal.SIGTERM)
                said, _ = process.communicate(timeout=60)
            assert (process.returncode, said) == (0, "")


def test_nodes_end_with_their_parent(tmp_path: Path) -> None:
    with cluster_process(tmp_path) as cluster:
        pids = [int(each) for each in re.findall(r"process ([0-9]+)", cluster.banner)]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        cluster.process.kill()
        cluster.process.communicate(timeout=60)
        ends = [Path(f"/proc/{pid}/stat") for pid in pids]

        async def scene() -> None:
            await until(lambda: all(_has_ended(each) for each in ends))

        run_scene(scene)


def _has_ended(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_dead_node_is_reported_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to every process. The settings apply to each node."""
    (tmp_path / "node.toml").write_text('[tags]\nRack_1 = "x"\n[callbacks]\nattempts = 9\n')
    given = ["--config=node.toml", "--set=replication.most_timers=3", "--insecure"]
    with cluster_process(tmp_path, *given) as cluster:
        pids = [int(each) for each in re.findall(r"process ([0-9]+)", cluster.banner)]
        assert len(pids) == len(cluster.addresses)
        os.kill(pids[1], signal.SIGKILL)
        assert cluster.process.stderr
        lines = iter(cluster.process.stderr.readline, "")
        ended = f"node {cluster.addresses[1]} ended with -9; the others continue\n"
        assert ended in lines
        cluster.make(0)
        with pytest.raises(HTTPError, match="503"):
            _fill(cluster)
        os.killpg(cluster.process.pid, signal.SIGINT)
        _, rest = cluster.process.communicate(timeout=60)
        assert cluster.process.returncode == 0
        ports = {each.rpartition(":")[2] for each in cluster.addresses}
        assert {re.split(r"[\[\]]", line)[1] for line in rest.splitlines()} <= ports, rest
        for address in cluster.addresses:
            socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


def _fill(cluster: ClusterProcess) -> None:
    for _ in range(30):
        cluster.make()


def _settings(folder: Path, timers: str, **flags: str) -> NodeSettings:
    given = {"data": str(folder), "roles": "timers", "timers": timers, **flags}
    return NodeSettings.load(None, {}, given)


def _refused(folder: Path, nodes: int | None, flags: dict[str, str]) -> str:
    """Start nodes that are refused; returns the error text."""
    with pytest.raises(InvalidInput) as caught:
        _run(_settings(folder, **{"timers": "127.0.0.1:1024", **flags}), nodes)
    assert list(folder.glob("node-?")) == []
    return str(caught.value)


def _run(settings: NodeSettings, nodes: int | None) -> None:
    if nodes is None:
        run_node(settings)
    else:
        run_cluster(settings, nodes)


@pytest.mark.parametrize(
    ("nodes", "flags", "words"),
    [
        (3, {"roles": "overseer,carrier"}, "add --roles timers"),
        (0, {}, "--nodes takes 1 to 16, not 0"),
        (17, {}, "--nodes takes 1 to 16, not 17"),
        (2, {"timers": "127.0.0.1:0"}, "needs a port to count from"),
        (2, {"timers": "127.0.0.1:65535"}, "not 2 ports from 65535 on"),
        (2, {"replication.nodes": "x"}, "leave replication.nodes out"),
        (2, {"timers": "0.0.0.0:40000"}, "0.0.0.0"),
        (None, {"timers": "127.0.0.1:0", "replication.nodes": "x"}, "'x' cannot be read"),
        (None, {"callbacks.allow": "10.0.0.0/99"}, "callbacks.allow"),
    ],
)
def test_bad_settings_are_refused(
    tmp_path: Path, nodes: int | None, flags: dict[str, str], words: str
) -> None:
    assert words in _refused(tmp_path, nodes, flags)


def test_taken_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        timers = {"timers": f"127.0.0.1:{port - 1}"}
        assert " is taken, perhaps by another node" in _refused(tmp_path, 2, timers)
        said = Command("").refusal("timers", "listen", str(port))
        assert said.startswith(f"127.0.0.1:{port} cannot be listened at: ")


def test_bad_certificate_or_tokens_prevent_the_start(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = {"timers": "127.0.0.1:0", "tls_certificate": str(certificate), "tls_key": str(key)}
    assert "no certificate" in _refused(tmp_path / "a", None, {**tls, "replication.ca": str(key)})
    (tmp_path / "tokens.json").write_text("{")
    assert "cannot be read" in _refused(tmp_path, None, tls)


def test_folder_with_timers_of_another_layout_is_refused(tmp_path: Path) -> None:
    alone, of_several, first = tmp_path / "alone", tmp_path / "several", free_addresses(1)[0]
    for folder, words in (
        (alone, "has timers of a node that was started without --nodes"),
        (of_several / "node-12", "has timers of 12 nodes"),
    ):
        with started(tmp_path, "--roles=timers", f"--timers={first}", f"--data={folder}") as node:
            assert node.stdout
            while "curl" not in node.stdout.readline():
                pass
            make(first, interval_s=3_600, uri="http://127.0.0.1:9/")
            node.send_signal(signal.SIGTERM)
            node.communicate(timeout=60)
        with pytest.raises(InvalidInput, match=words):
            _run(_settings(folder.parent if folder.name == "node-12" else folder, first), 1)


def test_folder_of_running_nodes_is_left_alone(cluster: ClusterProcess) -> None:
    listed = cluster.nodes.nodes_file.read_text()
    data = cluster.nodes.nodes_file.parent
    timers = f"--timers={free_addresses(3)[0]}"
    again = call(data, "up", "--roles=timers", "--nodes=3", f"--data={data}", timers)
    assert again.returncode == 1
    assert "another process has" in again.stderr
    assert cluster.nodes.nodes_file.read_text() == listed


def test_data_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/below"):
        for command in (["up", "--roles=timers"], ["token", "create", "x"]):
            refused = call(tmp_path, *command, f"--data={folder}")
            assert refused.returncode == 1
            assert "must be a folder" in refused.stderr
            assert "Traceback" not in refused.stderr


def test_several_nodes_refuse_tokens(tmp_path: Path) -> None:
    assert call(tmp_path, "token", "create", "me", "--data=.").returncode == 0
    first = {"timers": free_addresses(1)[0]}
    assert "tokens.json has tokens" in _refused(tmp_path, 1, first)
