"""The memory of responses that their clients have not read."""

from __future__ import annotations

from collections.abc import Callable


class DistinctThings:
    """The size of distinct things.  A thing may be added several times, and counts once."""

    __slots__ = ("_counts", "size")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  #: by identity
        self.size = 0

    def add(self, thing: object, size: int) -> None:
        count = self._counts.get(id(thing), 0)
        self._counts[id(thing)] = count + 1
        if not count:
            self.size += size

    def remove(self, thing: object, size: int) -> None:
        count = self._counts.pop(id(thing)) - 1
        if count:
            self._counts[id(thing)] = count
        else:
            self.size -= size


class UnreadBudget:
    """Limits what is kept in memory only for clients that have not read it, of all connections together.

    Bytes for several connections count once.  If all bytes together exceed the limit, the owner with the most loses the
    connection with the most, so an owner can only exhaust its own share.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._owners: dict[str, Owner] = {}
        self._all = DistinctThings()
        self.disconnected = 0  #: clients so far

    @property
    def total(self) -> int:
        return self._all.size

    def open(self, owner: str, disconnect: Callable[[], None]) -> UnreadAccount:
        """The account of one response.  `disconnect` is called if it must be given up."""
        found = self._owners.get(owner)
        if found is None:
            found = self._owners[owner] = Owner()
        account = UnreadAccount(self, owner, disconnect)
        found.accounts.add(account)
        return account

    # --- called by accounts -----------------------------------------------------------------------

    def add(self, owner: str, thing: object, size: int) -> None:
        self._owners[owner].tally.add(thing, size)
        self._all.add(thing, size)

    def remove(self, owner: str, thing: object, size: int) -> None:
        self._owners[owner].tally.remove(thing, size)
        self._all.remove(thing, size)

    def close(self, account: UnreadAccount) -> None:
        found = self._owners[account.owner]
        found.accounts.remove(account)
        if not found.accounts:
            del self._owners[account.owner]

    def enforce(self) -> None:
        while self._all.size > self._limit:
            owner = max(self._owners.values(), key=lambda owner: owner.tally.size)
            account = max(owner.accounts, key=lambda account: account.size)
            self.disconnected += 1
            account.give_up()


class Owner:
    __slots__ = ("accounts", "tally")

    def __init__(self) -> None:
        self.accounts: set[UnreadAccount] = set()
        self.tally = DistinctThings()


class UnreadAccount:
    """What is kept for one response."""

    __slots__ = ("_budget", "_disconnect", "_held", "_is_open", "owner", "size")

    def __init__(self, budget: UnreadBudget, owner: str, disconnect: Callable[[], None]) -> None:
        self._budget = budget
        self._disconnect = disconnect
        self._held: dict[int, list[tuple[object, int]]] = {}  #: by identity
        self._is_open = True
        self.owner = owner
        self.size = 0

    def hold(self, thing: object, size: int) -> None:
        """May disconnect any client, also this one."""
        if self._is_open:
            self._held.setdefault(id(thing), []).append((thing, size))
            self.size += size
            self._budget.add(self.owner, thing, size)
            self._budget.enforce()

    def release(self, thing: object) -> None:
        """Does nothing for a thing that is not held."""
        held = self._held.get(id(thing))
        if held:
            self._remove(*held.pop())
            if not held:
                del self._held[id(thing)]

    def close(self) -> None:
        """The response is written or given up."""
        if self._is_open:
            self._is_open = False
            for held in self._held.values():
                for thing, size in held:
                    self._remove(thing, size)
            self._held.clear()
            self._budget.close(self)

    def _remove(self, thing: object, size: int) -> None:
        self.size -= size
        self._budget.remove(self.owner, thing, size)

    def give_up(self) -> None:
        self.close()
        self._disconnect()
