"""The database under the stage: a clock that can be moved, scenes put back in a moment, and what
must be true whatever happened."""

from datetime import timedelta
from uuid import UUID

import asyncpg

from holdfast.answers import ClaimAnswer
from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Cancelled, Done, Expired, Facts, settle
from holdfast.tasks.task import Claimed

LEASE = timedelta(hours=1)

_CLOCK = """
create table holdfast.test_clock (ahead float8 not null);
insert into holdfast.test_clock values (0);
create or replace function holdfast.clock() returns timestamptz language sql as
  'select clock_timestamp() + make_interval(secs => (select ahead from holdfast.test_clock))';
create schema kept;
create view kept.name as
  select tablename as name
  from pg_tables
  where schemaname = 'holdfast' and tablename not in ('migration', 'audit');
create function kept.keep(scene text) returns void language plpgsql as $$
declare
  name text;
  body text := '';
begin
  for name in select k.name from kept.name k loop
    execute format('create table kept.%I as table holdfast.%I', scene || '_' || name, name);
    body := body || format(
      'delete from holdfast.%1$I;'
      'insert into holdfast.%1$I overriding system value table kept.%2$I;',
      name, scene || '_' || name
    );
  end loop;
  body := 'begin ' || body || 'end';
  execute format('create function kept.%I() returns void language plpgsql as %L', scene, body);
end $$;
create function kept.clear() returns void language plpgsql as $$
declare names text;
begin
  select string_agg('holdfast.' || k.name, ', ') into names from kept.name k;
  execute 'truncate ' || names;
  insert into holdfast.test_clock values (0);
  insert into holdfast.lane_change values (0);
end $$;
create function kept.next_day() returns int[] language plpgsql as $$
begin
  update holdfast.test_clock set ahead = ahead + 86400;
  update holdfast.lane set paused = false where paused;
  update holdfast.gate set max_running = null, max_per_key = null;
  if not exists (
    select from holdfast.task t where not exists (select from holdfast.outcome o where o.id = t.id)
  ) then
    return null;
  end if;
  return array(select id from holdfast.lane);
end $$;
"""

# Each row is one thing that is wrong.
_WRONG = """
with place (id, name) as (
  select id, 'ready' from holdfast.ready
  union all select id, 'later' from holdfast.later
  union all select id, 'blocked' from holdfast.blocked
  union all select id, 'lease' from holdfast.lease
  union all select id, 'outcome' from holdfast.outcome
), spent (id, fence) as (
  select id, fence from holdfast.attempt where grant_id is not null
  union all select id, fence from holdfast.outcome where grant_id is not null
  union all select id, fence from holdfast.lease
), keyed (pool, key, n) as (
  select l.pool, x.key, count(*)
  from (
    select lane, key from holdfast.ready where key is not null
    union all select lane, key from holdfast.lease where key is not null
  ) x
  join holdfast.lane l on l.id = x.lane
  group by 1, 2
)
select format('task %s stands in %s', t.id, coalesce(string_agg(p.name, ' and '), 'no place'))
from holdfast.task t left join place p on p.id = t.id
group by t.id having count(p.id) <> 1
union all
select format('a place of no task: %s in %s', p.id, p.name)
from place p where not exists (select from holdfast.task t where t.id = p.id)
union all
select format('task %s was granted fence %s twice', s.id, s.fence)
from spent s group by s.id, s.fence having count(*) > 1
union all
select format('task %s used %s of %s tries', t.id, o.tries, t.max_tries)
from holdfast.outcome o join holdfast.task t on t.id = o.id where o.tries > t.max_tries
union all
select format('gate %s counts %s, but %s leases name it', g.name, c.n, h.n)
from holdfast.gate g
cross join lateral (
  select g.running - coalesce(sum(f.n), 0) as n from holdfast.freed f where f.gate = g.id
) c
cross join lateral (select count(*) as n from holdfast.lease e where g.id = any (e.gates)) h
where c.n <> h.n
union all
select format('task %s runs past a limit that does not count it', e.id)
from holdfast.lease e join holdfast.lane l on l.id = e.lane
where l.gates is not null and not l.gates <@ coalesce(e.gates, '{}')
union all
select format('key %s counts %s, but %s tasks hold it', k.key, k.n, coalesce(d.n, 0))
from (
  select pool, key, sum(n) as n
  from (
    select pool, key, running as n from holdfast.key_gate
    union all select pool, key, -freed from holdfast.nudge
  ) x
  group by 1, 2
) k
left join keyed d on d.pool = k.pool and d.key = k.key
where k.n <> coalesce(d.n, 0)
union all
select format('two open tasks have the key %s', t.key)
from holdfast.task t
where t.key is not null and not exists (select from holdfast.outcome o where o.id = t.id)
group by t.key having count(*) > 1
"""

_OVER = """
select format('%s leases at the limit %s of %s', count(*), g.max_running, g.name)
from holdfast.lease e join holdfast.lane l on l.id = e.lane
join holdfast.gate g on g.name = case g.kind when 'type' then l.type else l.queue end
group by g.id having count(*) > g.max_running
union all
select format('%s tasks hold key %s', count(*), x.key)
from (
  select lane, key from holdfast.ready where key is not null
  union all select lane, key from holdfast.lease where key is not null
) x
join holdfast.lane l on l.id = x.lane
join holdfast.gate g on g.kind = 'type' and g.name = l.type
group by x.key, g.max_per_key having count(*) > g.max_per_key
"""

# What must be over when all is.
_LEFT = """
select format('%s is stuck', t.id)
from holdfast.task t where not exists (select from holdfast.outcome o where o.id = t.id)
union all
select format('gate %s still counts %s', g.name, g.running)
from holdfast.gate g
where g.running <> (select coalesce(sum(f.n), 0) from holdfast.freed f where f.gate = g.id)
union all
select format('key %s still counts %s', k.key, k.running)
from holdfast.key_gate k
where k.running <> (
  select coalesce(sum(n.freed), 0) from holdfast.nudge n where n.pool = k.pool and n.key = k.key
)
"""


class World:
    """One database in one schema."""

    def __init__(self, url: str, conn: asyncpg.Connection) -> None:
        self.url, self.conn = url, conn
        self.driver = PostgresDriver(url, connections=1)
        self.forget()

    async def open(self) -> None:
        name = await self.conn.fetchval("select current_database()")
        # Crashes of the server are not on stage: what is shown does not depend on fsync.
        await self.conn.execute(f"alter database {name} set synchronous_commit = off")
        await self.store.migrate()
        await self.conn.execute(_CLOCK)

    async def close(self) -> None:
        await self.store.close()

    def forget(self) -> None:
        """Start as a process that has seen no lane."""
        self.store = SqlStore(self.driver, share_commits=False)

    async def clear(self) -> None:
        self.forget()
        await self.conn.execute("select kept.clear()")

    async def keep(self, scene: str) -> None:
        await self.conn.execute("select kept.keep($1)", scene)

    async def put_back(self, scene: str) -> None:
        self.forget()
        await self.conn.fetchval(f'select kept."{scene}"()')

    async def advance(self, seconds: float) -> None:
        await self.conn.execute("update holdfast.test_clock set ahead = ahead + $1", seconds)

    async def wrongs(self, *, limits: bool) -> list[str]:
        """What is wrong at this moment."""
        rows = await self.conn.fetch(f"{_WRONG} union all {_OVER}" if limits else _WRONG)
        return [row[0] for row in rows]

    async def wrongs_at_the_end(self) -> list[str]:
        rows = await self.conn.fetch(f"{_WRONG} union all {_OVER} union all {_LEFT}")
        return [row[0] for row in rows]

    async def endings(self) -> dict[UUID, tuple[UUID | None, str | None]]:
        """All tasks, with the grant under which each ended, and by whom."""
        rows = await self.conn.fetch(
            "select t.id, o.grant_id, o.ended_by"
            " from holdfast.task t left join holdfast.outcome o on o.id = t.id"
        )
        return {id: (grant, by) for id, grant, by in rows}

    async def run_out(self) -> list[Claimed]:
        """Let time pass and a healthy worker work until nothing is left; answers its claims."""
        claims: list[Claimed] = []
        for _ in range(12):
            lanes = await self.conn.fetchval("select kept.next_day()")
            if lanes is None:
                break
            await self.store.recover()
            await self.store.expire()
            await self.store.sweep_wakes()
            while (answer := await self._claim(lanes)).tasks:
                claims += answer.tasks
                refused = await self.store.settle(
                    [(task.lease, settle(_facts(task), _outcome(task))) for task in answer.tasks]
                )
                assert not refused, f"a healthy worker's settle was refused: {refused}"
            assert answer.contended is None, "nobody else claims, but the claim says so"
        return claims

    async def _claim(self, lanes: list[int]) -> ClaimAnswer:
        return await self.store.claim(worker=99, lanes=lanes, want=20, lease=LEASE)


def _outcome(task: Claimed) -> Done | Cancelled | Expired:
    if task.cancel_requested:
        return Cancelled()
    return Expired() if task.expired else Done(b'"run out"')


def _facts(task: Claimed) -> Facts:
    return Facts(tries=task.tries, max_tries=task.max_tries or 3, alone=task.alone)
