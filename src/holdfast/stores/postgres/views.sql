-- name: get
select
  t.id, t.type, t.status, t.queue, t.version, t.tags, t.requires, t.tenant_id, t.priority, t.try_count, t.max_tries,
  t.cancel_requested, t.idempotency_key, t.parent, t.reason, t.locked_by, t.lease_timeout, t.created_at, t.run_at,
  t.expires_at, t.started_at, t.finished_at, t.progress, t.progress_message, t.last_error, t.last_error_type, t.user_id
from holdfast.tasks t
where t.id = any (:ids)
order by t.id desc

-- No state: it has not ended.
-- name: result
select o.state, o.result, o.error_type, o.error, o.detail
from holdfast.task t
left join holdfast.outcome o on o.id = :id
where t.id = :id

-- name: attempts
select
  x.fence, x.worker, k.name, x.started_at, x.ended_at, x.ended, x.ended_by, x.error_type, x.error, x.detail
from (
  select a.fence, a.worker, a.started_at, a.ended_at, a.ended, a.ended_by, a.error_type, a.error, a.detail, a.seq
  from holdfast.attempt a
  where a.id = :id and a.fence between coalesce(:fence::int, 0) and coalesce(:fence::int, 2147483647)
  union all
  select o.fence, o.worker, o.started_at, o.finished_at, o.state, o.ended_by, o.error_type, o.error, o.detail, o.seq
  from holdfast.outcome o
  where o.id = :id
  union all
  select e.fence, e.worker, e.started_at, null, null, null, null, null, null, null
  from holdfast.lease e
  where e.id = :id
) x
left join holdfast.worker k on k.id = x.worker
where :fence::int is null or x.fence = :fence
order by x.fence, x.seq nulls last

-- name: list_tasks
select x.id
from unnest(:lanes::int[]) as l (lane)
cross join lateral (
  select t.id
  from holdfast.task t
  where t.lane = l.lane and (:before::uuid is null or t.id < :before)
  order by t.id desc
  limit :limit
) x
order by x.id desc
limit :limit

-- name: list_of_user
select x.id
from unnest(:lanes::int[]) as l (lane)
cross join lateral (
  select t.id
  from holdfast.task t
  where t.user_id = :user_id and t.lane = l.lane and (:before::uuid is null or t.id < :before)
  order by t.id desc
  limit :limit
) x
order by x.id desc
limit :limit

-- name: list_ready
select x.id, x.np, x.seq
from unnest(:lanes::int[]) as l (lane)
cross join lateral (
  select r.id, r.np, r.seq
  from holdfast.ready r
  where r.lane = l.lane and (r.np, r.seq) > (:np, :seq)
  order by r.np, r.seq
  limit :limit
) x
order by x.np, x.seq
limit :limit

-- name: list_scheduled
select w.id, w.run_at
from holdfast.later w
where w.waiting is null
  and (:run_at::timestamptz is null or (w.run_at, w.id) > (:run_at, :id))
  and w.lane = any (:lanes::int[])
order by w.run_at, w.id
limit :limit

-- name: list_blocked
select b.id, b.pool, b.key, b.np, b.seq
from holdfast.blocked b
where b.lane = any (:lanes) and (b.pool, b.key, b.np, b.seq) > (:pool, :key, :np, :seq)
order by b.pool, b.key, b.np, b.seq
limit :limit

-- name: list_waiting
select w.id
from holdfast.later w
where w.waiting is not null
  and w.lane = any (:lanes)
  and (:before::uuid is null or w.id < :before)
order by w.id desc
limit :limit

-- name: list_running
select e.id
from holdfast.lease e
where e.lane = any (:lanes) and (:before::uuid is null or e.id < :before)
order by e.id desc
limit :limit

-- name: list_ended
-- The lanes as a case: without statistics the planner would take the matches for few, read all and sort.
select x.id, x.seq
from (
  (
    select o.id, o.seq
    from holdfast.outcome o
    join holdfast.task t on t.id = any (array[o.id])
    where :state = 'done'
      and o.state = 'done'
      and o.seq < :before
      and case when t.lane = any (:lanes) then true else false end
    order by o.seq desc
    limit :limit
  )
  union all
  (
    select o.id, o.seq
    from holdfast.outcome o
    join holdfast.task t on t.id = any (array[o.id])
    where :state <> 'done'
      and o.state = :state
      and o.state <> 'done'
      and o.seq < :before
      and case when t.lane = any (:lanes) then true else false end
    order by o.seq desc
    limit :limit
  )
) x
order by x.seq desc
limit :limit

-- name: events
select x.seq, x.kind, x.id, x.fence, x.worker, x.ended_by, x.at, x.error, x.verb, l.type, l.queue, l.tenant
from (
  (
    select o.seq, o.state as kind, o.id, o.fence, o.worker, o.ended_by, o.finished_at as at, o.error, null as verb
    from holdfast.outcome o
    where o.state = 'done' and o.seq > :after
    order by o.seq
    limit :limit
  )
  union all
  (
    select o.seq, o.state as kind, o.id, o.fence, o.worker, o.ended_by, o.finished_at as at, o.error, null as verb
    from holdfast.outcome o
    where o.state = 'failed' and o.seq > :after
    order by o.seq
    limit :limit
  )
  union all
  (
    select o.seq, o.state as kind, o.id, o.fence, o.worker, o.ended_by, o.finished_at as at, o.error, null as verb
    from holdfast.outcome o
    where o.state = 'cancelled' and o.seq > :after
    order by o.seq
    limit :limit
  )
  union all
  (
    select a.seq, a.ended, a.id, a.fence, a.worker, a.ended_by, a.ended_at, a.error, null
    from holdfast.attempt a
    where a.seq > :after
    order by a.seq
    limit :limit
  )
  union all
  (
    select r.seq, 'refused', r.id, r.fence, null, null, r.at, null, r.verb
    from holdfast.refusal r
    where r.seq > :after
    order by r.seq
    limit :limit
  )
  order by seq
  limit :limit
) x
left join holdfast.task t on t.id = any (array[x.id])
left join holdfast.lane l on l.id = any (array[t.lane])
order by x.seq

-- name: task_events
select x.seq, x.kind, x.id, x.fence, x.worker, x.ended_by, x.at, x.error, x.verb, l.type, l.queue, l.tenant
from (
  select o.seq, o.state as kind, o.id, o.fence, o.worker, o.ended_by, o.finished_at as at, o.error, null as verb
  from holdfast.outcome o
  where o.id = :id
  union all
  select a.seq, a.ended, a.id, a.fence, a.worker, a.ended_by, a.ended_at, a.error, null
  from holdfast.attempt a
  where a.id = :id
  union all
  select r.seq, 'refused', r.id, r.fence, null, null, r.at, null, r.verb
  from holdfast.refusal r
  where r.id = :id
) x
left join holdfast.task t on t.id = x.id
left join holdfast.lane l on l.id = t.lane
where x.seq > :after
order by x.seq
limit :limit

-- name: newest_event
select greatest(
  0,
  (select o.seq from holdfast.outcome o where o.state = 'done' order by o.seq desc limit 1),
  (select o.seq from holdfast.outcome o where o.state = 'failed' and o.state <> 'done' order by o.seq desc limit 1),
  (select o.seq from holdfast.outcome o where o.state = 'cancelled' and o.state <> 'done' order by o.seq desc limit 1),
  (select a.seq from holdfast.attempt a order by a.seq desc limit 1),
  (select r.seq from holdfast.refusal r order by r.seq desc limit 1)
)

-- name: writers
select l.virtualtransaction
from pg_locks l
where l.locktype = 'relation'
  and l.mode = 'RowExclusiveLock'
  and l.relation in ('holdfast.outcome'::regclass, 'holdfast.attempt'::regclass, 'holdfast.refusal'::regclass)
  and l.pid <> pg_backend_pid()

-- name: queue_loads
select queue, paused, ready, scheduled, blocked, waiting, running, expired, failed, oldest_age, capped
from holdfast.queue_loads(:cap, :tenant)

-- name: leases
select
  e.id, l.type, l.queue, e.worker, k.name, e.fence, e.tries, e.started_at, e.lease_timeout,
  extract(epoch from e.lease_timeout - holdfast.clock())::float8, l.tenant
from holdfast.lease e
join holdfast.lane l on l.id = e.lane
left join holdfast.worker k on k.id = e.worker
where (:tenant::text is null or l.tenant = :tenant)
  and (not :lapsed or e.lease_timeout < holdfast.clock())
  and (:older::float8 is null or e.started_at < holdfast.clock() - make_interval(secs => :older))
  and (:worker::text is null or k.name = :worker or e.worker::text = :worker)
  and (:after_end::timestamptz is null or (e.lease_timeout, e.id) > (:after_end, :after_id::uuid))
order by e.lease_timeout, e.id
limit :limit

-- name: lease_counts
select e.worker, count(*), count(*) filter (where e.lease_timeout < holdfast.clock())
from holdfast.lease e
join holdfast.lane l on l.id = e.lane
where :tenant::text is null or l.tenant = :tenant
group by e.worker

-- name: now
select holdfast.clock()

-- name: recoveries
select a.seq, a.id, k.name, a.fence, a.started_at, a.ended_at
from holdfast.attempt a
left join holdfast.worker k on k.id = a.worker
where a.ended = 'lost' and (:before::bigint is null or a.seq < :before)
order by a.seq desc
limit :limit

-- name: workers
select
  w.id, w.name, w.host, w.pid, w.version, w.queues, w.tags, w.capabilities, w.types, w.priority, w.slots,
  least(coalesce(h.held, 0), w.slots),     -- what is claimed ahead takes no slot yet
  case
    when w.status not in ('stale', 'stopped') and w.last_heartbeat < holdfast.clock() - make_interval(secs => :stale)
    then 'stale'
    else w.status
  end,
  w.tasks_acquired, w.tasks_recovered, w.poll_interval, w.loop_lag, w.started_at, w.last_heartbeat,
  w.tenant, w.tenants, w.group_id, w.lease
from holdfast.worker w
left join (
  select e.worker, count(*) as held
  from holdfast.lease e
  where :counted and e.lease_timeout >= holdfast.clock()
  group by e.worker
) h on h.worker = w.id
order by w.started_at, w.id

-- name: dead_letter_groups
select l.type, o.error_type, min(o.error), count(*), max(o.finished_at)
from (
  select x.id, x.error_type, x.error, x.finished_at
  from holdfast.outcome x
  where x.state = 'failed'
  order by x.seq desc
  limit :cap
) o
join holdfast.task t on t.id = o.id
join holdfast.lane l on l.id = t.lane
where :tenant::text is null or l.tenant = :tenant
group by l.type, o.error_type
order by count(*) desc, l.type, o.error_type
limit :limit
