"""Views for operators: timers and nodes as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chronoline.core.callback_url import shown_url
from chronoline.timers.ids import TimerName
from chronoline.timers.membership import filter_of
from chronoline.timers.node import TimerNode
from chronoline.timers.timer import Timer

_PAGE = 100
_MOST_LOOKED_AT = 5_000
"""The number of timers that one request goes through at most."""


def describe_timer(node: TimerNode, timer: Timer) -> dict[str, Any]:
    """One timer, as this node knows it."""
    plan = timer.plan
    bits, factor = filter_of(timer.replicas), None if plan is None else plan.factor
    described: dict[str, Any] = {
        "id": str(TimerName(timer.id, replicas_filter=bits, factor=factor)),
        "state": "deleted" if plan is None else "over" if timer.is_over else "waiting",
        "version": timer.version.number,
        "replicas": timer.replicas,
        "level": timer.replicas.index(node.me) if node.me in timer.replicas else None,
        "popped": timer.popped,
        "failed_attempts": timer.attempts,
    }
    if plan is not None:
        described |= {
            "pops": plan.pops,
            "interval_ms": plan.interval_ms,
            "repeat_for_ms": plan.repeat_for_ms,
            "uri": shown_url(plan.uri),
            "tags": dict(plan.tags),
        }
        if not timer.is_over:
            described["due_in_ms"] = timer.due_ms + timer.wait_ms - node.now_ms()
    return described


def page_of_timers(node: TimerNode, cursor: int) -> dict[str, Any]:
    """Timers that wait here, the newest first, and where to go on; 0 begins.

    The cursor is the number of older ones that are left. As it goes towards the oldest, none is skipped when
    timers come and go between two pages, though one may be seen twice.
    """
    timers: list[dict[str, Any]] = []
    left = min(cursor or len(node.replica), len(node.replica))
    for timer in node.replica.some(left, _MOST_LOOKED_AT):
        if len(timers) == _PAGE:
            break
        left -= 1
        if not timer.is_over and node.me in timer.replicas:
            timers.append(describe_timer(node, timer))
    return {"timers": timers, "cursor": left or None}


def describe_nodes(node: TimerNode) -> dict[str, Any]:
    """The cluster, as this node sees it."""
    membership = node.replica.membership
    states = {
        **dict.fromkeys(membership.staying, "staying"),
        **dict.fromkeys(membership.joining, "joining"),
        **dict.fromkeys(membership.leaving, "leaving"),
    }
    nodes = []
    for address in membership.everybody:
        peer = node.peers.get(address)
        nodes.append(
            {
                "address": address,
                "membership": states[address],
                "is_here": address == node.me,
                "is_away": peer.is_away and not peer.is_short if peer else False,
                "has_left": peer.has_left if peer else False,
                "behind": peer.behind if peer else 0,
            }
        )
    return {
        "view": membership.view,
        "nodes": nodes,
        "timers": node.replica.tally.waiting,
        "tags": node.replica.tally.tags.counts(),
        "tag_statistics": {
            tag: asdict(figures) for tag, figures in node.replica.tally.tags.figures(node.now_ms())
        },
        "ready": node.is_ready,
        "unreadable_records": len(node.journal.unreadable),
    }
