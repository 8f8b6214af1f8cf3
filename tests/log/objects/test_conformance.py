"""The contract of objects, on every engine."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from chronoline.core.errors import StoreError
from chronoline.core.ids import make_id
from chronoline.log.contract import ObjectMissing, Objects


def name(number: int) -> str:
    """Names of one time, which share a folder."""
    return make_id(1_767_225_600_000, number.to_bytes(10, "big"))


def names(objects: Objects) -> set[str]:
    return {stored.name for stored in objects.list()}


def test_object_is_read_whole_and_in_parts(objects: Objects) -> None:
    data = bytes(range(256)) * 4
    objects.put(name(1), data)
    assert objects.get(name(1), 0, len(data)) == data
    assert objects.get(name(1), 100, 200) == data[100:300]
    assert objects.get(name(1), len(data) - 1, 1) == data[-1:]
    assert type(objects.get(name(1), 0, 4)) is bytes


@pytest.mark.parametrize(
    ("offset", "length", "part"),
    [(8, 10, b"89"), (9, 1, b"9"), (10, 1, b""), (1_000, 5, b""), (3, 0, b"")],
)
def test_read_ends_at_the_end_of_the_object(
    objects: Objects, offset: int, length: int, part: bytes
) -> None:
    objects.put(name(1), b"0123456789")
    assert objects.get(name(1), offset, length) == part


def test_an_empty_object_is_one(objects: Objects) -> None:
    objects.put(name(1), b"")
    assert objects.get(name(1), 0, 10) == b""
    assert [stored.size_bytes for stored in objects.list()] == [0]


def test_missing_object_is_reported(objects: Objects) -> None:
    with pytest.raises(ObjectMissing, match=name(1)):
        objects.get(name(1), 0, 1)
    objects.put(name(2), b"x")
    with pytest.raises(ObjectMissing):
        objects.get(name(1), 0, 1)


def test_repeated_put_succeeds(objects: Objects) -> None:
    objects.put(name(1), b"events")
    objects.put(name(1), b"events")
    assert objects.get(name(1), 0, 10) == b"events"
    assert len(list(objects.list())) == 1


@pytest.mark.parametrize("other", [b"Events", b"event", b"events, and more", b""])
def test_a_name_is_used_once(objects: Objects, other: bytes) -> None:
    objects.put(name(1), b"events")
    with pytest.raises(StoreError, match="other bytes; nothing was changed"):
        objects.put(name(1), other)
    assert objects.get(name(1), 0, 100) == b"events"


def test_the_list_has_names_sizes_and_times(objects: Objects) -> None:
    assert list(objects.list()) == []
    before_ms = time.time_ns() // 1_000_000
    later = make_id(1_867_225_600_000, bytes(10))
    objects.put(name(1), b"12345")
    objects.put(later, b"1")
    listed = {stored.name: stored for stored in objects.list()}
    assert {each.name: each.size_bytes for each in listed.values()} == {name(1): 5, later: 1}
    assert all(abs(each.modified_ms - before_ms) < 60_000 for each in listed.values())


def test_delete_ignores_missing_objects(objects: Objects) -> None:
    for number in range(4):
        objects.put(name(number), b"x")
    objects.delete([name(9), name(0), name(8), name(2), name(7)])
    assert names(objects) == {name(1), name(3)}
    with pytest.raises(ObjectMissing):
        objects.get(name(0), 0, 1)
    objects.delete([name(0)])
    objects.delete([])
    assert names(objects) == {name(1), name(3)}


def test_a_thousand_and_one_are_all_listed(objects: Objects) -> None:
    with ThreadPoolExecutor(4) as threads:
        wanted = {name(number) for number in range(1_001)}
        list(threads.map(lambda each: objects.put(each, b"x"), wanted))
    listed = [stored.name for stored in objects.list()]
    assert len(listed) == 1_001
    assert set(listed) == wanted
    objects.delete(listed)
    assert names(objects) == set()


def test_a_large_object_comes_back(objects: Objects) -> None:
    data = b"".join(number.to_bytes(4, "big") for number in range(10 * 1024 * 1024 // 4))
    objects.put(name(1), data)
    assert objects.get(name(1), 0, len(data)) == data
    assert objects.get(name(1), 5_000_000, 4_000) == data[5_000_000:5_004_000]
    objects.put(name(1), data)


def test_threads_put_and_get_at_once(objects: Objects) -> None:
    def work(thread: int) -> None:
        for number in range(20):
            each = name(thread * 100 + number)
            data = each.encode() * (number + 1)
            objects.put(each, data)
            assert objects.get(each, 0, 10_000) == data

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert len(names(objects)) == 160
