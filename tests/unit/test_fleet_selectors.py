"""Selectors say which processes are meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InvalidArgument
from weft.fleet.selectors import EVERYTHING, Selector

REDIS = {
    "exe": ("redis-server", "redis-check-rdb", "/usr/bin/redis-check-rdb"),
    "pid": ("4711",),
    "uid": ("107",),
    "user": ("redis",),
    "cgroup": ("/system.slice/redis-server.service",),
    "container": ("4f" * 32,),
    "netns": ("4026531840", "own"),
    "host": ("web-1.example.org",),
    "label.zone": ("b",),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", True),
        ("exe=redis-server", True),
        ("exe=redis-server and label.zone=b", True),
        ("exe=redis-server and label.zone=c", False),
        ("exe=/usr/bin/*", True),
        ("exe=redis-*", True),
        ("exe=redis", False),
        ("exe!=redis-server", False),
        ("not exe=postgres", True),
        ("exe=postgres or pid=4711", True),
        ("exe=postgres or pid=4711 and uid=0", False),
        ("(exe=postgres or pid=4711) and uid=107", True),
        ("pid in (1, 4711)", True),
        ("pid in (1,2)", False),
        ("host in (twin, web-1*)", True),
        ("not (exe=postgres or pid=4711)", False),
        ("not not exe=redis-server", True),
        ("user='redis' and cgroup=/system.slice/*", True),
        ('cgroup="/system.slice/redis-server.service"', True),
        ("container=4f4f4f", True),
        ("container=4f4f4f*", True),
        ("container=5f", False),
        ("netns=own", True),
        ("host=web-*.example.org", True),
        ("label.zone=*", True),
        ("label.rack=*", False),
        ("label.rack!=1", True),
        ("exe=[a-r]edis-server", True),
        ("exe=in-memory or user=android", False),
    ],
)
def test_what_is_meant(text: str, expected: bool) -> None:
    assert Selector.parse(text).matches(REDIS) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no selector"),
        ("exe", "is no selector"),
        ("exe=", "at its end"),
        ("exe=a and", "at its end"),
        ("exe=a b", "goes wrong at 'b'"),
        ("((exe=a)", "is no selector"),
        ("exe==a", "is no selector"),
        ("*=a", "is no selector"),
        ("exe='a", "is no selector"),
        ("exee=a", "did you mean exe"),
        ("label.=a", "is no selector"),
        ("(" * 200 + "exe=a" + ")" * 200, "nested"),
        ("not " * 200 + "exe=a", "nested"),
        ("exe=" + "a" * 5000, "too long"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=r"selector|field") as refused:
        Selector.parse(text)
    assert said in str(refused.value)


def test_what_is_not_known_may_be() -> None:
    of_host = {"host": ("a",), "label.zone": ("b",)}
    assert Selector.parse("exe=redis-server and label.zone=b").may_match(of_host)
    assert not Selector.parse("exe=redis-server and label.zone=c").may_match(of_host)
    assert Selector.parse("not exe=redis-server").may_match(of_host)
    assert not Selector.parse("exe=redis-server and label.zone=b").matches(of_host)
    assert not Selector.parse("not exe=redis-server").matches(of_host)


def test_everything_is_everything() -> None:
    assert EVERYTHING.matches(REDIS)
    assert EVERYTHING.matches({})


@given(st.text(max_size=200))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        Selector.parse(text).matches(REDIS)
    except InvalidArgument as refused:
        assert refused.what


VALUES = st.text("abcxyz-_./0123456789", min_size=1, max_size=8).filter(
    lambda text: text not in ("and", "or", "not", "in")
)
TERMS = st.builds("{}={}".format, st.sampled_from(["exe", "pid", "label.zone"]), VALUES)
TEXTS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not {}".format, inner),
    ),
    max_leaves=6,
)


@given(TEXTS)
def test_what_is_not_meant_is_meant_by_its_opposite(text: str) -> None:
    assert Selector.parse(text).matches(REDIS) is not Selector.parse(f"not ({text})").matches(REDIS)
