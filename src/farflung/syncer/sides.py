"""The two sides of a syncer: the mailbox, and the edge."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from farflung.client.errors import ClientError, NotFound, Unreachable
from farflung.client.resource import Collection
from farflung.client.rest import EVERYTHING, Client, PatchType, Selection
from farflung.controllers.placement_translator.kinds import is_system
from farflung.controllers.placement_translator.values import Kind
from farflung.machinery.errors import Obj
from farflung.runtime.reflector import CLUSTER as CLUSTER_NAME
from farflung.syncer.copies import Copy
from farflung.syncer.feeds import Feeds
from farflung.syncer.kinds import Kinds
from farflung.syncer.shaping import is_create_only, is_downsynced
from farflung.syncer.values import FINALIZER, Part, Resource
from farflung.syncer.whose import CLUSTER, CLUSTERS

DEFINITIONS: Final = Collection("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
#: what others write about objects, and what follows them
BESIDE: Final = frozenset({"events", "endpoints", "endpointslices", "leases", "controllerrevisions"})


class MailboxEndsError(ClientError):
    """What is deleted in it is not withdrawn: all of it goes."""


@contextlib.contextmanager
def gone(part: Part) -> Iterator[None]:
    """Nothing is wrong if a server says that the object is not there.  Another server, that knows nothing of it, is
    not believed."""
    try:
        yield
    except NotFound as error:
        if not error.names(part.name):
            raise


@dataclass(frozen=True, slots=True)
class Mailbox:
    client: Client
    kinds: Kinds
    copies: Feeds[Copy]

    async def check(self, incarnation: str) -> None:
        """Whether what was being deleted there was withdrawn.  Raises MailboxEndsError if the mailbox itself is being
        deleted, or is another one by now."""
        if self.kinds.mailbox.groups == ():
            raise Unreachable("what the mailbox serves is not known yet")
        if self.kinds.mailbox.find(CLUSTERS.group, CLUSTERS.plural) is None:
            return  # not a workspace: it cannot end
        metadata = (await self.client.get(CLUSTERS, CLUSTER))["metadata"]
        if "deletionTimestamp" in metadata:
            raise MailboxEndsError("the mailbox is being deleted: what came from it stays at the edge")
        if (metadata.get("annotations") or {}).get(CLUSTER_NAME) != incarnation:
            raise MailboxEndsError("the mailbox was made anew: what came from the old one stays at the edge")

    async def guard(self, part: Part, copy: Copy) -> None:
        """Let it not go before it is gone at the edge."""
        await self._set_finalizers(part, copy, add=True)

    async def release(self, part: Part, copy: Copy) -> None:
        await self._set_finalizers(part, copy, add=False)

    async def _set_finalizers(self, part: Part, copy: Copy, *, add: bool) -> None:
        collection = self.copies.collection(part.resource)
        if collection is None:
            raise MailboxEndsError(f"the mailbox does not serve {part.resource.plural}")
        finalizers, version = copy.finalizers, str(copy.revision)
        with gone(part):
            if finalizers is None:
                metadata = (await self.client.get(collection, part.name, part.namespace))["metadata"]
                finalizers, version = tuple(metadata.get("finalizers") or ()), metadata["resourceVersion"]
            others = [one for one in finalizers if one != FINALIZER]
            wanted = [*others, FINALIZER] if add else others
            patch = {"metadata": {"uid": copy.uid, "resourceVersion": version, "finalizers": wanted}}
            answer = await self.client.patch(collection, part.name, patch, part.namespace)
            if add or others:
                self.copies.assume(part.resource, answer)

    async def set_status(self, part: Part, copy: Copy, status: Obj) -> None:
        """Nothing happens if it is gone, or another one by now."""
        collection = self.copies.collection(part.resource)
        if collection is None:
            return
        subresource = "status" if self.kinds.has_status(part.resource, collection.version) else ""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": copy.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        with gone(part):
            answer = await self.client.patch(
                collection, part.name, patch, part.namespace, subresource, how=PatchType.JSON
            )
            self.copies.assume(part.resource, answer)


@dataclass(frozen=True, slots=True)
class Edge:
    client: Client
    kinds: Kinds
    objects: Feeds[Obj]  #: those that look like ours, slim

    async def read(self, collection: Collection, part: Part) -> Obj | None:
        """The whole of it, as it is now."""
        with gone(part):
            return await self.client.get(collection, part.name, part.namespace)
        return None

    async def stranger_in(self, part: Part) -> str:
        """Something that is in a namespace, or of a kind that a definition defines, and that nobody withdrew; empty if
        there is none.  Of what is ours, nothing is left that is remembered."""
        if part.resource == Resource("", "namespaces"):
            inside = [one for one in self.kinds.containing() if one.plural not in BESIDE]
            for collection in inside:
                if found := await self._stranger(collection, Selection(namespace=part.name)):
                    return found
            return ""
        plural, _, group = part.name.partition(".")
        defined = self.kinds.at_edge(Resource(group, plural))
        return "" if defined is None else await self._stranger(defined, EVERYTHING)

    async def _stranger(self, collection: Collection, selection: Selection) -> str:
        for one in await self.client.list(collection, selection):
            metadata = one["metadata"]
            if not (
                (is_downsynced(one) and is_create_only(one))
                or metadata.get("ownerReferences")
                or "deletionTimestamp" in metadata
                or is_system(Kind(collection.group, collection.plural), one)
            ):
                return f"{collection.kind} {metadata['name']}"
        return ""
