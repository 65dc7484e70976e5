"""Mailboxes that machines are brought to serve Pods, whatever somebody does to them."""

from __future__ import annotations

from fleet import fleet
from platform_harness import APIS, MASTER

from farflung.client.rest import Client
from farflung.machines.delivery import PODS_BINDING, RECHECK, MailboxSetup


async def test_a_mailbox_gets_a_binding_if_it_serves_no_pods_and_again_when_that_is_taken_away() -> None:
    async with fleet() as one:
        mailbox, now = await one.hub.workspace("mailbox"), [0.0]
        everywhere = Client(one.masters, "/clusters/*", "test")
        setup = MailboxSetup(everywhere.workspace, lambda: now[0])

        async def is_served() -> bool:
            return (await one.hub.of(MASTER, "GET", f"/clusters/{mailbox}/api/v1/pods")).status == 200

        for _ in range(2):
            assert not await is_served()
            await setup.ensure_pods_api(mailbox)
            await setup.ensure_pods_api(mailbox)
            await one.eventually(is_served, "Pods")
            await setup.ensure_pods_api(mailbox)
            asked = len(one.masters.requests)
            await setup.ensure_pods_api(mailbox)
            assert len(one.masters.requests) == asked  # nobody asks again at once
            path = f"/clusters/{mailbox}{APIS}/apibindings/{PODS_BINDING}"
            assert (await one.hub.of(MASTER, "DELETE", path)).status == 200

            async def is_gone(path: str = path) -> bool:
                gone = (await one.hub.of(MASTER, "GET", path)).status == 404
                return gone and not await is_served()

            await one.eventually(is_gone, "the end of it")
            now[0] += RECHECK
