"""The pictures of the documentation."""

from __future__ import annotations

import xml.etree.ElementTree as xml

import pytest

from docs import pictures


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_the_same_each_time(name: str) -> None:
    drawn = pictures.PICTURES[name]()
    assert xml.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert drawn == pictures.PICTURES[name]()


def test_the_live_table_shows_what_it_is_given() -> None:
    drawn = pictures.live()
    assert "redis-server" in drawn
    assert "latency" in drawn
    assert "█" in drawn
