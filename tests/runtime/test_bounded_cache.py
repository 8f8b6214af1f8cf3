"""A full cache gives up its oldest entry for a new one."""

from chronoline.runtime.bounded_cache import BoundedCache


def make_cache(*keys: str, most: int) -> BoundedCache[str, int]:
    cache = BoundedCache[str, int](most)
    for number, key in enumerate(keys):
        cache.put(key, number)
    return cache


def test_oldest_entry_makes_room_for_a_new_one() -> None:
    cache = make_cache("a", "b", "c", most=2)
    assert list(cache) == ["b", "c"]
    assert (cache.get("a"), cache.get("c"), len(cache)) == (None, 2, 2)


def test_changed_entry_keeps_its_age() -> None:
    cache = make_cache("a", "b", "a", most=2)
    assert cache.get("a") == 2
    cache.put("c", 3)
    assert list(cache) == ["b", "c"]


def test_removed_entry_leaves_room() -> None:
    cache = make_cache("a", "b", most=2)
    assert (cache.pop("a"), cache.pop("a")) == (0, None)
    cache.put("c", 3)
    assert list(cache) == ["b", "c"]
    assert "a" not in cache


def test_keys_can_be_removed_while_they_are_walked() -> None:
    cache = make_cache("a", "b", most=2)
    for key in cache:
        cache.pop(key)
    assert not cache
