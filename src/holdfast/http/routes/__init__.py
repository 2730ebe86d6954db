"""The routes, a file for each resource. Each parses, asks the desk once, and renders."""

from holdfast.http.routes.claims import routes as claims
from holdfast.http.routes.dead_letters import routes as dead_letters
from holdfast.http.routes.events import routes as events
from holdfast.http.routes.flows import routes as flows
from holdfast.http.routes.history import routes as history
from holdfast.http.routes.ingest import routes as ingest
from holdfast.http.routes.keys import routes as keys
from holdfast.http.routes.leases import routes as leases
from holdfast.http.routes.limits import routes as limits
from holdfast.http.routes.operations import routes as operations
from holdfast.http.routes.probes import routes as probes
from holdfast.http.routes.queues import routes as queues
from holdfast.http.routes.recoveries import routes as recoveries
from holdfast.http.routes.series import routes as series
from holdfast.http.routes.stats import routes as stats
from holdfast.http.routes.task_types import routes as task_types
from holdfast.http.routes.tasks import routes as tasks
from holdfast.http.routes.workers import routes as workers

__all__ = ["ALL"]

ALL = [
    tasks,
    task_types,
    queues,
    limits,
    workers,
    leases,
    recoveries,
    dead_letters,
    flows,
    events,
    history,
    stats,
    series,
    operations,
    keys,
    probes,
    ingest,
    claims,
]
