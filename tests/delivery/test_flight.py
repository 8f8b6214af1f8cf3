"""What is in flight: it takes room, and confirmations wake whoever should know."""

from chronoline.core.agenda import Agenda
from chronoline.delivery.flight import Flight
from tests.core.leased import leased

MANY = 1_000


class Wakes:
    number = 0

    def __call__(self) -> None:
        self.number += 1


def test_what_is_in_flight_takes_room_until_it_has_landed() -> None:
    agenda = Agenda(capacity=3)
    flight = Flight(agenda, Wakes())
    first, second = flight.start(
        [leased("a", due=0, body=b"12345"), leased("b", due=0, key=b"123")]
    )
    assert (len(flight), agenda.away, agenda.away_bytes, agenda.room()) == (2, 2, 8, 1)
    flight.end([first])
    flight.end([first])  # it has landed already
    assert (len(flight), agenda.away, agenda.away_bytes, agenda.room()) == (1, 1, 3, 2)
    assert first not in flight
    assert second in flight
    flight.end_all()
    assert (len(flight), agenda.away, agenda.away_bytes) == (0, 0, 0)


def test_the_first_word_about_a_message_counts() -> None:
    flight = Flight(Agenda(), Wakes())
    (handover,) = flight.start([leased("a", due=0)])
    handover(None)
    handover(ValueError("no"))
    assert flight.confirmed == 1
    assert flight.take_confirmed() == [handover]
    assert handover.error is None
    assert flight.confirmed == 0


def test_many_confirmations_wake_once() -> None:
    wakes = Wakes()
    flight = Flight(Agenda(), wakes)
    handovers = flight.start([leased(f"m{place}", due=0) for place in range(MANY + 10)])
    for handover in handovers[: MANY - 1]:
        handover(None)
    assert (wakes.number, flight.many_confirmed) == (0, False)
    for handover in handovers[MANY - 1 :]:
        handover(None)
    assert (wakes.number, flight.many_confirmed) == (1, True)
    assert flight.take_confirmed() == handovers


def test_an_error_wakes_at_once_and_makes_impatient() -> None:
    wakes = Wakes()
    flight = Flight(Agenda(), wakes)
    first, second = flight.start([leased("a", due=0), leased("b", due=0)])
    first(ValueError("no"))
    assert (wakes.number, flight.impatient) == (1, True)
    second(None)
    assert wakes.number == 2


def test_those_whose_leases_end_are_found() -> None:
    flight = Flight(Agenda(), Wakes())
    first, _ = flight.start([leased("a", due=0, until=500), leased("b", due=0, until=501)])
    assert flight.ending(500) == [first]
