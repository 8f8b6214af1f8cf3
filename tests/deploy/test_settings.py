"""The commands, flags and settings that the files of `deploy/` name are those of this version."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from chronoline.broker.tokens import TokenRecord
from chronoline.cli.main import command_line
from chronoline.core.errors import InvalidInput
from chronoline.core.rights import Rights
from chronoline.node.settings import NodeSettings
from chronoline.pipe.settings import PipeSettings
from tests.deploy.tools import COMPOSE, DEPLOY, ROOT, filled, manifests, read
from tests.examples.command_lines import parse

_SECRETS = {
    "POSTGRES_PASSWORD": "secret",
    "GRAFANA_PASSWORD": "secret",
    **dict.fromkeys(
        (
            *("PYTHON_IMAGE", "DEBIAN_IMAGE", "POSTGRES_IMAGE"),
            *("KAFKA_IMAGE", "PROMETHEUS_IMAGE", "GRAFANA_IMAGE"),
        ),
        "image",
    ),
}
_OPT = "/opt/chronoline/bin/chronoline"


class Started(NamedTuple):
    """A command of ours with its environment, and the folder that its `/etc/chronoline` is here."""

    name: str
    arguments: Sequence[str]
    environ: Mapping[str, str]
    etc: Path | None = None

    @property
    def is_pipe(self) -> bool:
        return self.arguments[0] == "pipe"

    def load(self) -> NodeSettings | PipeSettings:
        """The settings that the process would have, by its flags, its environment and its file."""
        flags = parse(self.arguments)
        config = flags.pop("config", None)
        if config is not None:
            assert self.etc is not None
            config = self.etc / Path(config).name
        given = {name: value for name, value in flags.items() if value}
        kind = PipeSettings if self.is_pipe else NodeSettings
        return kind.load(config, self.environ, given)


def stages() -> dict[str, tuple[dict[str, str], list[str]]]:
    """The environment and the command of each stage of the Dockerfile, from its base too."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    found: dict[str, tuple[dict[str, str], list[str]]] = {}
    for part in re.split(r"^FROM ", text, flags=re.M)[1:]:
        head, *lines = part.splitlines()
        base, _, name = head.split()
        environ, command = found.get(base, ({}, []))
        environ, command = dict(environ), list(command)
        for line in lines:
            if line.startswith("ENV "):
                environ |= dict(each.split("=", 1) for each in shlex.split(line[4:]))
            elif line.startswith("CMD "):
                command = read_list(line[4:])
        found[name] = environ, command
    return found


def read_list(text: str) -> list[str]:
    return [str(each) for each in json.loads(text)]


def of_images() -> Iterator[Started]:
    for name in ("node", "pipe"):
        environ, command = stages()[name]
        if name == "pipe":  # an image alone does not know its topics
            environ |= {
                f"CHRONOLINE_PIPE_{each}": value
                for each, value in {
                    "NAME": "p",
                    "INPUT": '{topic = "a", log = "file:///l"}',
                    "OUTPUT": '{topic = "b", log = "file:///l"}',
                }.items()
            }
        yield Started(f"image {name}", command, environ)


def of_compose() -> Iterator[Started]:
    images = stages()
    for name, service in filled(read(COMPOSE), _SECRETS)["services"].items():
        build = service.get("build", {})
        if "target" in build:
            environ, command = images[build["target"]]
            yield Started(
                f"compose {name}",
                service.get("command", command),
                {**environ, **service["environment"]},
            )


def of_kubernetes() -> Iterator[Started]:
    secrets = {
        each["metadata"]["name"]: each["stringData"] for each in manifests("secrets.example.yaml")
    }
    images = {"chronoline": "node", "chronoline-pipe": "pipe"}
    fields = {"metadata.name": "chronoline-0", "metadata.namespace": "prod"}
    for pod in (each["spec"]["template"]["spec"] for each in workloads()):
        (container,) = pod["containers"]
        environ = dict(stages()[images[container["image"]]][0])
        for variable in container["env"]:
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                value = secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
            elif "fieldRef" in source:
                value = fields[source["fieldRef"]["fieldPath"]]
            else:
                value = expanded(variable["value"], environ)
            environ[variable["name"]] = value
        yield Started(
            f"kubernetes {container['name']}", container["args"], environ, DEPLOY / "kubernetes"
        )


def expanded(value: str, environ: Mapping[str, str]) -> str:
    """A value with the earlier variables that it names, as `$(NAME)`."""
    return re.sub(r"\$\((\w+)\)", lambda at: environ[at[1]], value)


def workloads() -> list[dict[str, Any]]:
    return [
        each
        for each in manifests("nodes.yaml", "pipe.yaml")
        if each["kind"] in ("StatefulSet", "Deployment")
    ]


def of_systemd() -> Iterator[Started]:
    folders = {"chronoline": DEPLOY / "systemd", "chronoline-pipe": DEPLOY / "kubernetes"}
    for name, etc in folders.items():
        unit = (DEPLOY / "systemd" / f"{name}.service").read_text("utf-8")
        (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)
        program, *arguments = shlex.split(line)
        assert program == _OPT
        kind = "PIPE" if name.endswith("pipe") else "NODE"
        store = {f"CHRONOLINE_{kind}_STORE": "postgresql://u:secret@db.example/chronoline"}
        yield Started(f"systemd {name}", arguments, store, etc)


STARTED = [*of_images(), *of_compose(), *of_kubernetes(), *of_systemd()]


def test_every_place_is_here() -> None:
    assert [each.name for each in STARTED] == [
        "image node",
        "image pipe",
        *(f"compose {each}" for each in ("node-1", "node-2", "node-3", "pipe")),
        "kubernetes node",
        "kubernetes pipe",
        "systemd chronoline",
        "systemd chronoline-pipe",
    ]


@pytest.mark.parametrize("started", STARTED, ids=lambda each: each.name)
def test_settings_are_accepted(started: Started) -> None:
    settings = started.load()
    if not started.name.startswith("image"):
        assert settings.store.startswith("postgresql://")
    if isinstance(settings, NodeSettings) and not started.name.startswith("image"):
        assert settings.is_clustered
        assert settings.name is not None
        # One machine reaches the containers by its own loopback.
        assert bool(settings.advertise_warning) == started.name.startswith("compose")
        has_tls = settings.tls_certificate is not None and settings.tls_key is not None
        assert has_tls != settings.insecure
        assert settings.insecure == started.name.startswith("compose")


def test_renamed_setting_or_flag_is_noticed() -> None:
    node = next(each for each in STARTED if each.name == "compose node-1")
    with pytest.raises(InvalidInput, match="CHRONOLINE_NODE_ADVERTISED"):
        node._replace(environ={**node.environ, "CHRONOLINE_NODE_ADVERTISED": "x:1"}).load()
    with pytest.raises(ValueError, match="No such option"):
        node._replace(arguments=["up", "--store-url", "x"]).load()
    with pytest.raises(ValueError, match="no command"):
        node._replace(arguments=["serve"]).load()


def test_brokers_of_the_compose_file_differ() -> None:
    nodes = [each.environ for each in STARTED if each.name.startswith("compose node")]
    for name in ("CHRONOLINE_NODE_NAME", "CHRONOLINE_NODE_ADVERTISE"):
        assert len({each[name] for each in nodes}) == 3


def test_ports_are_those_of_the_settings() -> None:
    services = filled(read(COMPOSE), _SECRETS)["services"]
    for name in ("node-1", "node-2", "node-3"):
        environ = services[name]["environment"]
        published = dict(each.rsplit(":", 1) for each in services[name]["ports"])
        grpc, http = (environ[f"CHRONOLINE_NODE_{each}"].split(":")[1] for each in ("GRPC", "HTTP"))
        assert published[environ["CHRONOLINE_NODE_ADVERTISE"]] == grpc
        assert http in published.values()
    targets = [
        target
        for job in read(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
        for target in job["static_configs"][0]["targets"]
    ]
    assert targets == ["node-1:7480", "node-2:7480", "node-3:7480", "pipe:9108"]
    assert services["pipe"]["environment"]["CHRONOLINE_PIPE_METRICS"] == "0.0.0.0:9108"
    for service in services.values():
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:"), "a port is published to the network"


def test_probes_and_services_reach_the_ports() -> None:
    paths = set()
    for workload in workloads():
        pod = workload["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            (kind,) = container[probe].keys() & {"httpGet", "tcpSocket"}
            assert container[probe][kind]["port"] in ports
            paths.add(container[probe][kind].get("path"))
        labels = pod["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"] == labels
        own = [
            each
            for each in manifests("nodes.yaml", "pipe.yaml")
            if each["kind"] == "Service" and each["spec"]["selector"] == labels
        ]
        assert own
        assert all(port["targetPort"] in ports for each in own for port in each["spec"]["ports"])
        assert not pod["spec"]["enableServiceLinks"], "variables of services look like settings"
        mounts = {each["name"] for each in container["volumeMounts"]}
        assert mounts == {each["name"] for each in pod["spec"]["volumes"]}
    routes = (ROOT / "chronoline/broker/http/admin_routes.py").read_text("utf-8")
    assert paths == {"/livez", "/readyz", "/metrics", None}
    assert all(f'"{path}"' in routes for path in paths if path)


def test_example_secret_is_a_file_of_tokens() -> None:
    (tokens,) = (
        each["stringData"]["tokens.json"]
        for each in manifests("secrets.example.yaml")
        if each["metadata"]["name"] == "chronoline-tokens"
    )
    ((name, stored),) = json.loads(tokens).items()
    record = TokenRecord.from_json(name, stored)
    assert record.rights == Rights.parse(["observe"])
    node = next(each for each in STARTED if each.name == "kubernetes node").load()
    assert isinstance(node, NodeSettings)
    (mount,) = (
        each["mountPath"]
        for each in workloads()[0]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        if each["name"] == "tokens"
    )
    assert str(node.tokens_file) == f"{mount}/tokens.json"


def test_kustomization_names_all_files_and_images() -> None:
    found = read(DEPLOY / "kubernetes" / "kustomization.yaml")
    beside = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")}
    assert {*found["resources"], "kustomization.yaml", "secrets.example.yaml"} == beside
    images = {
        container["image"]
        for each in workloads()
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert {each["name"] for each in found["images"]} == images
    (made,) = found["configMapGenerator"]
    volumes = workloads()[1]["spec"]["template"]["spec"]["volumes"]
    assert {"name": made["name"]} in [each.get("configMap") for each in volumes]
    assert all((DEPLOY / "kubernetes" / each).is_file() for each in made["files"])


def test_alerts_name_commands_that_exist() -> None:
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
    named = set(re.findall(r"`chronoline ([a-z ]+)`", text))
    assert len(named) > 4
    for each in named:
        command: Any = typer.main.get_command(command_line())
        for word in each.split():
            assert word in command.commands, f"there is no command {each!r}"
            command = command.commands[word]


def test_prometheus_asks_by_names_that_the_containers_allow() -> None:
    started = {each.name: each.load() for each in of_compose()}
    jobs = read(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    targets = [
        target for job in jobs for each in job["static_configs"] for target in each["targets"]
    ]
    assert targets
    for target in targets:
        service = target.partition(":")[0]
        [name] = [name for name in started if name.endswith(service)]
        assert service in started[name].allowed_hosts, target
