"""A node as a process: what it says, how it ends, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from chronoline import __version__
from chronoline.client import Client
from tests.certificates import make_certificate
from tests.node.processes import COMMAND, FREE, call, environment, refusal, run, started, up

SIGNALS = [signal.SIGTERM, signal.SIGINT]


def test_broker_loads_neither_timers_nor_their_http_stack() -> None:
    loaded = (
        "import sys, chronoline.node.process, chronoline.node.broker_service\n"
        "print({'aiohttp', 'chronoline.node.timer_service'} & sys.modules.keys())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], check=True, capture_output=True, text=True
    )
    assert done.stdout == "set()\n"


def test_input_that_has_ended_stops_the_node(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "up", "--quiet", "--until-eof", *FREE],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


# A new user


def test_commands_of_the_banner_work(tmp_path: Path) -> None:
    with started(tmp_path, *FREE) as node:
        assert node.stdout
        banner: list[str] = []
        while not banner or "receive" not in banner[-1]:
            banner.append(node.stdout.readline())
        text = "".join(banner)
        assert f"Chronoline {__version__} is up. Ctrl-C stops it." in text
        assert f"store   sqlite:///{tmp_path}/chronoline-data/timeline.db" in text
        assert "access  no TLS, no token is needed" in text
        assert re.search(r"HTTP    http://127\.0\.0\.1:\d+ ", text)
        address = re.search(r"gRPC    (127\.0\.0\.1:\d+)", text)
        assert address
        assert f"export CHRONOLINE_ADDRESS={address[1]}\n" in text
        commands = [line.split()[1:] for line in banner if line.startswith("  chronoline ")]
        assert commands == [
            ["topic", "create", "reminders"],
            ["send", "reminders", "--in", "5s", "--body", "hello"],
            ["receive", "reminders"],
        ]
        env = {"CHRONOLINE_ADDRESS": address[1]}
        for words in (commands[0], ["send", "reminders", "--in", "1s", "--body", "hello"]):
            assert run(tmp_path, *words, **env).returncode == 0
        received = run(tmp_path, *commands[2], **env)
        assert (received.returncode, received.stdout) == (0, "hello\n")
        assert " late\n" in received.stderr
        drawn = run(tmp_path, "forecast", "reminders", "--from=-1h", "--step=1h", **env)
        assert "reminders: 1 message from" in drawn.stdout
        node.send_signal(signal.SIGINT)
        _, err = node.communicate()
        assert node.returncode == 0
    assert [line.split(": ", 1)[1] for line in err.splitlines() if "audit" not in line] == [
        "stopping: clients are disconnected",
        "stopped",
    ]


def test_sent_message_survives_a_restart(tmp_path: Path) -> None:
    with up(tmp_path) as node:
        call(tmp_path, "topic", "create", "t", CHRONOLINE_ADDRESS=node.grpc)
        call(tmp_path, "send", "t", "--body=hello", CHRONOLINE_ADDRESS=node.grpc)
        node.process.kill()
    with up(tmp_path) as node:
        got = call(tmp_path, "receive", "t", "--ack", CHRONOLINE_ADDRESS=node.grpc)
        assert got.stdout == "hello\n"


# Logs and the end


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_stops_the_node_and_is_logged(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path) as node:
        assert node.started["action"] == "started"
        assert node.started["store"] == f"sqlite:///{tmp_path}/chronoline-data/timeline.db"
        with Client(node.grpc) as client:
            client.create_topic("t")
            client.send("t", b"hello", delay=0.1)
            leases = client.consume("t")
            assert next(iter(leases)).body == b"hello"
            code, lines = node.end(number)
    assert code == 0
    assert [line["action"] for line in lines if "action" in line][-2:] == ["stopping", "stopped"]
    assert all(line.keys() >= {"ts", "level", "logger", "message"} for line in lines)


@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal_ends_the_node_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path) as node:
        at = urlsplit(node.http)
        with socket.create_connection((at.hostname, at.port)) as slow:
            # Half a request, for whose other half a node that stops waits for a while.
            slow.sendall(
                b"POST /v1/topics HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"content-type: application/json\r\ncontent-length: 9\r\n\r\n{"
            )
            assert urlopen(f"{node.http}/livez").status == 200
            node.process.send_signal(signal.SIGTERM)
            assert node.log()["action"] == "stopping"
            code, _ = node.end(number)
    assert code == -number


def test_node_serves_http(tmp_path: Path) -> None:
    given = ["--set=cluster=c1", "--set=tags.rack=r1"]
    with up(tmp_path, *given) as node:
        with urlopen(f"{node.http}/readyz") as ready:
            assert json.load(ready) == {"status": "ready"}
        with urlopen(f"{node.http}/metrics") as metrics:
            text = metrics.read().decode()
    assert 'network_broker_tcp_connections_total{cluster="c1",rack="r1"}' in text


def test_second_node_on_a_store_is_warned_of_the_first(tmp_path: Path) -> None:
    with (
        up(tmp_path),
        started(tmp_path, *FREE, "--log-format=json") as second,
    ):
        assert second.stderr
        assert json.loads(second.stderr.readline())["action"] == "shared_store"


# Refused starts


def test_all_taken_addresses_are_reported_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        grpc, http = (f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other))
        said = refusal(tmp_path, "up", f"--grpc={grpc}", f"--http={http}")
    assert said.count("is taken, perhaps by another node") == 2


@pytest.mark.parametrize("flag", ["--grpc", "--http"])
def test_taken_address_is_reported(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(tmp_path, "up", *FREE, f"{flag}={address}")
    assert said == (f"{address} is taken, perhaps by another node; name another address by {flag}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--grpc=192.0.2.1:0", "--insecure"], "192.0.2.1:0 cannot be listened at"),
        (["--grpc=no.invalid:0", "--insecure"], "no.invalid:0 cannot be listened at"),
        (["--store=mysql://u@h"], "store (flag store): is not the URL of a store"),
        (["--store=postgresql://u@127.0.0.1:1/d"], "PostgreSQL cannot be reached"),
        (["--store=postgresql://u:hidden@h/d"], "or into CHRONOLINE_NODE_STORE"),
        (["--set=store=postgresql://h/d?password=hidden"], "or into CHRONOLINE_NODE_STORE"),
        (["--set=callbacks.secret=hidden"], "or into CHRONOLINE_NODE_CALLBACKS__SECRET"),
        (["--data=/dev/null/x"], "must be a folder, and '/dev/null' is none"),
        (["--config=none.toml"], "the settings 'none.toml' cannot be read"),
        (["--tls-certificate=a", "--tls-key=b"], "'a' and 'b' are not a certificate and its key"),
        (["--set=limits=1"], "--set limits=… names a table; name a setting in it"),
        (["--set=x"], "--set takes NAME=VALUE, not 'x'"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_bad_settings_are_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    said = refusal(tmp_path, "up", *FREE, *arguments)
    assert words in said
    assert "hidden" not in said


def test_public_address_needs_tls_and_a_token(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = [f"--tls-certificate={certificate}", f"--tls-key={key}"]
    for flag in ("--grpc", "--http"):
        given = ["up", *FREE, f"{flag}=0.0.0.0:0"]
        assert "needs TLS (--tls-certificate and --tls-key) and a token" in refusal(
            tmp_path, *given
        )
        assert "needs a token (chronoline token create NAME)" in refusal(tmp_path, *given, *tls)
    with up(tmp_path, "--grpc=0.0.0.0:0", "--insecure", "--http=") as node:
        assert node.grpc.startswith("0.0.0.0:")
        assert "http" not in node.started


def test_revoking_the_last_token_keeps_the_node_closed(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    token = call(tmp_path, "token", "create", "me").stdout
    (tmp_path / "token").write_text(token)
    tls = [f"--tls-certificate={certificate}", f"--tls-key={key}"]
    with up(tmp_path, "--grpc=0.0.0.0:0", *tls) as node:
        assert node.http.startswith("https://")
        ask = ["topic", "list", f"--address=127.0.0.1:{node.grpc.rpartition(':')[2]}"]
        ask += [f"--ca={certificate}"]
        shown = call(tmp_path, *ask, "--token-file=token")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "asks for a token" in refusal(tmp_path, *ask)
        assert call(tmp_path, "token", "revoke", "me").returncode == 0
        assert "asks for a token" in refusal(tmp_path, *ask)
        assert "does not know this token" in refusal(tmp_path, *ask, "--token-file=token")
        code, lines = node.end(signal.SIGTERM)
    assert code == 0
    assert token.strip() not in json.dumps(lines)
