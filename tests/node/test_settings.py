"""The settings of a node: three sources, checked once, with all that is wrong said at once."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.limits import Limits
from chronoline.broker.tokens import Tokens
from chronoline.core.errors import InvalidInput
from chronoline.node.auth import address_guard
from chronoline.node.settings import (
    BROKER_ROLES,
    CallbacksTable,
    LimitsTable,
    Listener,
    NodeSettings,
    ReplicationTable,
)
from chronoline.runtime.descriptors import Shares
from chronoline.runtime.settings.loader import Origin
from tests.certificates import Authority

ROOT = Path(__file__).parents[2]


def load(**flags: object) -> NodeSettings:
    return NodeSettings.load(None, {}, flags)


def problems(environ: dict[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        NodeSettings.load(None, environ or {}, flags)
    return [line.removeprefix("- ") for line in str(refused.value).splitlines()[1:]]


# Defaults


def test_every_setting_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load()
    assert settings.data == tmp_path / "chronoline-data"
    assert settings.store == f"sqlite:///{tmp_path}/chronoline-data/timeline.db"
    assert settings.tokens_file == tmp_path / "chronoline-data" / "tokens.json"
    assert settings.grpc_listener == ("127.0.0.1", 7400)
    assert settings.http_listener == ("127.0.0.1", 7480)
    assert settings.limits.limits() == Limits()
    assert not settings.insecure
    assert list(tmp_path.iterdir()) == []


def test_default_store_is_in_the_data_folder() -> None:
    assert load(data="/d").store == "sqlite:////d/timeline.db"
    assert load(data="/100%").store == "sqlite:////100%25/timeline.db"
    assert load(data="/d", store="memory:").store == "memory:"
    assert load(data="/d", store="postgresql://h/x").store == "postgresql://h/x"


def test_every_limit_can_be_set() -> None:
    assert list(LimitsTable.model_fields) == [each.name for each in fields(Limits)]
    given = {name: value // 2 for name, value in asdict(Limits()).items()}
    assert load(limits=given).limits.limits() == Limits(**given)


def test_default_connections_and_calls_fit_the_descriptors() -> None:
    assert load().shares(20_000) == Shares(1_000, 1_000)
    few = load().shares(256)
    assert few == Shares(32, 32)
    assert load(http="").shares(256).connections > few.connections
    given = load(limits={"connections": 500}, callbacks={"in_all": 400})
    assert given.shares(256) == Shares(500, 400)
    assert given.shares(256, even_if_set=True) == few


def test_roles_are_parsed_from_a_list() -> None:
    assert load(roles="carrier, overseer").roles == BROKER_ROLES


# Sources


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'grpc = "a:1"\nhttp = "a:2"\ncluster = "file"\n[limits]\nbatch = 1\ncredit = 1\n'
        '[tags]\nrack = "r1"\n'
    )
    environ = {
        "CHRONOLINE_NODE_HTTP": "b:2",
        "CHRONOLINE_NODE_CLUSTER": "variable",
        "CHRONOLINE_NODE_LIMITS__CREDIT": "2",
        "CHRONOLINE_NODE_LIMITS__FRAME_BYTES": "1MiB",
        "CHRONOLINE_NODE_INSECURE": "true",
        "CHRONOLINE_PIPE_NAME": "not ours",
    }
    settings = NodeSettings.load(path, environ, {"cluster": "flag", "patience_ms": "3s"})
    assert (settings.grpc, settings.http, settings.cluster) == ("a:1", "b:2", "flag")
    assert (settings.limits.batch, settings.limits.credit) == (1, 2)
    assert settings.limits.frame_bytes == 1024 * 1024
    assert (settings.patience_ms, settings.insecure, settings.tags) == (3_000, True, {"rack": "r1"})
    assert settings.origin(("grpc",)) == Origin("file", "node.toml")
    assert settings.origin(("http",)) == Origin("variable", "CHRONOLINE_NODE_HTTP")
    assert settings.origin(("cluster",)) == Origin("flag", "cluster")
    assert settings.origin(("limits", "batch")) == Origin("file", "node.toml")
    assert settings.origin(("limits", "connections")) is None
    assert settings.origin(("tags", "rack")) == Origin("file", "node.toml")
    assert settings.origin(("log_level",)) is None


def test_allowed_hosts_are_plain_names() -> None:
    settings = NodeSettings.load(None, {}, {"allowed_hosts": "timers.example,10.0.0.1"})
    assert settings.allowed_hosts == ("timers.example", "10.0.0.1")
    for wrong in ("http://timers.example", "timers.example:7253", "*.example", "a b"):
        with pytest.raises(InvalidInput, match="no name of a host"):
            NodeSettings.load(None, {}, {"allowed_hosts": wrong})


def test_environment_may_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('cluster = "c"\n')
    assert NodeSettings.load(None, {"CHRONOLINE_NODE_CONFIG": str(path)}, {}).cluster == "c"


def test_environment_can_reset_a_setting_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('http = "a:1"\ntls_certificate = "c"\ntls_key = "k"\n')
    empty = {f"CHRONOLINE_NODE_{name}": "" for name in ("HTTP", "TLS_CERTIFICATE", "TLS_KEY")}
    settings = NodeSettings.load(path, empty, {})
    assert settings.http_listener is None
    assert (settings.tls_certificate, settings.tls_key) == (None, None)


# Values


@pytest.mark.parametrize(
    ("address", "listener", "bracketed"),
    [
        ("0.0.0.0:0", ("0.0.0.0", 0), "0.0.0.0"),
        ("[::1]:7400", ("::1", 7400), "[::1]"),
        ("localhost:1", ("localhost", 1), "localhost"),
    ],
)
def test_listener_addresses_are_parsed(
    address: str, listener: tuple[str, int], bracketed: str
) -> None:
    found = load(grpc=address).grpc_listener
    assert found == Listener(*listener)
    assert found.bracketed == bracketed


def test_all_problems_are_reported_at_once() -> None:
    environ = {
        "CHRONOLINE_NODE_GRPG": "x",
        "CHRONOLINE_NODE_LIMITS__BATCH": "0",
        "CHRONOLINE_NODE_INSECURE": "perhaps",
    }
    assert problems(
        environ,
        data="",
        grpc="",
        http="x",
        roles="timer",
        cluster="",
        tags={"topic": "t"},
        log_format="xml",
        patience_ms="5",
    ) == [
        "data (flag data): must be a folder",
        "grpc (flag grpc): '' is no address; write host:port, such as 127.0.0.1:7400",
        "http (flag http): 'x' is no address; write host:port, such as 127.0.0.1:7400",
        "roles (flag roles): 'timer' is no role; there are: overseer, carrier, timers",
        "cluster (flag cluster): the name of a cluster is empty",
        "tags (flag tags): 'topic' is a label that the metrics have already",
        "limits.batch (CHRONOLINE_NODE_LIMITS__BATCH): must be at least 1, not 0",
        "insecure (CHRONOLINE_NODE_INSECURE): must be true or false, not 'perhaps'",
        "log_format (flag log_format): must be 'text' or 'json', not 'xml'",
        "patience_ms (flag patience_ms): must be at least 100, not 5",
        "grpg (CHRONOLINE_NODE_GRPG): is no setting; did you mean grpc?",
    ]


@pytest.mark.parametrize("name", ["cluster", "le", "topic", "node", "tag", "method", "status"])
def test_tag_may_not_be_an_existing_label(name: str) -> None:
    (line,) = problems(tags={name: "x"})
    assert "is a label that the metrics have already" in line


@pytest.mark.parametrize("name", ["9", "a-b", "__x", ""])
def test_tag_must_be_a_valid_label(name: str) -> None:
    (line,) = problems(tags={name: "x"})
    assert "can be no label" in line


_ETCD = {"coordination": "etcd://h1,h2/c", "store": "postgresql://h/x"}


@pytest.mark.parametrize(("role", "other"), [("overseer", "carrier"), ("carrier", "overseer")])
def test_one_role_alone_needs_a_cluster(role: str, other: str) -> None:
    (line,) = problems(roles=f"{role}, timers")
    assert line.startswith(f"roles (flag roles): {role} alone needs another broker as {other}")
    assert load(roles=role, **_ETCD).broker_roles == (role,)


def test_node_has_a_role() -> None:
    (line,) = problems(roles="")
    assert line.startswith("roles (flag roles): a node has a role at least")


@pytest.mark.parametrize(
    ("roles", "broker", "timers"),
    [("timers", False, True), ("timers, carrier, overseer", True, True), (None, True, False)],
)
def test_roles_choose_broker_timers_or_both(roles: str | None, broker: bool, timers: bool) -> None:
    settings = load(roles=roles)
    assert (settings.has_broker, settings.has_timers) == (broker, timers)


def test_broker_of_a_cluster_is_described_by_settings() -> None:
    given = {"name": "b1", "rack": "r1", "advertise": "b1.example:7400", "session_ttl_ms": "5s"}
    settings = load(grpc="0.0.0.0:7400", **_ETCD, **given)
    assert (settings.name, settings.rack, settings.advertise) == (
        "b1",
        "r1",
        "b1.example:7400",
    )
    assert (settings.is_clustered, settings.session_ttl_ms) == (True, 5_000)
    assert not load().is_clustered


@pytest.mark.parametrize(
    ("given", "is_shown"),
    [
        ({}, False),
        (_ETCD, True),
        ({**_ETCD, "grpc": "10.0.0.7:7400"}, False),
        ({**_ETCD, "advertise": "b1.example:7400"}, False),
        ({**_ETCD, "grpc": "10.0.0.7:7400", "advertise": "localhost:7400"}, True),
    ],
    ids=str,
)
def test_broker_of_a_cluster_on_loopback_is_warned(
    given: dict[str, object], is_shown: bool
) -> None:
    settings = load(**{"insecure": True, **given})
    assert ("only clients on this machine" in settings.advertise_warning) is is_shown


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"coordination": "zookeeper://h"},
            "coordination (flag coordination): is not the URL of a",
        ),
        ({**_ETCD, "store": "sqlite:///x"}, "store (flag store): must be PostgreSQL with"),
        ({**_ETCD, "store": "memory:"}, "store (flag store): must be PostgreSQL with"),
        ({**_ETCD, "grpc": "0.0.0.0:7400"}, "advertise: is missing: clients cannot connect to"),
        ({**_ETCD, "grpc": "[::]:7400"}, "advertise: is missing: clients cannot connect to"),
        ({"advertise": "0.0.0.0:7400"}, "advertise (flag advertise): no client can connect to"),
        ({"advertise": "b1"}, "advertise (flag advertise): 'b1' is no address"),
        ({"name": "x" * 1_000}, "name (flag name): "),
        (
            {"session_ttl_ms": "2500ms"},
            "session_ttl_ms (flag session_ttl_ms): must be whole seconds",
        ),
        ({"session_ttl_ms": "1s"}, "session_ttl_ms (flag session_ttl_ms): must be at least 2000"),
        (
            {"session_margin_ms": "2s"},
            "session_margin_ms (flag session_margin_ms): must be less than",
        ),
    ],
)
def test_wrong_membership_is_refused(given: dict[str, object], words: str) -> None:
    (line,) = problems({}, **given)
    assert line.startswith(words)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"tls_key": "k"}, "tls_certificate: is missing; TLS needs it with tls_key"),
        ({"tls_certificate": "c"}, "tls_key: is missing; TLS needs it with tls_certificate"),
        (
            {"http": "127.0.0.1:7400"},
            "http (flag http): is the same address as grpc, 127.0.0.1:7400; name another port",
        ),
        (
            {"roles": "overseer,carrier,timers", "timers": "127.0.0.1:7480"},
            "timers (flag timers): is the same address as http, 127.0.0.1:7480; name another port",
        ),
        (
            {"callbacks.allow": "10.0.0.0/99"},
            "callbacks.allow (flag callbacks.allow): '10.0.0.0/99' is no network; write 10.0.0.0/8 or "
            "fd00::/8",
        ),
        (
            {"callbacks.dead_letters": "foo"},
            "callbacks.dead_letters (flag callbacks.dead_letters): the URI must be http://host/… or "
            "https://host/…",
        ),
        (
            {"limits.ping_timeout_ms": "1999ms"},
            "limits.ping_timeout_ms (flag limits.ping_timeout_ms): must be at least twice ping_interval_ms "
            "(1000), not 1999: a client that pings in time would pass for gone",
        ),
    ],
)
def test_conflicting_settings_are_refused(given: dict[str, object], line: str) -> None:
    assert problems({}, **given) == [line]


def test_quotas_are_by_group(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        "[quotas.waiting]\nbilling = 5\n'a b' = 0\n[quotas.creates_per_s]\nbilling = 7\n"
    )
    overrides = NodeSettings.load(file, {}).quotas.overrides()
    assert overrides.waiting == {"billing": 5, "a b": 0}
    assert overrides.creates_per_s == {"billing": 7}


def test_quota_below_nothing_is_refused() -> None:
    (line,) = problems({}, **{"quotas.waiting.billing": -1})
    assert "of 'billing' must be at least 0, which is no quota" in line


def test_no_password_is_shown() -> None:
    url = "postgresql://user:hidden@host/db?password=hidden"
    given = {"callbacks.secret": "hidden", "replication.token": "hidden"}
    settings = load(store=url, **given)
    assert settings.shown_store == "postgresql://…@host/db?password=…"
    assert "hidden" not in repr(settings)
    meeting = load(store=url, coordination="etcd://user:hidden@host/c")
    assert meeting.shown_coordination == "etcd://…@host/c"
    assert "hidden" not in repr(meeting)
    assert "hidden" not in str(problems({}, store="mysql://user:hidden@host/db", **given))


# Documentation


def test_reference_explains_every_setting() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    section = text.partition("\n## A node\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| [^|]* \| (.*?) ?\|$", section, re.M))
    expected = set(NodeSettings.model_fields) - set(NodeSettings.tables)
    for name, table in NodeSettings.tables.items():
        expected |= {f"{name}.{each}" for each in table.model_fields}
    assert set(rows) == expected
    assert [name for name, meaning in rows.items() if not meaning] == []


@pytest.mark.parametrize(
    ("name", "table"), [("replication", ReplicationTable), ("callbacks", CallbacksTable)]
)
def test_documentation_has_every_setting_of_timers(
    name: str, table: type[ReplicationTable | CallbacksTable]
) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([\w.]+)` \| ([^|]*?) ?\| [^|]+ \|$", page, re.M))
    assert "timers" in rows
    prefix = f"{name}."
    listed = {each.removeprefix(prefix): rows[each] for each in rows if each.startswith(prefix)}
    assert set(listed) == set(table.model_fields)
    for each, value in table().model_dump().items():
        shown = listed[each].strip("`")
        if value is None:
            assert shown == ""
        else:
            assert shown == (",".join(value) if isinstance(value, tuple) else str(value))


@pytest.mark.parametrize(
    ("given", "loopback", "private"),
    [
        ({}, True, False),
        ({"http": "0.0.0.0:80"}, False, False),
        ({"grpc": "10.0.0.1:7400"}, False, False),
        ({"http": "", "grpc": "[::1]:7400"}, True, False),
        ({"timers": "10.0.0.1:7253"}, True, False),
        ({"timers": "10.0.0.1:7253", "roles": "timers"}, False, False),
        ({"allowed_hosts": "chronoline.example"}, False, False),
        ({"http": "0.0.0.0:80", "callbacks.allow": "10.0.0.0/8"}, False, True),
        ({"callbacks.allow": ""}, False, False),
    ],
)
def test_loopback_calls_need_a_private_node(
    given: dict[str, str], loopback: bool, private: bool
) -> None:
    guard = address_guard(NodeSettings.load(None, {}, given), Door())
    assert [guard.allows(each) for each in ("127.0.0.1", "10.0.0.1")] == [loopback, private]


def test_loopback_calls_end_when_a_token_is_needed(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    settings = NodeSettings.load(None, {}, {})
    guard = address_guard(settings, Door(tokens))
    named = NodeSettings.load(None, {}, {"callbacks.allow": "127.0.0.0/8"})
    named_guard = address_guard(named, Door(tokens))
    assert guard.refusal("http://localhost:9000/") is None
    tokens.create("ops")
    assert not guard.allows("127.0.0.1")
    assert "callbacks.allow" in str(guard.refusal("http://localhost:9000/"))
    assert named_guard.allows("127.0.0.1")


def test_loopback_calls_end_where_a_certificate_is_needed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node")
    tls = ServerTls(certificate=certificate, key=key, client_ca=authority.file)
    guard = address_guard(NodeSettings.load(None, {}, {}), Door(None, tls))
    assert not guard.allows("127.0.0.1")
