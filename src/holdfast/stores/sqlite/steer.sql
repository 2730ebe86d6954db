-- name: cancel.state
select
  t.id, o.state, t.parent,
  exists (select 1 from outcome p where p.id = t.parent),
  exists (select 1 from task p where p.id = t.parent and p.cancel_requested)
from task t
left join outcome o on o.id = t.id
where t.id = :id

-- name: cancel.mark
update task
set cancel_requested = 1
where id = :id and not cancel_requested and not exists (select 1 from outcome o where o.id = :id)
returning id

-- name: ended_as
select id, state
from outcome
where id = :id

-- name: family.below
with recursive family (id) as (
  select t.id
  from task t
  where t.parent = :id
    and (not :left or exists (select 1 from task c where c.id = :id and c.cancel_requested))
  union
  select t.id from family f cross join task t on t.parent = f.id
)
select f.id
from family f
where not exists (select 1 from outcome o where o.id = f.id)

-- Not what a worker holds, and what has ended: nobody is looked for who cannot be there. Nor what was given a
-- new life since its cancel was requested.
-- name: withdraw.where
select t.id, t.lane, t.np, t.concurrency_key, la.pool, t.parent
from task t
join lane la on la.id = t.lane
where t.id = :id
  and (t.cancel_requested or :state <> 'cancelled')
  and not exists (select 1 from lease l where l.id = :id)
  and not exists (select 1 from outcome o where o.id = :id)

-- name: withdraw.later
delete from later
where id = :id
returning id, fence, tries, null

-- A place is known only by what leads to it, so one walk looks for all who may stand there.
-- name: withdraw.in_blocked
select b.seq
from blocked b
where b.pool = :pool
  and b.key = :key
  and b.np = :np
  and b.id in (select unhex(a.value) from json_each(:ids) a)

-- name: withdraw.blocked
delete from blocked
where pool = :pool and key = :key and np = :np and seq = :seq
returning id, fence, tries, null

-- name: withdraw.in_ready
select r.seq
from ready r
where r.lane = :lane and r.np = :np and r.id in (select unhex(a.value) from json_each(:ids) a)

-- name: withdraw.ready
delete from ready
where lane = :lane and np = :np and seq = :seq
returning id, fence, tries, key

-- name: retry.revive
delete from outcome
where id = :id
  and state in ('failed', 'cancelled')
  and not exists (                         -- its key belongs to a younger task by now
    select 1 from task t
    join lane l on l.id = t.lane
    join task_key k on k.tenant = l.tenant and k.key = t.key
    where t.id = :id and k.id <> :id
  )
returning
  id, grant_id, worker, seq, started_at, finished_at, fence, state, ended_by, result, error_type, error, detail

-- name: retry.note
insert into attempt (
  id, grant_id, worker, seq, started_at, ended_at, fence, tries, ended, ended_by, result, error_type, error, detail
)
values (
  :id, :grant, :worker, :seq, :started_at, :ended_at, :fence, 0, :ended, :by, :result, :error_type, :error, :detail
)

-- name: retry.reset
update task
set cancel_requested = 0, expires_at = null
where id = :id
returning id, lane, np, parent is not null, concurrency_key

-- name: retry.delayed
select l.id
from later l
where l.id = :id and (l.waiting is null or l.waiting like 'parked:%')

-- name: edit.seen
select
  t.lane, t.np, t.max_tries, t.expires_at, t.run_at, t.created_at, t.concurrency_key, la.pool,
  t.cancel_requested or coalesce(t.expires_at <= :now, 0)
from task t
join lane la on la.id = t.lane
where t.id = :id

-- name: edit.later
select null, w.fence, w.tries, w.alone, w.child, w.key, w.run_at
from later w
where w.id = :id and w.waiting is null

-- name: edit.blocked
select b.seq, b.fence, b.tries, b.alone, b.child, b.key, null
from blocked b
where b.pool = :pool and b.key = :key and b.np = :np and b.id = :id

-- name: edit.ready
select r.seq, r.fence, r.tries, r.alone, r.child, r.key, null
from ready r
where r.lane = :lane and r.np = :np and r.id = :id

-- name: edit.task
update task
set lane = :lane, np = :np, max_tries = :max_tries, run_at = :run_at, expires_at = :expires_at
where id = :id

-- name: discard.failed
select o.id
from outcome o
where o.id = :id and o.state = 'failed'

-- name: pause.queue
insert into queue (name, paused)
values (:queue, :paused)
on conflict (name) do update
set paused = excluded.paused

-- name: pause.lanes
update lane
set paused = :paused
where queue = :queue

-- name: limit.add
insert into gate (kind, name)
values (:kind, :name)
on conflict do nothing

-- name: limit.declare
update gate
set declared = :limit
where kind = :kind and name = :name
returning held

-- name: limit.hold
update gate
set held = :limit is not null
where kind = :kind and name = :name
returning coalesce(:limit, declared)

-- name: limit.set
update gate
set
  max_running = :max_running,
  max_per_key = :max_per_key,
  rate_interval = :interval,
  rate_burst = :burst,
  said = :said,
  -- a slower rate before must not hold up a faster one: nobody pays for more than one burst
  rate_next = case
    when :interval is not null
    then min(rate_next, :now + cast(:burst * :interval * 1e6 as integer))
  end
where kind = :kind and name = :name
returning id

-- name: limit.open
update lane
set gates = (
  select nullif(json_group_array(a.value order by a.value), '[]')
  from json_each(lane.gates) a
  where a.value <> :gate
)
where case :kind when 'type' then type when 'queue' then queue else tenant end = :name and gates is not null

-- name: limit.close
update lane
set gates = (
  select json_group_array(x.gate order by x.gate)
  from (
    select a.value as gate from json_each(lane.gates) a
    union
    select :gate
  ) x
)
where case :kind when 'type' then type when 'queue' then queue else tenant end = :name

-- name: limit.adopt
update lease
set gates = json_insert(coalesce(gates, '[]'), '$[#]', :gate)
where lane in (
    select l.id from lane l where case :kind when 'type' then l.type when 'queue' then l.queue else l.tenant end = :name
  )
  and :gate not in (select a.value from json_each(coalesce(lease.gates, '[]')) a)
returning id

-- name: limit.count
update gate
set running = running + :n
where id = :gate

-- name: limit.line_up
insert into blocked (pool, key, np, seq, id, lane, fence, tries, alone, child)
select l.pool, r.key, r.np, r.seq, r.id, r.lane, r.fence, r.tries, r.alone, r.child
from lane l
cross join ready r on r.lane = l.id
where l.type = :type and r.key is not null

-- name: limit.lined_up
insert into nudge (pool, key, freed)
select l.pool, r.key, count(*)
from lane l
cross join ready r on r.lane = l.id
where l.type = :type and r.key is not null
group by l.pool, r.key

-- name: limit.leave
delete from ready
where key is not null and lane in (select l.id from lane l where l.type = :type)

-- name: limit.nudge
insert into nudge (pool, key, freed)
select distinct b.pool, b.key, 0
from blocked b
join lane l on l.id = b.lane
where l.type = :type

-- name: limits
select
  g.kind, g.name, g.said, g.declared, g.held,
  case
    when g.max_running is not null
    then g.running - coalesce((select sum(f.n) from freed f where f.gate = g.id), 0)
  end
from gate g
where g.said is not null or g.declared is not null
order by g.kind, g.name

-- name: request_drain
update worker
set drain_requested = 1
where id = :id and status <> 'stopped'
returning id
