"""The generated Python matches the .proto, and the .proto matches the core."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import chronoline.wire.v1.chronoline_pb2 as pb
from chronoline.core.topic import TopicSettings
from chronoline.wire.codec import settings_from_wire, settings_to_wire

_ROOT = Path(__file__).parents[2]
_PROTO = Path("chronoline/wire/v1/chronoline.proto")


def test_generated_python_matches_the_proto(tmp_path: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-I", "."),
            *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(_PROTO)),
        ],
        cwd=_ROOT,
        check=True,
    )
    for name in ("chronoline_pb2.py", "chronoline_pb2.pyi"):
        made = (tmp_path / _PROTO.parent / name).read_text("utf-8")
        assert made == (_ROOT / _PROTO.parent / name).read_text("utf-8"), "run `make proto`"


def test_oldest_allowed_protobuf_runs_the_generated_python() -> None:
    made = (_ROOT / _PROTO.parent / "chronoline_pb2.py").read_text("utf-8")
    of_compiler = re.search(r"Protobuf Python Version: (.*)", made)
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert of_compiler
    assert f"protobuf>={of_compiler[1]}" in project["dependencies"]


def test_every_setting_of_a_topic_travels() -> None:
    settings = TopicSettings(
        buckets=7,
        window_ms=11,
        default_lease_ms=1_300,
        max_attempts=3,
        max_lateness_ms=17,
        dedupe_ms=0,
        dead_letters=False,
        largest_body_bytes=19,
        target="https://example.com/",
    )
    assert settings_from_wire(settings_to_wire(settings)) == settings
    assert settings_from_wire(settings_to_wire(TopicSettings())) == TopicSettings()
    assert settings_from_wire(pb.TopicSettings()) == TopicSettings()
