"""The thread that sleeps on the store's watch, and tells the event loop what it hears."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from chronoline.core.errors import ChronolineError, StoreClosed
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.stores.contract import Notice, Store

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 9.0
_REST_S = 0.2


class Noticing:
    """From `start` to `stop`. `tell` is called in the event loop; `served` says which topics matter."""

    def __init__(
        self,
        store: Store,
        tell: Callable[[Sequence[Notice]], None],
        served: Callable[[], Sequence[Topic]],
    ) -> None:
        self._store = store
        self._tell = tell
        self._served = served
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch = store.watch()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._listen, name="chronoline-notice", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        self._stopped.set()
        self._watch.wake()
        if self._thread is not None:
            self._thread.join()
        self._watch.close()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                notices = self._watch.wait(_LOOK_AGAIN_S)
                if notices:
                    self._pass_on([each for one in notices for each in self._looked_up(one)])
            except StoreClosed:
                return
            except ChronolineError as error:
                logger.warning("the store's notices are missing for a moment: %s", error)
                self._pass_on([Notice()])  # what was not heard has to be looked for
                self._stopped.wait(_REST_S)
            except Exception:
                logger.exception("listening to the store failed; it goes on")
                self._stopped.wait(_REST_S)

    def _looked_up(self, notice: Notice) -> list[Notice]:
        """Someone changed something: looking when the next is due costs less than reserving."""
        if notice.due is not None:
            return [notice]
        found = []
        for topic in self._served():
            if notice.topic_uid in (None, topic.uid):
                everything = [BucketRange(0, topic.settings.buckets)]
                due = self._store.next_ts(topic.uid, everything)
                if due is not None:
                    found.append(Notice(topic_uid=topic.uid, due=due))
        return found

    def _pass_on(self, notices: list[Notice]) -> None:
        assert self._loop is not None
        if notices and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, notices)
