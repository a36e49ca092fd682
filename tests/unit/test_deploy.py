"""What starts `weft host` elsewhere: it has the options that there are, and no more rights."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from weft.cli import main
from weft.fleet.policy import Policy

DEPLOY = Path(__file__).parents[2] / "deploy"
CAPABILITIES = {"SYS_PTRACE", "DAC_READ_SEARCH"}


def options() -> set[str]:
    command = main.get_command(click.Context(main), "host")
    assert command is not None
    return {option for one in command.params for option in one.opts}


def test_the_unit_of_systemd() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "weft-host.service")
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1] == "host"
    assert {word for word in words if word.startswith("--")} <= options()
    assert service["CapabilityBoundingSet"].split() == [
        "CAP_SYS_PTRACE",
        "CAP_DAC_READ_SEARCH",
    ]
    assert service["RuntimeDirectoryMode"] == service["LogsDirectoryMode"] == "0700"


def test_the_manifest_of_kubernetes() -> None:
    documents: dict[str, Any] = {
        one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    }
    pod = documents["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostPID"] is True
    assert "hostNetwork" not in pod
    assert {word.partition("=")[0] for word in container["args"]} <= options()
    rights = container["securityContext"]
    assert set(rights["capabilities"]["add"]) == CAPABILITIES
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert rights["allowPrivilegeEscalation"] is False
    assert "privileged" not in rights
    volumes = {one["name"] for one in pod["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    assert Policy.parse(documents["ConfigMap"]["data"]["policy.toml"]).rules


@pytest.mark.parametrize("version", ["1.30", "1.35"])
def test_the_manifest_is_what_kubernetes_takes(version: str) -> None:
    for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_manifest_with_a_mistake_is_not() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    daemon_set = next(one for one in documents if one["kind"] == "DaemonSet")
    daemon_set["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemon_set, "1.35", strict=True)


def test_the_container() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    assert lines[-1] == 'ENTRYPOINT ["weft", "host"]'
    wanted = next(line for line in lines if "--cap-add" in line)
    assert all(f"--cap-add={one}" in wanted for one in CAPABILITIES)


def test_the_dashboard_of_grafana() -> None:
    dashboard = json.loads((DEPLOY / "grafana-fleet.json").read_text())
    panels = dashboard["panels"]
    assert len({one["id"] for one in panels}) == len(panels) > 0
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    places: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & places
        places |= own
        assert max(x for x, _ in own) < 24
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            named = set(re.findall(r"\$(\w+)", target["expr"]))
            assert named <= {*variables, "__rate_interval"}
