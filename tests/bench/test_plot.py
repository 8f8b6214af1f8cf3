"""Plots of lateness: well-formed pictures that hold their series and marks."""

from xml.etree import ElementTree as ET

import pytest

from chronoline_bench.harness.slices import Point, slices_of
from chronoline_bench.plot import HEIGHT, WIDTH, Line, Mark, Panel, Plot, lateness_lines

SVG = "{http://www.w3.org/2000/svg}"


def draw(*lines: Line, marks: tuple[Mark, ...] = ()) -> ET.Element:
    plot = Plot(title="1,000/s & <more>", subtitle="on 2 cores", lines=lines, marks=marks)
    return ET.fromstring(plot.svg())


def paths(picture: ET.Element, kind: str) -> list[str]:
    """The paths of a kind; the first is its sample in the legend."""
    found = [each for each in picture.iter(f"{SVG}path") if each.get("class") == f"line {kind}"]
    return [each.get("d", "") for each in found]


def texts(picture: ET.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}text")]


def run(late_ms: float, *, gap_s: int = -1) -> list[Point]:
    return [(s * 1_000_000, late_ms) for s in range(10) if s != gap_s]


def test_picture_holds_every_series_and_its_name() -> None:
    lines = lateness_lines(slices_of(run(5), 0, 1), slices_of(run(0.2), 0, 1))
    picture = draw(*lines)
    for kind in ("p50", "p99", "max", "control"):
        sample, drawn = paths(picture, kind)
        assert sample != drawn
        assert drawn.count("L") == 9
    assert {"p50", "p99", "max", "the sleeping control, p99"} <= set(texts(picture))


def test_title_and_axes_are_labelled() -> None:
    words = texts(draw(Line(name="p99", kind="p99", points=[(0, 3), (60, 2_000)])))
    assert {"1,000/s & <more>", "on 2 cores", "lateness"} <= set(words)
    assert {"0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s"} <= set(words)
    assert {"0", "30", "60"} <= set(words)


def test_lateness_is_drawn_on_a_log_axis() -> None:
    line = Line(name="p99", kind="p99", points=[(0, 1), (1, 10), (2, 100)])
    _, drawn = paths(draw(line), "p99")
    heights = [float(step.split()[1]) for step in drawn[1:].replace("L", "M").split(" M")]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


def test_early_and_timely_messages_stay_within_the_picture() -> None:
    line = Line(name="p99", kind="p99", points=[(0, -5), (1, 0), (2, 1e6)])
    _, drawn = paths(draw(line), "p99")
    for step in drawn[1:].replace("L", "M").split(" M"):
        x, y = map(float, step.split())
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_line_is_broken_where_nothing_was_due() -> None:
    (line, *_) = lateness_lines(slices_of(run(5, gap_s=4), 0, 1), [])
    _, drawn = paths(draw(line), line.kind)
    assert drawn.count("M") == 2


@pytest.mark.parametrize("last_s", [20.0, 30.0])
def test_fault_is_marked_with_its_name(last_s: float) -> None:
    line = Line(name="p99", kind="p99", points=[(0, 3), (60, 3)])
    picture = draw(line, marks=(Mark(name="Kafka away", first_s=20, last_s=last_s),))
    (mark,) = (each for each in picture.iter(f"{SVG}rect") if each.get("class") == "fault")
    width = float(mark.get("width", "-1"))
    assert width == pytest.approx(max(0.1, (last_s - 20) / 60 * (WIDTH - 96)), abs=0.2)
    assert "Kafka away" in texts(picture)


def test_picture_without_points_is_empty() -> None:
    assert paths(draw(*lateness_lines([], [])), "p50")[1] == ""


def test_panel_has_its_own_axis_and_all_marks() -> None:
    late = Line(name="p99", kind="p99", points=[(0, 3), (3_600, 3)])
    memory = Line(name="broker", kind="ours", points=[(0, 120), (1_800, 180), (3_600, 150)])
    mark = Mark(name="B", first_s=60, last_s=60)
    panel = Panel(name="memory, MB", lines=[memory])
    plot = Plot(title="t", subtitle="s", lines=[late], marks=[mark], panels=[panel])
    picture = ET.fromstring(plot.svg())
    words = texts(picture)
    assert {"memory, MB", "50", "200", "60", "minutes since the start of the load"} <= set(words)
    assert words.count("B") == 1
    assert len([each for each in picture.iter() if each.get("class") == "fault"]) == 2
    _, drawn = paths(picture, "ours")
    heights = [float(step.split()[1]) for step in drawn[1:].replace("L", "M").split(" M")]
    assert min(heights) > HEIGHT
    assert max(heights) < float(picture.get("height", "0"))
    assert (heights[0] - heights[1]) / (heights[0] - heights[2]) == pytest.approx(2, abs=0.05)
