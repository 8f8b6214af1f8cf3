"""Claims on the partitions of an input: this pipe's share among the live pipes.

Claims end after a time, so a dead pipe loses its partitions to the others. When the shares change, a pipe
first releases its claim, and another claims the partition at its next round. The store refuses records under
a lost claim.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal

from chronoline.core.errors import InvalidInput, RowsLocked
from chronoline.core.placement import deal_partitions
from chronoline.core.topic import Topic
from chronoline.pipe.inputs import Input
from chronoline.pipe.settings import PipeSettings
from chronoline.stores.contract import Store
from chronoline.stores.inputs import InputClaim, Intake

logger = logging.getLogger(__name__)

Start = Literal["earliest", "latest"]


def source_name(settings: PipeSettings, identity: str) -> str:
    """The name of a pipe's input in the accounts of the store.

    It contains the topic's identity, so a topic that was deleted and created again starts without positions.
    """
    digest = sha256(f"{settings.name}/{settings.input.topic}".encode()).hexdigest()[:16]
    return f"{digest}/{identity}"


class InputClaims:
    """The claims of one pipe on one input."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        source: Input,
        *,
        name: str,
        node: str,
        start: Start,
        claim_ms: int,
    ) -> None:
        self._store = store
        self._topic = topic
        self._input = source
        self._source = name
        self._node = node
        self._start = start
        self._claim_ms = claim_ms
        self.claims: dict[int, InputClaim] = {}

    def renew(self, now_ms: int) -> bool:
        """Extends the claims. Returns false if some were lost.

        An intake that writes a large batch holds their rows. Then they are extended the next time: a claim
        lasts for many rounds.
        """
        held = list(self.claims.values())
        try:
            renewed = self._store.renew_claims(
                held, until_ms=now_ms + self._claim_ms, now_ms=now_ms
            )
        except RowsLocked as error:
            logger.info("claims on the input are extended later: %s", error)
            return True
        self.claims = {claim.partition: claim for claim in renewed}
        return len(renewed) == len(held)

    def share(self, live: Sequence[str], partitions: Sequence[int], now_ms: int) -> bool:
        """Releases claims outside this pipe's share, and claims the rest. Returns whether any changed."""
        wanted = set(deal_partitions(live, self._node, partitions))
        unwanted = [claim for each, claim in self.claims.items() if each not in wanted]
        if unwanted:
            self._store.release_claims(unwanted)
            self.claims = {each: self.claims[each] for each in self.claims if each in wanted}
        missing = wanted - self.claims.keys()
        gained = self._claim(missing, now_ms) if missing else []
        self.claims |= {claim.partition: claim for claim in gained}
        return bool(unwanted or gained)

    def skip_lost(self, now_ms: int) -> None:
        """As the function of this name, for all claims."""
        self.claims = skip_lost(self._store, self._topic, self._input, self.claims, now_ms)

    def release(self) -> None:
        self._store.release_claims(list(self.claims.values()))
        self.claims = {}

    def _claim(self, partitions: set[int], now_ms: int) -> list[InputClaim]:
        first = self._input.earliest()
        if self._start == "latest" and not self._store.input_accounts(self._source):
            # Records that exist at the first start are skipped in all partitions, also those of other pipes.
            begun = self._ask_for(self._input.latest(), now_ms)
            self._store.release_claims([each for each in begun if each.partition not in partitions])
        gained = self._ask_for({each: first[each] for each in partitions}, now_ms)
        return [
            _skip(self._store, self._topic, claim, first[claim.partition], now_ms)
            for claim in gained
        ]

    def _ask_for(self, starts: dict[int, int], now_ms: int) -> list[InputClaim]:
        until_ms = now_ms + self._claim_ms
        return self._store.claim_inputs(
            self._source, starts, self._node, until_ms=until_ms, now_ms=now_ms
        )


def skip_lost(
    store: Store, topic: Topic, source: Input, claims: Mapping[int, InputClaim], now_ms: int
) -> dict[int, InputClaim]:
    """Moves positions past records that the input has deleted: they cannot be read.

    Raises `InvalidInput` if a partition ends before its position: then it has lost records.
    """
    first, latest = source.earliest(), source.latest()
    for each, claim in claims.items():
        if claim.position > latest.get(each, claim.position):
            raise InvalidInput(
                f"partition {each} of the input ends at offset {latest[each]}, and was taken in up to "
                f"{claim.position}: its end was lost. Give the pipe another name to start again"
            )
    return {
        each: _skip(store, topic, claim, first.get(each, 0), now_ms)
        for each, claim in claims.items()
    }


def _skip(store: Store, topic: Topic, claim: InputClaim, first: int, now_ms: int) -> InputClaim:
    """Moves a position past deleted records, and logs their number."""
    if claim.position >= first:
        return claim
    logger.error(
        "%d records of partition %d, from offset %d on, were deleted from the input before they were "
        "taken in; they are lost. Keep the input's records for longer",
        first - claim.position,
        claim.partition,
        claim.position,
    )
    intake = Intake(claim, [], claim.position, first)
    store.take_in(topic.uid, [intake], producer_group=topic.name, now_ms=now_ms)
    return claim._replace(position=first)
