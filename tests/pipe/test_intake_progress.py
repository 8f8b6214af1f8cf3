"""A hung intake is recognised by positions that do not move while records wait."""

from collections.abc import Mapping

from chronoline.pipe.intake_progress import IntakeProgress

START_S = 45
"""For this time after a start stillness does not count."""


class Looks:
    """Looks at the positions every second, from the end of the start on."""

    def __init__(self, intakes: int = 1) -> None:
        self.progress = IntakeProgress(intakes)
        self.now_s = 100.0
        self.start()

    def start(self) -> None:
        for _ in range(START_S + 1):
            self.look({}, {})

    def look(
        self, positions: Mapping[int, int], latest: Mapping[int, int], seconds: int = 1
    ) -> float:
        for _ in range(seconds):
            self.now_s += 1.0
            self.progress.look(positions, latest, self.now_s)
        return self.progress.still_s


def test_positions_that_stand_still_before_the_end_count() -> None:
    looks = Looks()
    assert looks.look({0: 5}, {0: 9}) == 0.0
    assert looks.look({0: 5}, {0: 9}, 10) == 10.0
    assert looks.look({0: 6}, {0: 9}) == 0.0
    assert looks.look({0: 6}, {0: 9}) == 1.0


def test_an_idle_input_does_not_count() -> None:
    looks = Looks()
    assert looks.look({0: 5}, {0: 5}, 100) == 0.0
    assert looks.look({0: 5}, {0: 6}) == 1.0
    assert looks.look({}, {0: 6}) == 0.0


def test_each_task_counts_by_itself() -> None:
    looks, latest = Looks(2), {3: 9, 5: 9, 7: 9}
    looks.look({3: 0, 5: 0, 7: 0}, latest)
    assert looks.look({3: 1, 5: 0, 7: 0}, latest, 7) == 7.0  # partition 5 is the second task's
    assert looks.look({3: 1, 5: 2, 7: 0}, latest) == 7.0  # the first has not moved since
    assert looks.look({3: 2, 5: 2, 7: 0}, latest) == 1.0


def test_an_outage_does_not_count() -> None:
    looks = Looks()
    looks.look({0: 5}, {0: 9})
    assert looks.look({0: 5}, {0: 9}, 4) == 4.0
    looks.now_s += 600.0
    assert looks.look({0: 5}, {0: 9}) == 7.0  # a gap counts for at most three seconds
    assert looks.look({0: 5}, {0: 9}) == 8.0


def test_a_start_has_more_time() -> None:
    looks = Looks()
    looks.look({0: 5}, {0: 9}, 20)
    looks.progress.begin()
    assert looks.progress.still_s == 0.0
    assert looks.look({0: 5}, {0: 9}, 40) == 0.0
    assert looks.look({0: 5, 1: 0}, {0: 9}, 6) == 0.0  # also if it gets another partition
    assert looks.look({0: 5, 1: 0}, {0: 9}, 10) == 10.0


def test_a_task_that_took_something_in_has_started() -> None:
    looks, latest = Looks(2), {0: 9, 1: 9}
    looks.progress.begin()
    looks.look({0: 5, 1: 5}, latest, 3)
    looks.look({0: 6, 1: 5}, latest)
    assert looks.look({0: 6, 1: 5}, latest, 10) == 10.0  # the first; the other has not begun
    looks.look({0: 7, 1: 5}, latest)
    assert looks.look({0: 7, 1: 5}, latest) == 1.0
