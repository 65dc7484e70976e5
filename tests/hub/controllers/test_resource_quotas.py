"""What the status of a ResourceQuota tells."""

from __future__ import annotations

from house import House

from farflung.machinery.errors import Obj

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def limit(house: House, **hard: str) -> None:
    await house.client.request("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})


async def status(house: House) -> Obj:
    await house.settle()
    quota = await house.client.request("GET", f"{QUOTAS}/q")
    found: Obj = quota["status"]
    return found


async def test_it_tells_what_is_allowed_and_what_is_used(house: House) -> None:
    await limit(house, configmaps="10", **{"requests.cpu": "2", "count/deployments.apps": "1"})
    hard = {"configmaps": "10", "requests.cpu": "2", "count/deployments.apps": "1"}
    assert await status(house) == {
        "hard": hard,
        "used": {"configmaps": "1", "requests.cpu": "0", "count/deployments.apps": "0"},
    }
    await house.create("configmaps", "a")
    assert (await status(house))["used"]["configmaps"] == "2"
    await house.delete("configmaps", "a")
    assert (await status(house))["used"]["configmaps"] == "1"


async def test_it_follows_its_spec(house: House) -> None:
    await limit(house, configmaps="10", secrets="5")
    await status(house)
    change = {"spec": {"hard": {"configmaps": "7", "secrets": None}}}
    await house.client.request("PATCH", f"{QUOTAS}/q", change, media="application/merge-patch+json")
    assert await status(house) == {"hard": {"configmaps": "7"}, "used": {"configmaps": "1"}}


async def test_nothing_is_written_when_nothing_changed(house: House) -> None:
    await limit(house, secrets="5")
    await status(house)
    before = house.store.revision
    await house.create("configmaps", "a")
    await house.settle()
    assert house.store.revision == before + 1
    await house.restart()
    await house.settle()
    assert house.store.revision == before + 1


async def test_a_new_hub_tells_what_happened_meanwhile(house: House) -> None:
    await limit(house, configmaps="10")
    await status(house)
    await house.stop()
    await house.create("configmaps", "a")
    await house.restart()
    assert (await status(house))["used"] == {"configmaps": "2"}
