"""One unit of the intake's work: some partitions of the input, for a window of time. It does not use Spark.

The unit reads its pipe's claims from the store, deals the partitions over the units in turn, and takes in
records as they come, a batch in one transaction. It looks at the claims again every failure-detection
interval: when they change, it reads other partitions.

It keeps nothing: after any error it reads the claims again, and goes on from the positions in the store. So
it may run in any process, and again, also while another unit still reads the same partition.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    OutcomeUnknown,
    StoreUnavailable,
    TopicNotFound,
)
from chronoline.core.topic import Topic
from chronoline.pipe.claims import skip_lost
from chronoline.pipe.contract import Contract
from chronoline.pipe.inputs import open_input
from chronoline.pipe.intake import PipeIntake
from chronoline.pipe.places import Place
from chronoline.pipe.readers import InputReader, OutOfRange
from chronoline.pipe.worker_cache import warm_reader, warm_store
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.inputs import ClaimLost, InputClaim, InputGap
from chronoline.stores.members import pipe_members

logger = logging.getLogger(__name__)

_BACKOFF = Backoff(0.05, 1.0)
_REST_S = 1.0
_STOPPED_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeWork:
    """The parameters of the intake's units, which are sent to the tasks."""

    pipe: str
    node: str
    store: str
    topic_uid: int
    input: Place
    source: str
    """The name of the input in the accounts of the store."""
    contract: Contract
    intakes: int
    """The number of units that share the partitions."""
    window_ms: int
    look_ms: int
    """The time between two reads of the claims and the stop flag."""
    linger_ms: int
    batch_records: int

    def warm_up(self) -> None:
        """Opens the store and the reader for the first unit of this process."""
        warm_store(self.store)
        self._reader()

    def serve(self, piece: int) -> int:
        """Takes in records until the window is over or the pipe stops, and returns their number."""
        try:
            store = warm_store(self.store)
            unit = IntakeUnit(self, piece, store, store.get_topic(self.topic_uid), self._reader())
        except (StoreUnavailable, OutcomeUnknown) as error:
            logger.warning("the intake waits for its store: %s", error)
            # The return of a store has no event. An error would restart the query, which takes longer.
            time.sleep(_REST_S)
            return 0
        return unit.run()

    def _reader(self) -> InputReader:
        return warm_reader(self.input, group=self.pipe, linger_ms=self.linger_ms)


class IntakeUnit:
    """A unit while it runs."""

    def __init__(
        self, work: IntakeWork, piece: int, store: Store, topic: Topic, reader: InputReader
    ) -> None:
        self._work = work
        self._piece = piece
        self._store = store
        self._topic = topic
        self._reader = reader
        self._clock = SystemClock()
        self._intake = PipeIntake(store, topic.uid, work.contract, now_ms=self._clock.now_ms)
        self._claims: dict[int, InputClaim] = {}
        self._is_assigned = False
        self._look_at_s = 0.0
        self._waits = Waits(_BACKOFF)

    def run(self) -> int:
        """As `IntakeWork.serve`. Raises errors that do not pass by themselves."""
        end_s = time.monotonic() + self._work.window_ms / 1000
        taken = 0
        try:
            while (left_s := end_s - time.monotonic()) > 0:
                try:
                    if self._is_stopping():
                        time.sleep(_STOPPED_S)  # until the query is stopped
                        break
                    taken += self._take_in(left_s)
                except (InvalidInput, TopicNotFound):
                    raise
                except ChronolineError as error:
                    self._begin_again(error)
        finally:
            self._reader.assign({})
        return taken

    def _is_stopping(self) -> bool:
        """Reads the stop flag and the claims, if it is time."""
        if time.monotonic() < self._look_at_s:
            return False
        stopping = self._look()
        self._look_at_s = time.monotonic() + self._work.look_ms / 1000
        return stopping

    def _look(self) -> bool:
        node = self._work.node
        members = pipe_members(self._store, self._topic)
        me = next((each for each in members if each.name == node), None)
        if me is None or me.stopping:  # a node that is no longer a member has left
            return True
        claims = self._read_claims()
        if not self._is_assigned or _fences(claims) != _fences(self._claims):
            self._reader.assign({each: claim.position for each, claim in claims.items()})
            self._is_assigned = True
        self._claims = claims
        return False

    def _read_claims(self) -> dict[int, InputClaim]:
        """The live claims of this node, as far as they are this unit's: dealt in turn, by partition."""
        work, now_ms = self._work, self._clock.now_ms()
        accounts = self._store.input_accounts(work.source)
        claims = [account.claim_of(work.source, work.node, now_ms) for account in accounts]
        held = [claim for claim in claims if claim is not None]
        return {claim.partition: claim for claim in held[self._piece :: work.intakes]}

    def _take_in(self, left_s: float) -> int:
        """Takes in the next batch, if one comes before the next look."""
        wait_s = min(left_s, max(0.0, self._look_at_s - time.monotonic()))
        try:
            ranges = self._reader.poll(wait_s=wait_s, limit=self._work.batch_records)
        except OutOfRange:
            self._skip_lost()
            raise
        taken = self._intake.take_in(self._claims, ranges).total if ranges else 0
        self._waits.reset()
        return taken

    def _skip_lost(self) -> None:
        work = self._work
        with open_input(work.input, work.pipe) as source:
            skip_lost(self._store, self._topic, source, self._read_claims(), self._clock.now_ms())

    def _begin_again(self, error: ChronolineError) -> None:
        """Waits a moment, then goes on from the positions in the store."""
        self._is_assigned, self._look_at_s = False, 0.0
        if isinstance(
            error, ClaimLost | InputGap
        ):  # another pipe, or another unit, has come further
            logger.info("the intake reads its claims again: %s", error)
            return
        logger.warning("the intake waits, and goes on from its positions: %s", error)
        time.sleep(self._waits.after(error))  # the return of a server has no event


def _fences(claims: dict[int, InputClaim]) -> dict[int, int]:
    return {partition: claim.fence for partition, claim in claims.items()}
