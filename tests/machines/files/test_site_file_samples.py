"""The files in conf/, which people start from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import read_policy
from farflung.machines.engine.values import (
    Flavor,
    FlavorChoice,
    Health,
    Item,
    MachineRequest,
    RegionChoice,
    Site,
    SiteSelector,
)
from farflung.machines.files.site_files import FILES, SiteFiles, read_site_files

ROOT = Path(__file__).parents[3]
CONF = ROOT / "conf"


@pytest.fixture(scope="module")
def base() -> SiteFiles:
    return read_site_files({file: (CONF / file).read_text() for file in FILES})


def test_every_file_of_the_original_has_a_sample() -> None:
    assert {file.name for file in CONF.iterdir()} == {*FILES, "region.yaml", "edgecloud_policy.yaml"}


def test_the_flavors_are_those_that_the_original_ships_and_those_of_regions(base: SiteFiles) -> None:
    shipped = [
        Flavor("42", 1, 128, 0, "m1.nano"),
        Flavor("1", 1, 512, 1, "m1.tiny"),
        Flavor("2", 1, 2048, 20, "m1.small"),
        Flavor("3", 2, 4096, 40, "m1.medium"),
        Flavor("4", 4, 8192, 80, "m1.large"),
        Flavor("5", 8, 16384, 160, "m1.xlarge"),
    ]
    assert [base.flavors[flavor.id] for flavor in shipped] == shipped
    assert [base.flavors[flavor.name] for flavor in shipped] == shipped
    assert {flavor.id for flavor in base.flavors.values()} - {flavor.id for flavor in shipped} == {
        "c6.large.2",
        "s6.xlarge.2",
    }


def test_the_policy_is_the_one_that_the_original_ships(base: SiteFiles) -> None:
    policy = read_policy((CONF / base.settings.policy_file).read_text())
    assert policy.filters == (
        *("SiteAvailability", "LocationAndOperator", "regionandaz", "Flavor", "Volume", "EipAvailability"),
        "ExclusiveSite",
    )
    assert policy.scorers == (("StackAffinity", 1), ("Flavor", 1), ("SiteResourcesLeastAllocated", 1))


def test_nobody_is_told_to_talk_to_a_server_that_is_not_theirs(base: SiteFiles) -> None:
    assert (base.settings.master, base.settings.kubeconfig) == ("", "")


def test_only_az1_has_what_the_first_example_asks_for(base: SiteFiles) -> None:
    """A c6.large.2 with a public address in region1."""

    def fits(site: Site) -> bool:
        there = site.region == "region1" and site.health is Health.READY and not site.tenants
        return there and site.capacity.flavors.get("c6.large.2", 0) > 0 and (site.capacity.eips or 0) > 0

    assert [site.key.name for site in base.sites] == ["az1", "az2", "az3"]
    assert [site.key.name for site in base.sites if fits(site)] == ["az1"]


def test_az1_takes_as_many_of_them_as_it_has_addresses(base: SiteFiles) -> None:
    engine = SchedulingEngine(read_policy((CONF / base.settings.policy_file).read_text()), base.flavors)
    for site in base.sites:
        engine.put_site(site)
    item = Item((FlavorChoice("c6.large.2"),), eip=True)
    requests = [
        MachineRequest(f"vm-{number}", (item,), SiteSelector(regions=(RegionChoice("region1"),)))
        for number in range(18)
    ]
    for request in requests[:17]:
        decision = engine.decide(request)
        assert [chosen.site.name for chosen in decision.chosen] == ["az1"]
        engine.reserve(engine.reservations_of(request, decision))
    assert engine.decide(requests[17]).reasons == {"wrong region": 2, "out of public addresses": 1}


@pytest.mark.parametrize(("given", "expected"), [({}, str(CONF)), ({"CONFIG_BASE": "/elsewhere"}, "/elsewhere")])
def test_the_script_runs_the_scheduler_with_the_directory_that_is_exported(
    tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    (tmp_path / "hack").mkdir()
    script = tmp_path / "hack" / "gs-scheduler-up.sh"
    script.write_bytes((ROOT / "hack" / "gs-scheduler-up.sh").read_bytes())
    command = tmp_path / "farflung"
    command.write_text('#!/bin/sh\necho "$CONFIG_BASE" "$@"\n')
    command.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **given}
    told = subprocess.run(
        ["bash", script, "--once"], env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert told.split() == [expected.replace(str(ROOT), str(tmp_path)), "global-scheduler", "--once"]
