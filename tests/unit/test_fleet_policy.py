"""A policy allows what it says, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.errors import BadFile, InvalidArgument
from weft.fleet.health import Health, pressure
from weft.fleet.plan import Process, changes
from weft.fleet.policy import Policy
from weft.fleet.protocol import Ask, Request
from weft.fleet.selectors import Selector
from weft.fleet.texts import read as read_texts

POLICY = """
budget = "3%"

[[allow]]
requester = "alice"
processes = "exe=redis-server and not user=root"
snippets = "read"
budget = "0.5%"
requests = 2
longest = 600

[[allow]]
requester = "ops-*"
processes = "*"
snippets = "write"
weavers = ["patch", "clone"]

[[allow]]
requester = "library"
processes = "uid=1000"
"""
READS = """
metric n {
    name "n";
    units calls;
    base is counter { foreach f in hot { append preInsn f.entry (* n++; *) } }
}
list hot is procedure { items { "read" }; }
"""
CALLS = READS.replace("n++;", "n += getpid();")


def request(requester: str, **more: object) -> Request:
    fields = {"seconds": 10.0, "where": "*", "metrics": (Ask("calls"),), **more}
    return Request(id="r", requester=requester, **fields)  # type: ignore[arg-type]


def process(**facts: str) -> Process:
    known = {"exe": "redis-server", "user": "redis", "uid": "107", **facts}
    return Process(1, 2, {name: (value,) for name, value in known.items()})


def decided(asked: Request, whom: Process | None = None, running: int = 0) -> str:
    """Why it is refused; empty if it is allowed."""
    policy = Policy.parse(POLICY)
    try:
        needs = read_texts(asked).needs
    except InvalidArgument as error:
        return error.what
    decision = policy.of_request(asked, needs, running)
    if decision.allowed and whom is not None:
        decision = policy.of_process(asked, needs, whom, 0)
    return "" if decision.allowed else decision.why


ALLOWED = [
    (request("alice"), process()),
    (request("alice", texts=(READS,)), process()),
    (request("alice", probes=("entry malloc { bytes += $arg[0] }",)), process()),
    (request("alice", seconds=600.0), process()),
    (request("ops-1"), process(user="root", uid="0", exe="sshd")),
    (request("ops-1", texts=(CALLS,)), process()),
    (request("ops-1", weaver="clone"), process()),
    (request("library"), process(uid="1000")),
]
REFUSED = [
    (request("mallory"), process(), "no rule allows mallory anything"),
    (request("Alice"), process(), "no rule allows Alice anything"),
    (request("ops"), process(), "no rule"),
    (request("alice"), process(user="root"), "this process"),
    (request("alice"), process(exe="postgres"), "this process"),
    (request("alice", texts=(CALLS,)), process(), "change what a process does"),
    (request("alice", probes=("entry read { n += getpid() }",)), process(), "change what"),
    (request("alice", weaver="clone"), process(), "weaver 'clone'"),
    (request("alice", seconds=601.0), process(), "longer"),
    (request("library", texts=(READS,)), process(uid="1000"), "texts of requests"),
    (request("library", probes=("entry read { n++ }",)), process(uid="1000"), "texts"),
    (request("library"), process(uid="0"), "this process"),
    (request("library"), Process(1, 2, {"exe": ("x",)}), "this process"),
    (request("alice", texts=('import "/etc/passwd";\n',)), process(), "cannot be imported"),
    (request("alice", texts=('import "../../x.mdl";\n',)), process(), "cannot be imported"),
    (request("alice", probes=("entry f { $arg[0] = 1 }",)), process(), "$arg[0] ="),
    (request("alice", probes=("exit f { $return = 1 }",)), process(), "$return ="),
    (request("ops-1", probes=("entry f { return 7; }",)), process(), "return 7;"),
    (request("ops-1", probes=("entry f { $reg[rax] += 1 }",)), process(), "$reg[rax] +="),
]


@pytest.mark.parametrize(("asked", "whom"), ALLOWED)
def test_what_is_allowed(asked: Request, whom: Process) -> None:
    assert decided(asked, whom) == ""


@pytest.mark.parametrize(("asked", "whom", "why"), REFUSED)
def test_what_is_refused(asked: Request, whom: Process, why: str) -> None:
    assert why in decided(asked, whom)


def test_nothing_is_allowed_if_nothing_is_said() -> None:
    policy = Policy.parse("")
    assert not policy.of_request(request("alice"), "library", 0).allowed
    assert not policy.of_process(request("alice"), "library", process(), 0).allowed


def test_a_requester_has_a_quota() -> None:
    assert decided(request("alice"), running=1) == ""
    assert "2 requests already, of 2" in decided(request("alice"), running=2)


def test_a_requester_has_a_quota_of_processes() -> None:
    text = '[[allow]]\nrequester = "a"\nprocesses = "exe=redis-server"\n'
    policy = Policy.parse(text + "most_processes = 2\n")
    assert policy.of_process(request("a"), "library", process(), 1).allowed
    refused = policy.of_process(request("a"), "library", process(), 2)
    assert refused.why == "a has 2 measured already, of 2 at a time"
    assert not policy.of_process(request("a"), "library", process(exe="x"), 0).allowed
    # Another rule may allow more.
    more = Policy.parse(f"{text}most_processes = 2\n{text}budget = '3%'\n")
    found = more.of_process(request("a"), "library", process(), 2)
    assert found.rule is not None
    assert found.rule.budget == 0.03


def test_limits_of_the_pressure_on_a_machine() -> None:
    health = Policy.parse('[health]\ncpu = "80%"\nio = "0.5%"').health
    assert health.limits == (("cpu", 0.8), ("io", 0.005))
    assert Policy.parse("").health.trouble() == ""


@pytest.mark.skipif(pressure("cpu") is None, reason="this kernel tells no pressure")
def test_a_machine_without_pressure_is_in_no_trouble() -> None:
    found = pressure("memory")
    assert found is not None
    assert 0 <= found <= 1
    assert Health((("memory", 1.0),)).trouble() == ""
    Health((("memory", 1.0),)).check()


def test_a_kernel_that_does_not_tell_is_not_taken_for_a_healthy_machine() -> None:
    assert "no longer says" in Health((("heat", 0.5),)).trouble()
    with pytest.raises(InvalidArgument, match="does not say how much pressure on heat"):
        Health((("heat", 0.5),)).check()


def test_a_rule_says_what_may_be_lost() -> None:
    policy = Policy.parse(POLICY)
    assert policy.machine == 0.03
    found = policy.of_process(request("alice"), "library", process(), 0)
    assert found.rule is not None
    assert found.rule.budget == 0.005
    other = policy.of_process(request("ops-1"), "library", process(), 0)
    assert other.rule is not None
    assert other.rule.budget == 0.01


def test_a_comparison_changes_nothing() -> None:
    assert decided(request("alice", probes=("entry f { if ($arg[0] == 1) n++ }",)), process()) == ""


def test_a_text_that_looks_like_a_file_is_a_text() -> None:
    with pytest.raises(Exception, match="mistake"):
        read_texts(request("alice", texts=("/etc/passwd.mdl",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "no TOML"),
        ("colour = 1", "no 'colour' in a policy"),
        ("allow = 1", "no table"),
        ("[[allow]]", "no text 'requester' in [[allow]] number 1"),
        ('[[allow]]\nrequester = "a"', "no text 'processes'"),
        ('[[allow]]\nrequester = "a"\nprocesses = "exe"', "is no selector"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nsnippets = "all"', "snippets = 'all'"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nbudget = "all"', "no percentage"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nbudget = 0.01', "no percentage"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nbudget = "nan%"', "no percentage"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nweavers = "patch"', "no list"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nweavers = ["x"]', "no weaver 'x'"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nlongest = inf', "longest = inf"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nrequests = -1', "requests = -1"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nlongest = "1h"', "longest"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\ncolor = 1', "no 'color'"),
        ('[[allow]]\nrequester = "a"\nprocesses = "*"\nmost_processes = 1.5', "most_processes"),
        ('budget = "200%"', "no percentage"),
        ("health = 1", "'health' is no table"),
        ('[health]\nheat = "1%"', "no 'heat' in [health]"),
        ("[health]\ncpu = 0.5", "no percentage"),
    ],
)
def test_a_policy_with_a_mistake_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(BadFile) as refused:
        Policy.read(file)
    assert said in str(refused.value)


def test_a_policy_that_others_may_change_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    file.chmod(0o666)
    with pytest.raises(BadFile, match="others may change"):
        Policy.read(file)
    file.chmod(0o644)
    assert Policy.read(file) == Policy()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_policy_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    os.chown(file, 65534, 65534)
    with pytest.raises(BadFile, match="belongs to another"):
        Policy.read(file)


def test_a_policy_that_others_may_replace_is_refused(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    folder = outer / "inner"
    folder.mkdir(parents=True)
    file = folder / "policy.toml"
    file.write_text("")
    file.chmod(0o600)
    link = tmp_path / "policy.toml"
    link.symlink_to(file)
    for changed in (folder, outer):
        changed.chmod(0o777)
        for path in (file, link):
            with pytest.raises(BadFile, match="others may replace the policy") as refused:
                Policy.read(path)
            assert str(changed) in refused.value.why
        changed.chmod(0o1777)
        assert Policy.read(file) == Policy()
        changed.chmod(0o755)


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot read the policy"):
        Policy.read(tmp_path / "policy.toml")


# What there is to do.


def of(pid: int, started: int = 1, exe: str = "redis-server") -> Process:
    return Process(pid, started, {"exe": (exe,)})


def test_what_matches_begins_and_what_has_gone_ends() -> None:
    selector = Selector.parse("exe=redis-server")
    there = [of(1), of(2), of(3, exe="bash"), of(4)]
    plan = changes(selector, there, {(2, 1), (9, 1)}, {(4, 1)})
    assert [one.pid for one in plan.begin] == [1]
    assert plan.end == ((9, 1),)


def test_an_id_that_is_given_again_is_another_process() -> None:
    plan = changes(Selector.parse("*"), [of(7, started=20)], {(7, 10)}, set())
    assert [one.identity for one in plan.begin] == [(7, 20)]
    assert plan.end == ((7, 10),)


def test_what_no_longer_matches_goes_on() -> None:
    plan = changes(Selector.parse("exe=a"), [of(7, exe="b")], {(7, 1)}, set())
    assert (plan.begin, plan.end) == ((), ())


def test_nothing_is_to_do_twice() -> None:
    selector, there = Selector.parse("*"), [of(1), of(2)]
    first = changes(selector, there, set(), set())
    assert changes(selector, there, {one.identity for one in first.begin}, set()).begin == ()
