"""Who reads which input how far, and who works together, in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chronoline.core.errors import StoreClosed
from chronoline.stores.inputs import InputAccount, InputClaim, Tally
from chronoline.stores.intake import Move, Partition, TakesIn
from chronoline.stores.members import Member


@dataclass(slots=True)
class _Account:
    position: int
    holder: str | None = None
    until_ms: int = 0
    fence: int = 0
    tally: Tally = field(default_factory=Tally)

    def held_by(self, claim: InputClaim) -> bool:
        return (self.holder, self.fence) == (claim.holder, claim.fence)


class MemoryInputs(TakesIn):
    """The part of a store that knows inputs and members, and the lock that serves all parts."""

    def __init__(self, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__(random_bytes)
        self._lock = threading.RLock()
        self._accounts: dict[Partition, _Account] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._closed = False

    def _open(self) -> threading.RLock:
        if self._closed:
            raise StoreClosed
        return self._lock

    # Inputs

    def _claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        claims = []
        with self._open():
            for partition, start in sorted(starts.items()):
                account = self._accounts.setdefault((source, partition), _Account(start))
                if account.holder in (None, holder) or account.until_ms <= now_ms:
                    account.holder, account.until_ms = holder, until_ms
                    account.fence += 1
                    place = (source, partition, holder, account.fence, until_ms, account.position)
                    claims.append(InputClaim(*place))
        return claims

    def _renew_claims(
        self, claims: Sequence[InputClaim], until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        with self._open():
            positions = self._positions(claims, now_ms)
            for partition in positions:
                self._accounts[partition].until_ms = until_ms
            return [
                claim._replace(until_ms=until_ms, position=positions[claim[:2]])
                for claim in claims
                if claim[:2] in positions
            ]

    def release_claims(self, claims: Sequence[InputClaim]) -> None:
        with self._open():
            for claim in claims:
                account = self._accounts.get(claim[:2])
                if account is not None and account.held_by(claim):
                    account.holder, account.until_ms = None, 0

    def _positions(self, claims: Sequence[InputClaim], now_ms: int) -> dict[Partition, int]:
        with self._open():
            found = {claim: self._accounts.get(claim[:2]) for claim in claims}
            return {
                claim[:2]: account.position
                for claim, account in found.items()
                if account is not None and account.held_by(claim) and account.until_ms > now_ms
            }

    def _move_inputs(self, moves: Sequence[Move]) -> None:
        with self._open():
            for partition, upto, tally in moves:
                account = self._accounts[partition]
                account.position = max(account.position, upto)
                account.tally = account.tally + tally

    def input_accounts(self, source: str) -> list[InputAccount]:
        with self._open():
            return [
                InputAccount(
                    partition=partition,
                    position=account.position,
                    tally=account.tally,
                    holder=account.holder,
                    until_ms=None if account.holder is None else account.until_ms,
                )
                for (name, partition), account in sorted(self._accounts.items())
                if name == source
            ]

    def forget_inputs(self, source: str, *, now_ms: int) -> int:
        with self._open():
            free = [
                place
                for place, account in self._accounts.items()
                if place[0] == source and (account.holder is None or account.until_ms <= now_ms)
            ]
            for place in free:
                del self._accounts[place]
            return len(free)

    # Members

    def _beat(self, group: str, name: str, until_ms: int, details: str, forgotten_ms: int) -> None:
        with self._open():
            before = self._members.get((group, name))
            stopping = before is not None and before.stopping
            self._members[group, name] = Member(
                name=name, until_ms=until_ms, stopping=stopping, details=details
            )
            for place, each in list(self._members.items()):
                if each.until_ms <= forgotten_ms:
                    del self._members[place]

    def members(self, group: str) -> list[Member]:
        with self._open():
            return [member for (of, _), member in sorted(self._members.items()) if of == group]

    def live_groups(self, *, now_ms: int) -> frozenset[str]:
        with self._open():
            return frozenset(
                group for (group, _), member in self._members.items() if member.alive(now_ms)
            )

    def ask_to_stop(self, group: str, name: str | None = None) -> int:
        with self._open():
            asked = [each for each in self.members(group) if name in (None, each.name)]
            for member in asked:
                self._members[group, member.name] = replace(member, stopping=True)
            return len(asked)

    def leave(self, group: str, name: str) -> None:
        with self._open():
            self._members.pop((group, name), None)
