"""`chronoline pipe`, with good and with bad settings; the example for Kafka runs as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import pyspark
import pytest
from typer.testing import CliRunner, Result

from chronoline.cli.pipe import app
from chronoline.core.errors import InvalidInput
from chronoline.log import Log
from chronoline.pipe.kafka import KafkaTopic
from chronoline.pipe.lane_tasks import lane_tasks
from chronoline.runtime.child_process import Server
from chronoline.stores.factory import open_store
from chronoline.stores.members import pipe_group
from chronoline.testing.postgres import PostgresServer
from tests.spark.environment import environment
from tests.spark.pipes.child import Child
from tests.spark.pipes.places import OnServers, numbers
from tests.spark.pipes.scene import (
    HOUR_MS,
    Scene,
    now_ms,
    over,
    spread,
    until,
)

pytestmark = pytest.mark.timeout(600)

EXAMPLES = Path(__file__).parents[3] / "examples"


def pipe(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", **env})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "name: is missing; name the pipe"),
        (
            ["--set=hold=1s", "--input=in@x"],
            "hold (flag hold): is no setting; did you mean hold_ms?",
        ),
        (["--name=p", "--input=in@x", "--output=out@x", "--set=input.topc=y"], "topc"),
        (["--input", "in"], "'in' names no topic: kafka://HOST:PORT,HOST:PORT/TOPIC"),
        (["--input", "kafka://in"], "is not of the form kafka://HOST:PORT,HOST:PORT/TOPIC"),
        (["--set", "hold_ms"], "--set takes NAME=VALUE, not 'hold_ms'"),
        (["--config", "nowhere.toml"], "the settings 'nowhere.toml' cannot be read"),
        (
            [
                *("--name=p", "--input=in@x", "--output=out@x", "--store=sqlite:///pipe.db"),
                "--set=spark.master=spark://elsewhere:7077",
            ],
            "this one: input.log, output.log, store. Use postgresql:// for the store",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_bad_settings_are_reported_before_the_start(
    command: str, settings: list[str], said: str
) -> None:
    answer = pipe(command, *settings)
    assert isinstance(answer.exception, InvalidInput), answer.output
    assert said in str(answer.exception)


def test_stop_needs_only_name_and_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/pipe.db"
    with open_store(url) as store:
        topic = store.create_topic("p", now_ms=now_ms())
        store.beat(pipe_group(topic), "node", until_ms=now_ms() + 60_000, now_ms=now_ms())
        answer = pipe("stop", "--name=p", f"--store={url}")
        assert answer.stdout == "asked 1 process to stop\n", answer.exception
        assert [each.stopping for each in store.members(pipe_group(topic))] == [True]


def test_check_reports_every_problem_with_advice(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaTopic.__init__, "__kwdefaults__", {"timeout_s": 1.0})
    with Log((tmp_path / "log").as_uri()) as log:
        log.create_topic("in", partitions=3)
    database = postgres_server.url("nowhere")
    settings = [
        *("--name=p", f"--store={database}", f"--input=in@{tmp_path}/log"),
        *(f"--output=out@{tmp_path}/log", "--dead-letters=kafka://127.0.0.1:1/dead"),
    ]
    checked = pipe("check", *settings, JAVA_HOME=str(tmp_path))
    assert checked.exit_code == 1, checked.output
    lines = checked.stdout.splitlines()
    assert lines[0] == "p: in (log) → postgresql → out (log)"
    assert lines[1].startswith("✗ store: ")
    assert lines[2] == "✓ input: 'in' has 3 partitions"
    assert lines[3].startswith("✗ output: ")
    assert lines[4].startswith("✗ dead letters: Kafka at 127.0.0.1:1 cannot be asked about 'dead'")
    assert lines[5].startswith("✗ Java: Spark needs Java 17 or newer")
    assert lines[6:] == ["✗ Spark: not tried: it needs Java"]


class SparkServer(Server):
    """A part of a standalone cluster."""

    name = "Spark"

    def __init__(self, folder: Path, *arguments: str, ready: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._ready = ready
        self._log = folder / f"spark-{next(numbers)}.log"
        super().__init__()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def _command(self) -> list[str | Path]:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        part, *others = self._arguments
        port = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        return [spark_class, f"org.apache.spark.deploy.{part}", *port, *others]

    def _options(self) -> dict[str, Any]:
        memory = {"SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
        return {"env": environment(self._folder, SPARK_WORKER_DIR=str(self._folder), **memory)}

    def _open_output(self) -> IO[bytes]:
        return self._log.open("a+b")

    def _is_ready(self) -> bool:
        return self._ready in self._log.read_text(errors="replace")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone Spark master, whose worker has room for two executors."""
    folder = tmp_path_factory.mktemp("cluster")
    ready = "I have been elected leader"
    with SparkServer(folder, "master.Master", ready=ready) as master:
        worker = SparkServer(
            *(folder, "worker.Worker", "--cores", "4", "--memory", "1200m", master.url),
            ready="Successfully registered with master",
        )
        with worker:
            yield master.url


@pytest.mark.usefixtures("lent_session")
def test_kafka_example_is_submitted_to_a_standalone_cluster(
    tmp_path: Path, servers: OnServers, master: str
) -> None:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = {"executor.cores": "2", "executor.memory": "512m", "driver.host": "127.0.0.1"}
    options = [f"--conf=spark.{name}={value}" for name, value in settings.items()]
    program = [str(submit), "--master", master, *options, str(EXAMPLES / "pipe_submit.py")]
    with Scene(servers) as scene:
        kafka = scene.flags()["input"]["kafka"]["bootstrap.servers"]
        changed = {
            "NAME": scene.name,
            "STORE": servers.store,
            "INPUT__TOPIC": scene.input,
            "OUTPUT__TOPIC": scene.output,
            "DEAD_LETTERS__TOPIC": scene.dead_letters,
            "INPUT__KAFKA__BOOTSTRAP_SERVERS": kafka,
            "OUTPUT__KAFKA__BOOTSTRAP_SERVERS": kafka,
            "DEAD_LETTERS__KAFKA__BOOTSTRAP_SERVERS": kafka,
        }
        env = {f"CHRONOLINE_PIPE_{name}": value for name, value in changed.items()}
        config = ["--config", str(EXAMPLES / "pipe-kafka.toml")]
        checked = pipe("check", *config, **env)
        assert checked.exit_code == 0, checked.output
        assert "slots, of which the pipe needs 3" in checked.stdout
        with Child(tmp_path, "run", *config, program=program, **env) as child:
            node = child.wait_running()
            wrong = scene.send(None, value=b"who am I")
            dues_ms = [now_ms() + 10 * number for number in range(300)]
            scene.wait_out(scene.send_all(spread(scene, "m", dues_ms)))
            until(lambda: wrong in scene.relayed(), "the malformed one is a dead letter")
            assert not scene.account()
            processes = {
                each.process.rpartition(":")[2] for each in lane_tasks(scene.store, scene.topic)
            }
            assert processes <= {str(each.pid) for each in _executors()}

            # Messages that are far off are left as they are, and none is held.
            far = scene.send_all(spread(scene, "far", [now_ms() + HOUR_MS] * 10))
            soon = scene.send_all(spread(scene, "soon", over(3_000, 300)))
            scene.wait_out(soon[:50])
            assert pipe("stop", "--name", scene.name, "--store", servers.store).exit_code == 0
            assert child.wait() == 0, child.log
            lines = child.log.splitlines()
        assert not [line for line in lines if " INFO " in line and "chronoline" not in line][50:]
        assert scene.held() == 0
        assert set(far) <= set(scene.waiting())
        assert scene.holders() == {None}
        assert node not in [each.name for each in scene.status().nodes]
        scene.account()


def _executors() -> Iterator[psutil.Process]:
    """The processes of executors, and of their tasks."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                yield from process.children(recursive=True)
