"""Networks that the containers of a pod share.  A pod of podman holds each, so that it stays when one of them ends."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from farflung.edge.runtimes import podman_arguments as words
from farflung.edge.runtimes.base import Container, StartError
from farflung.edge.runtimes.podman_answers import last_line
from farflung.edge.runtimes.podman_arguments import Identity
from farflung.edge.runtimes.podman_calls import ask


class Networks:
    def __init__(self, program: str, identity: Identity) -> None:
        self._program = program
        self._identity = identity
        self._members: dict[str, set[str]] = {}  #: names of containers, by the name of their pod
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def join(self, container: Container) -> None:
        """The first makes it.  Nothing to do for a container that is alone.  Raises StartError."""
        if container.shared_ports is None:
            return
        pod = self._identity.pod_name(container)
        async with self._changing.setdefault(pod, asyncio.Lock()):
            if pod not in self._members:
                answer = await ask(self._program, words.create_pod(container, self._identity))
                if not answer.worked:
                    raise StartError("CreateContainerError", last_line(answer.errors))
            self._members.setdefault(pod, set()).add(self._identity.name(container))

    async def leave(self, container: Container) -> None:
        """When the container is removed.  The last takes it away."""
        pod = self._identity.pod_name(container)
        async with self._changing.setdefault(pod, asyncio.Lock()):
            members = self._members.get(pod, set())
            members.discard(self._identity.name(container))
            if not members and self._members.pop(pod, None) is not None:
                await ask(self._program, words.remove_pods([pod]))
