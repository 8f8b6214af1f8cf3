"""The gate before an output, with made-up time."""

import pytest

from chronoline.core.output_gate import DEFAULT_SHUT_MS, OutputGate

NOW = 1_000_000


def shut_gate() -> OutputGate:
    gate = OutputGate()
    gate.failed(NOW)
    return gate


def on_trial() -> OutputGate:
    gate = shut_gate()
    gate.passed()
    return gate


def test_an_open_gate_lets_everything_through() -> None:
    gate = OutputGate()
    gate.passed()
    assert gate.is_open
    assert gate.allows(NOW) is None
    assert gate.opens_at(NOW) == NOW


@pytest.mark.parametrize(
    ("after_ms", "allowed"), [(0, 0), (DEFAULT_SHUT_MS - 1, 0), (DEFAULT_SHUT_MS, 1), (10**6, 1)]
)
def test_failed_gate_lets_one_message_pass_later(after_ms: int, allowed: int) -> None:
    gate = shut_gate()
    assert not gate.is_open
    assert gate.opens_at(NOW) == NOW + DEFAULT_SHUT_MS
    assert gate.allows(NOW + after_ms) == allowed


def test_gate_on_trial_lets_nothing_pass() -> None:
    gate = on_trial()
    assert gate.allows(NOW + 10**6) == 0
    assert gate.opens_at(NOW + 10**6) is None


def test_successful_trial_opens_the_gate() -> None:
    gate = on_trial()
    gate.succeeded()
    assert gate.is_open
    assert gate.allows(NOW) is None


def test_failed_trial_shuts_the_gate_again() -> None:
    gate = on_trial()
    gate.failed(NOW + 500)
    assert gate.opens_at(NOW + 500) == NOW + 500 + DEFAULT_SHUT_MS


def test_failed_trials_double_the_time_up_to_the_longest() -> None:
    gate, waits = OutputGate(longest_ms=3 * DEFAULT_SHUT_MS), []
    gate.failed(NOW)
    gate.failed(NOW)  # of a message that passed before, and is no trial
    for _ in range(3):
        opens_at = gate.opens_at(NOW)
        assert opens_at is not None
        waits.append((opens_at - NOW) // DEFAULT_SHUT_MS)
        gate.passed()
        gate.failed(NOW)
    assert waits == [1, 2, 3]
    gate.succeeded()
    gate.failed(NOW)
    assert gate.opens_at(NOW) == NOW + DEFAULT_SHUT_MS


def test_undecided_trial_allows_another() -> None:
    gate = on_trial()
    gate.undecided()
    assert not gate.is_open
    assert gate.allows(NOW + DEFAULT_SHUT_MS) == 1


def test_clock_rollback_does_not_keep_the_gate_shut() -> None:
    assert shut_gate().allows(NOW - 3_600_000) == 1
