"""The watch on the store: a thread waits for its notices, and passes them to the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from chronoline.broker.store_access import StoreAccess, close_in_thread
from chronoline.core.errors import ChronolineError, StoreClosed, TopicNotFound
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.runtime.service import AsyncService
from chronoline.stores.contract import Notice, Store, Watch

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 9.0
_REST_S = 0.2


class StoreWatch(AsyncService):
    """Watches from `start` to `stop`; then it does not start again.

    The event loop calls `tell` with notices, and `served` for the topics that have consumers. A notice that
    does not name the due of its message is completed first: asking the store when the next message is due
    costs less than a reservation. Where that fails, the notice is passed on as it is.
    """

    def __init__(
        self,
        store: Store,
        access: StoreAccess,
        tell: Callable[[Sequence[Notice]], None],
        served: Callable[[], Sequence[Topic]],
        *,
        topics_noticed: Callable[[Sequence[Notice]], None] = lambda _: None,
        schedules_changed: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`topics_noticed` gets all notices: some concern topics, and not messages.

        `schedules_changed` is called when a schedule was changed: surely, or perhaps.
        """
        self._store = store
        self._access = access
        self._tell = tell
        self._served = served
        self._topics_noticed = topics_noticed
        self._schedules_changed = schedules_changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch: Watch | None = None
        # By uid, the topics whose next due is asked for next. Owned by the event loop.
        self._to_look: dict[int, Topic] = {}
        self._looking: asyncio.Task[None] | None = None

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watch = watch = self._store.watch()
        self._thread = threading.Thread(
            target=self._listen, args=(watch,), name="chronoline-notice", daemon=True
        )
        self._thread.start()

    async def _stop(self) -> None:
        self._stopped.set()
        if self._looking is not None:
            self._looking.cancel()
        await close_in_thread(
            "listening to the store", self._close, patience_s=self._access.patience_s
        )

    def _close(self) -> None:
        if self._watch is not None and self._thread is not None:
            self._watch.wake()
            self._thread.join()
            self._watch.close()

    # In the thread

    def _listen(self, watch: Watch) -> None:
        while not self._stopped.is_set():
            try:
                notices = watch.wait(_LOOK_AGAIN_S)
            except StoreClosed:
                return
            except Exception as error:
                _log("the store's notices are interrupted", error)
                self._pass_on([Notice()])  # notices can be lost: all topics are asked for
                self._stopped.wait(_REST_S)
            else:
                self._pass_on(notices)

    def _pass_on(self, notices: list[Notice]) -> None:
        assert self._loop is not None
        if notices:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._heard, notices)

    # In the event loop

    def _heard(self, notices: Sequence[Notice]) -> None:
        if self._stopped.is_set():
            return
        of_schedules = any(each.schedules for each in notices)
        notices = [each for each in notices if not each.schedules]
        if of_schedules or any(each.topic_uid is None for each in notices):
            self._schedules_changed(of_schedules)
        self._topics_noticed(notices)
        notices = [each for each in notices if not each.topic_changed]
        known = [each for each in notices if each.due is not None or each.returned is not None]
        if known:
            self._tell(known)
        unknown = {each.topic_uid for each in notices if each.due is None and each.returned is None}
        if unknown:
            for topic in self._served():
                if None in unknown or topic.uid in unknown:
                    self._to_look[topic.uid] = topic
        if self._to_look and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="looking what is due")

    async def _look(self) -> None:
        while self._to_look:
            topics, self._to_look = list(self._to_look.values()), {}
            try:
                found = await self._access.call("next_ts", partial(_next, topics))
            except Exception as error:
                _log("reading the next due of a topic failed", error)
                found = [Notice(topic_uid=topic.uid) for topic in topics]
            if found:
                self._tell(found)


def _next(topics: Sequence[Topic], store: Store) -> list[Notice]:
    """Notices with the due of the next message of each topic that has one."""
    found = []
    for topic in topics:
        try:
            due = store.next_ts(topic.uid, [BucketRange(0, topic.settings.buckets)])
        except TopicNotFound:  # it was deleted: its loader finds out
            found.append(Notice(topic_uid=topic.uid))
            continue
        if due is not None:
            found.append(Notice(topic_uid=topic.uid, due=due))
    return found


def _log(what: str, error: Exception) -> None:
    """Logs an error; with its traceback if it is a defect."""
    foreseen = isinstance(error, ChronolineError)
    level = logging.WARNING if foreseen else logging.ERROR
    logger.log(level, "%s: %s", what, error, exc_info=None if foreseen else error)
