"""The targets of a node, one for each topic of the store that has one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from chronoline.broker.context import BrokerContext
from chronoline.broker.targets.policy import TargetPolicy
from chronoline.broker.targets.target import Target
from chronoline.core.errors import ChronolineError, InvalidInput, TopicNotFound
from chronoline.core.topic import Topic
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 5.0
"""The interval between two reads of the topics: another node, or a program, can create some."""
_REST_S = 1.0
"""The interval after the store did not answer."""
_AT_ONCE = 16
"""The most targets that begin together, since the store's queue is bounded."""


class Targets(AsyncService):
    """Calls the targets from `start` to `stop`."""

    def __init__(self, parts: BrokerContext, calls: TargetPolicy) -> None:
        self._parts = parts
        self._calls = calls
        self._serving: dict[int, Target] = {}  # by the topic's uid
        # Targets that get no more messages, and can have calls under way.
        self._leaving: set[Target] = set()
        # By uid, the reason why a topic is not served; 0 means all topics. Each is logged once.
        self._problems: dict[int, str] = {}
        self._looking: asyncio.Task[None] | None = None

    async def _start(self) -> None:
        self._looking = supervise("looking for targets", self._look, self._parts.metrics.failed)

    async def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        everybody = [*self._serving.values(), *self._leaving]
        await asyncio.gather(*(target.stop() for target in everybody))
        self._serving.clear()
        self._leaving.clear()

    async def _look(self) -> None:
        while True:
            try:
                topics = await self._parts.topics.list()
            except ChronolineError as error:
                self._log_problem(0, f"the topics cannot be read: {error}")
                rest_s = _REST_S
            else:
                self._problems.pop(0, None)
                served = await self._serve(
                    [each for each in topics if each.settings.target is not None]
                )
                rest_s = _LOOK_EVERY_S if served else _REST_S
            await self._parts.topics.target_changed.sleep(rest_s)

    async def _serve(self, topics: Iterable[Topic]) -> bool:
        """Whether the store answered every call."""
        wanted = {topic.uid: topic for topic in topics}
        for uid, target in list(self._serving.items()):
            if uid not in wanted:
                target.leave()
                self._let_go(target)
            else:
                target.topic = wanted[uid]
        self._leaving = {each for each in self._leaving if not each.is_idle}
        self._problems = {uid: words for uid, words in self._problems.items() if uid in wanted}
        new = [topic for uid, topic in wanted.items() if uid not in self._serving]
        answered = True
        for first in range(0, len(new), _AT_ONCE):
            some = new[first : first + _AT_ONCE]
            answered &= all(await asyncio.gather(*(self._begin(each) for each in some)))
        return answered

    async def _begin(self, topic: Topic) -> bool:
        """Whether the store answered: only its failure is a reason to try again soon."""
        target = Target(topic, self._parts, self._calls, ended=self._let_go)
        try:
            await target.join()
        except TopicNotFound:
            return True
        except ChronolineError as error:
            self._log_problem(
                topic.uid, f"the target of topic {topic.name!r} is not called: {error}"
            )
            return isinstance(error, InvalidInput)
        except Exception as error:  # of this topic: the others are served
            self._parts.metrics.failed("looking for targets", topic.name)
            self._log_problem(topic.uid, f"the target of topic {topic.name!r} failed: {error!r}")
            return True
        self._problems.pop(topic.uid, None)
        self._serving[topic.uid] = target
        return True

    def _let_go(self, target: Target) -> None:
        self._serving.pop(target.topic.uid, None)
        self._leaving.add(target)

    def _log_problem(self, uid: int, problem: str) -> None:
        if self._problems.get(uid) != problem:
            self._problems[uid] = problem
            logger.warning("%s; trying again", problem)
