"""What people type."""

import click
import pytest

from perdure.cli.output import ago, clean, moment, shown, span
from perdure.cli.parameters import duration, instant, json_value, tag, workflow_id
from perdure.clock import SYSTEM_CLOCK
from perdure.ids import Id


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("90s", 90_000), ("1.5h", 5_400_000), ("1d12h", 129_600_000)],
)  # fmt: skip
def test_durations(text: str, milliseconds: int) -> None:
    assert duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "h", "5 h", "1y", "-1h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        duration(text)


def test_instants() -> None:
    assert instant("1970-01-02T00:00Z") == 86_400_000
    assert instant("1970-01-02T00:00+01:00") == 82_800_000
    now = SYSTEM_CLOCK.now()
    assert now - 3_600_000 - 60_000 < instant("1h") <= now - 3_600_000 + 60_000
    with pytest.raises(click.BadParameter, match="no time"):
        instant("yesterday")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=b", ("a", "b")),
        ("a=", ("a", "")),
        ("a=b=c", ("a", "b=c")),
        ("a=1", ("a", "1")),
        ("a:=1", ("a", 1)),
        ("a:=true", ("a", True)),
        ("a:b=c", ("a:b", "c")),
    ],
)
def test_tags(text: str, pair: tuple[str, object]) -> None:
    found = tag(text)
    assert found == pair
    assert type(found[1]) is type(pair[1])


@pytest.mark.parametrize("text", ["a", "=b", ":=1", "a:=1.5", "a:=nonsense", "a:=[1]"])
def test_what_is_no_tag(text: str) -> None:
    with pytest.raises(click.BadParameter):
        tag(text)


def test_json() -> None:
    assert json_value('{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(click.BadParameter, match="not JSON"):
        json_value("plain text")


def test_ids_in_either_case() -> None:
    made = Id.new()
    assert workflow_id(str(made).upper()) == str(made)
    with pytest.raises(click.BadParameter, match="30 characters"):
        workflow_id("nonsense")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (61_000, "1m 1s"),
        (3_600_000, "1h"),
        (3_660_000, "1h 1m"),
        (3_601_000, "1h"),
        (90_000_000, "1d 1h"),
    ],
)
def test_spans(milliseconds: int, text: str) -> None:
    assert span(milliseconds) == text


def test_before_and_after() -> None:
    assert ago(1_000, 3_000) == "2s ago"
    assert ago(3_000, 1_000) == "in 2s"


def test_moments_keep_milliseconds() -> None:
    assert moment(1_234).endswith(".234")


def test_texts_from_the_store_cannot_drive_the_terminal() -> None:
    assert clean("a\x1b[31mred\r\n").plain == "a\\x1b[31mred\\r\n"
    assert clean("[bold]no markup[/bold]").plain == "[bold]no markup[/bold]"


def test_values_are_cut() -> None:
    text = shown("x" * 500, limit=10).plain
    assert text == '"xxxxxxxxx... (502 characters)'
