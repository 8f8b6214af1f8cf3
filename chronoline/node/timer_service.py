"""The timers of a node: all parts of the service, started and stopped together."""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web
from prometheus_client.core import Metric

from chronoline.callbacks.address_guard import LOOPBACK, AddressGuard
from chronoline.callbacks.caller import Caller, CallLimits
from chronoline.callbacks.signature import Signer
from chronoline.core.addresses import check_token_in_clear
from chronoline.core.errors import InvalidInput
from chronoline.runtime.admission import Admission
from chronoline.runtime.descriptors import SHORTAGES
from chronoline.runtime.listener import host_port
from chronoline.runtime.metrics import counter, free_bytes, gauge
from chronoline.runtime.private_files import make_private_folder
from chronoline.runtime.service import AsyncService
from chronoline.timers.callbacks import Callbacks
from chronoline.timers.cluster import read_membership
from chronoline.timers.http.server import REQUEST_LOGGER, RequestArea, TimersEdge
from chronoline.timers.hybrid_clock import DEFAULT_BOUND_MS
from chronoline.timers.journal import Journal, claim, is_readable, set_aside
from chronoline.timers.membership import Membership
from chronoline.timers.metrics import TimersMetrics
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import Link, Peer
from chronoline.timers.replica import Attempts
from chronoline.timers.resync import Resync
from chronoline.timers.startup_sync import start_from_journal
from chronoline.timers.tag_statistics import TagFigures

logger = logging.getLogger(__name__)

_STOP_PATIENCE_S = 2.0
"""The longest time for requests under way when the service stops."""
_BACKLOG = 1_024
"""The connections that wait in the system to be accepted."""
_KEEP_ALIVE_S = 75.0
"""A connection without a request stays open for this time after the last one."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of a node's timers."""

    host: str = "127.0.0.1"
    port: int = 7253
    data: Path = Path("chronoline-data")
    # The list of nodes; None means a cluster of one.
    nodes_file: Path | None = None
    # The address under which the others know this node; by default its host and port.
    address: str | None = None
    # Networks that callbacks may go to besides the public internet.
    allow: Sequence[str] = LOOPBACK
    secret: str | None = None
    peer_timeout_ms: int = 1_000
    least_copies: int = 1
    # A version that is further ahead of this node's wall clock is refused.
    clock_bound_ms: int = DEFAULT_BOUND_MS
    attempts: Attempts = field(default_factory=Attempts)
    calls: CallLimits = field(default_factory=CallLimits)
    most_timers: int = 5_000_000
    # A URI that receives callbacks that failed for good.
    dead_letters: str | None = None
    tls: ssl.SSLContext | None = None
    # With TLS: the authority to trust when calling peers.
    peer_tls: ssl.SSLContext | None = None
    # The bound for all requests under way; a node with a broker shares that of the broker.
    admission: Admission | None = None
    # The most open connections.
    connections: int = 1_000
    # The labels of all metrics.
    labels: Mapping[str, str] = field(default_factory=dict)
    # The headers that peers send to each other.
    peer_headers: dict[str, str] = field(default_factory=dict)
    # Whether peers send them to other machines without TLS.
    insecure: bool = False


class TimerService(AsyncService):
    """The timers of a node, from `start` to `stop`."""

    def __init__(
        self,
        options: ServiceOptions,
        *,
        admits: Callable[[web.BaseRequest, RequestArea], str] = lambda *_: "",
        caller: Caller | None = None,
    ) -> None:
        """The owner of `caller` opens and closes it; without it the service has its own."""
        self._options = options
        self._admits = admits
        self._caller = caller
        self._admission = options.admission or Admission()
        self._exits = AsyncExitStack()
        self.port = options.port
        self.is_started = False
        self.node: TimerNode | None = None
        self.edge: TimersEdge | None = None
        self.resync: Resync | None = None

    @property
    def me(self) -> str:
        return self._options.address or host_port(self._options.host, self.port)

    async def _start(self) -> None:
        """Listens, loads the journal, syncs with the other nodes, and lets timers pop."""
        options = self._options
        membership = self._membership()
        journal = self._open_journal(options.data / "timers.db")
        session = await self._exits.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=30, ssl=options.peer_tls or True
                ),
                headers=options.peer_headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a few bytes could become gigabytes; such answers are refused
                skip_auto_headers=("User-Agent", "Accept-Encoding"),  # they are not read
                trust_env=False,
            )
        )
        caller = self._caller
        if caller is None:
            caller = await self._exits.enter_async_context(
                Caller(AddressGuard(options.allow), limits=options.calls)
            )
        metrics = TimersMetrics(options.labels)
        scheme = "http" if options.tls is None else "https"

        def connect(address: str, node: TimerNode) -> Peer:
            link = Link(address, session, scheme=scheme, timeout_ms=options.peer_timeout_ms)
            return Peer(
                link,
                me=node.me,
                now_ms=node.now_ms,
                get=node.replica.get,
                heard=node.receive,
                intake=node.intake,
                is_up=lambda: node.is_loaded,
            )

        self.node = node = TimerNode(
            self.me,
            membership,
            journal=journal,
            calls=Callbacks(
                caller,
                signer=Signer(options.secret) if options.secret else None,
                dead_letters=options.dead_letters,
            ),
            connect=connect,
            metrics=metrics,
            attempts=options.attempts,
            least_copies=options.least_copies,
            clock_bound_ms=options.clock_bound_ms,
        )
        self._exits.push_async_callback(node.stop)
        metrics.watch(self._gauges)
        self.resync = Resync(node)
        self.edge = TimersEdge(
            node,
            self.resync,
            reload=self.reload,
            admits=self._admits,
            most_timers=options.most_timers,
            admission=self._admission,
        )
        await self._listen(self.edge)
        await node.see(membership)
        await start_from_journal(node)
        self.is_started = True

    def _membership(self) -> Membership:
        """Raises `InvalidInput` for a list that is wrong, or whose nodes the token must not be sent to."""
        options = self._options
        if options.nodes_file is None:
            return Membership((self.me,))
        membership = read_membership(options.nodes_file, self.me)
        if options.peer_headers and options.tls is None and not options.insecure:
            for address in membership.everybody:
                check_token_in_clear(address, allow="say --insecure")
        return membership

    def _open_journal(self, path: Path) -> Journal:
        make_private_folder(path.parent)
        self._exits.enter_context(claim(path))
        # If boots cannot be distinguished, each start counts as one: then the wall clock decides.
        boot = _BOOT.read_text().strip() if _BOOT.exists() else secrets.token_hex(8)
        if not is_readable(path):
            aside = set_aside(path)
            logger.error(
                "the journal cannot be read; it was moved to %s, and the other nodes send their records",
                aside.name,
                extra={"action": "journal_unreadable"},
            )
        journal = Journal(path, boot=boot)
        self._exits.callback(journal.close)
        return journal

    async def _listen(self, edge: TimersEdge) -> None:
        server = web.Server(
            edge.handle,
            access_log=None,
            logger=REQUEST_LOGGER,
            keepalive_timeout=_KEEP_ALIVE_S,
            auto_decompress=False,  # a few bytes could become gigabytes; encoded bodies are refused
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=_STOP_PATIENCE_S)
        await runner.setup()
        self._exits.push_async_callback(runner.cleanup)
        options = self._options
        for listener in edge.listen(options.host, options.port, most=options.connections):
            await web.SockSite(runner, listener, ssl_context=options.tls, backlog=_BACKLOG).start()
        self.port = runner.addresses[0][1]

    async def reload(self) -> None:
        """Reads the list of nodes again; a wrong one is refused, and the old one stays."""
        if self._options.nodes_file is None:
            raise InvalidInput(
                "this node has no list of nodes to read again: it is a cluster of one"
            )
        assert self.node is not None
        await self.node.see(self._membership())
        logger.info("the list of nodes was read", extra={"action": "reloaded"})

    def _gauges(self) -> Iterable[Metric]:
        assert self.node is not None
        assert self.resync is not None
        tally = self.node.replica.tally
        yield gauge(
            "chronoline_timers_waiting",
            "Waiting timers of this node, copies included.",
            [((), tally.waiting)],
        )
        yield gauge(
            "chronoline_timers_primary",
            "Waiting timers that pop here first. Their sum over all nodes is the number of timers.",
            [((), tally.primary)],
        )
        yield from _tag_gauges(list(tally.tags.figures(self.node.now_ms())))
        yield gauge(
            "chronoline_timers_unreadable_records",
            "Unreadable records of the journal, which are ignored.",
            [((), float(len(self.node.journal.unreadable)))],
        )
        peers = list(self.node.peers.values())
        behind = [((peer.address,), float(peer.behind)) for peer in peers]
        yield gauge(
            "chronoline_timers_behind",
            "Records that were not sent to a node yet: the replication lag.",
            behind,
            "node",
        )
        away = [((peer.address,), float(peer.is_away and not peer.is_short)) for peer in peers]
        yield gauge("chronoline_timers_away", "1 while a node does not answer.", away, "node")
        yield gauge(
            "chronoline_timers_under_way_bytes",
            "Bytes of unanswered requests, as limits.node_bytes counts them.",
            [((), self._admission.under_way_bytes)],
        )
        yield gauge(
            "chronoline_timers_data_free_bytes",
            "Free bytes on the file system of the node's folder.",
            [((), free_bytes(self._options.data))],
        )
        yield counter(
            "chronoline_timers_shortages",
            "How often the process ran short of descriptors, memory, ports or threads.",
            [((resource,), count) for resource, count in SHORTAGES.counted.items()],
            "resource",
        )
        progress = self.resync.progress
        share = progress.asked / progress.of if progress.of else 1.0
        yield gauge(
            "chronoline_timers_resync_share",
            "The progress of the last resync, from 0 to 1.",
            [((), share)],
        )

    async def _stop(self) -> None:
        """Stops requests and pops; finishes and replicates pops under way, and closes the journal."""
        self.is_started = False
        await self._exits.aclose()


_TAG_GAUGES = (
    ("count", "", "Waiting timers of this node, copies included, by tag."),
    ("average", "_average", "The average of that number over the last five minutes."),
    ("variance", "_variance", "The variance of that number over the last five minutes."),
    ("high", "_high", "The highest number in the last five minutes."),
    ("low", "_low", "The lowest number in the last five minutes."),
)


def _tag_gauges(figures: list[tuple[str, TagFigures]]) -> Iterable[Metric]:
    for field_name, suffix, what in _TAG_GAUGES:
        samples = [((tag,), float(getattr(each, field_name))) for tag, each in figures]
        yield gauge(f"chronoline_timers_tagged{suffix}", what, samples, "tag")
