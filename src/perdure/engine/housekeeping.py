"""What has to be done now and then beside running workflows.

* Give back what lost workers held, so that others take it over.
* Release leases that name this worker though it does not run them.
* The elected chores: publish the gauges of the store, prune closed workflows.

One chore that fails does not keep the next from being done, and all are tried again.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from perdure.engine.database.gauges import gauges
from perdure.engine.database.lease import held, holders, release_held, release_lost
from perdure.engine.database.prune import prune
from perdure.fleet import Chore, Fleet
from perdure.ids import Id
from perdure.kv import Subspace

if TYPE_CHECKING:
    from perdure.engine.services import Services

__all__ = ["Housekeeping"]

_LOST_BATCH = 200
_PRUNE_BATCH = 200


class Housekeeping:
    """The chores of one worker. `running` says what it has in memory, and is only looked at."""

    def __init__(self, services: Services, fleet: Fleet, running: Container[Id]) -> None:
        self._services = services
        self._fleet = fleet
        self._running = running
        self._strays: set[Id] = set()
        options = services.options
        self._metrics_chore = self._chore("metrics", options.metrics_interval)
        self._prune_chore = self._chore("prune", options.prune_interval)
        self._next_metrics = 0.0
        self._next_prune = 0.0

    def _chore(self, name: str, interval: float) -> Chore:
        services = self._services
        ttl = 3 * max(interval, services.options.ping_interval)
        return Chore(
            services.database,
            Subspace(services.keys.node),
            name,
            self._fleet.node,
            clock=services.clock,
            ttl=ttl,
        )

    async def run(self) -> None:
        """Do everything once per ping interval, until cancelled."""
        services = self._services
        while True:
            await services.clock.sleep(services.options.ping_interval)
            for chore in (self._fail_over, self._reconcile, self._publish_gauges, self._prune):
                try:
                    await chore()
                except Exception as error:  # a defect in one chore must not end the others
                    services.log.warning(
                        "housekeeping failed",
                        chore=chore.__name__.strip("_"),
                        error=f"{type(error).__name__}: {error}",
                    )

    async def leave(self) -> None:
        """Give back every lease that is left, and the chores."""
        await self._give_back_all(self._fleet.node)
        await self._metrics_chore.release()
        await self._prune_chore.release()

    # -- leases

    async def _fail_over(self) -> None:
        """Give back what lost workers held."""
        services = self._services
        known = await holders(services.database, services.keys)
        for lost in await self._fleet.lost(known):
            count = await self._give_back_all(lost)
            await self._fleet.forget(lost)
            services.log.warning("a worker was lost", worker=str(lost), workflows=count)

    async def succeed(self) -> None:
        """Give back what the former owners of this store held when they died."""
        for dead in await self._fleet.others():
            count = await self._give_back_all(dead)
            await self._fleet.forget(dead, surely_dead=True)
            self._services.log.info(
                "the store's last worker died", worker=str(dead), workflows=count
            )

    async def _give_back_all(self, worker: Id) -> int:
        services = self._services
        total = 0
        while True:
            count, names = await release_lost(
                services.database, services.keys, worker, services.clock.now(), _LOST_BATCH
            )
            services.doorbell.ring(*sorted(names))
            total += count
            if count < _LOST_BATCH:
                return total

    async def _reconcile(self) -> None:
        """Release leases that name this worker but that it does not run.

        Only those seen so twice: a lease may have been committed and not be heard of yet.
        """
        services = self._services
        leased = await held(services.database, services.keys, self._fleet.node)
        suspects = self._strays
        self._strays = {each for each in leased if each not in self._running}
        for workflow_id in sorted(suspects & self._strays):
            name = await release_held(
                services.database,
                services.keys,
                self._fleet.node,
                workflow_id,
                services.clock.now(),
            )
            if name is not None:
                services.log.warning("a stray lease was released", workflow_id=str(workflow_id))
                services.doorbell.ring(name)

    # -- elected chores

    async def _publish_gauges(self) -> None:
        services = self._services
        if services.clock.monotonic() < self._next_metrics:
            return
        self._next_metrics = services.clock.monotonic() + services.options.metrics_interval
        if await self._metrics_chore.hold():
            values = await gauges(services.database, services.keys)
            services.metrics.global_gauges.expose(values, self._metrics_chore.ttl)
            services.metrics.gauges_published(services.clock.now())
        else:
            services.metrics.global_gauges.hide()

    async def _prune(self) -> None:
        services = self._services
        options = services.options
        if options.prune_after is None or services.clock.monotonic() < self._next_prune:
            return
        self._next_prune = services.clock.monotonic() + options.prune_interval
        if not await self._prune_chore.hold():
            return
        before = services.clock.now() - round(options.prune_after * 1000)
        total = 0
        cursor: bytes | None = None
        while True:
            now = services.clock.now()
            pruned = await prune(
                services.database, services.keys, before, _PRUNE_BATCH, now, cursor
            )
            total += pruned.count
            cursor = pruned.cursor
            if cursor is None or not await self._prune_chore.hold():
                break
        if total:
            services.log.info("closed workflows were pruned", count=total)
