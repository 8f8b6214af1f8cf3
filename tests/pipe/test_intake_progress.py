"""A hung intake is recognised by positions that do not move while records wait."""

from chronoline.pipe.intake_progress import IntakeProgress


def test_positions_that_stand_still_before_the_end_count() -> None:
    progress = IntakeProgress(1)
    progress.look({0: 5}, {0: 9}, 100.0)
    progress.look({0: 5}, {0: 9}, 110.0)
    assert progress.still_s == 10.0
    progress.look({0: 6}, {0: 9}, 111.0)
    assert progress.still_s == 0.0
    progress.look({0: 6}, {0: 9}, 112.0)
    assert progress.still_s == 1.0
    progress.begin()
    assert progress.still_s == 0.0
    progress.look({0: 6}, {0: 9}, 120.0)
    assert progress.still_s == 0.0


def test_an_idle_input_does_not_count() -> None:
    progress = IntakeProgress(1)
    progress.look({0: 5}, {0: 5}, 100.0)
    progress.look({0: 5}, {0: 5}, 200.0)
    assert progress.still_s == 0.0
    progress.look({0: 5}, {0: 6}, 201.0)
    assert progress.still_s == 1.0
    progress.look({}, {0: 6}, 300.0)
    assert progress.still_s == 0.0


def test_each_task_counts_by_itself() -> None:
    progress = IntakeProgress(2)
    progress.look({3: 0, 5: 0, 7: 0}, {3: 9, 5: 9, 7: 9}, 100.0)
    progress.look({3: 1, 5: 0, 7: 0}, {3: 9, 5: 9, 7: 9}, 107.0)
    assert progress.still_s == 7.0  # partition 5 is the second task's
    progress.look({3: 1, 5: 2, 7: 0}, {3: 9, 5: 9, 7: 9}, 108.0)
    assert progress.still_s == 1.0
