-- name: task.get
select
  t.id, t.type, t.status, t.queue, t.version, t.tags, t.requires, t.tenant_id, t.priority, t.try_count, t.max_tries,
  t.cancel_requested, t.idempotency_key, t.parent, t.reason, t.locked_by, t.lease_timeout, t.created_at, t.run_at,
  t.expires_at, t.started_at, t.finished_at, t.progress, t.progress_message, t.last_error, t.last_error_type, t.user_id
from task_state t
where t.id = :id

-- No state: it has not ended.
-- name: result
select o.state, o.result, o.error_type, o.error, o.detail
from task t
left join outcome o on o.id = :id
where t.id = :id

-- name: attempts
select
  x.fence, x.worker, k.name, x.started_at, x.ended_at, x.ended, x.ended_by, x.error_type, x.error, x.detail
from (
  select a.fence, a.worker, a.started_at, a.ended_at, a.ended, a.ended_by, a.error_type, a.error, a.detail, a.seq
  from attempt a
  where a.id = :id and a.fence between coalesce(:fence, 0) and coalesce(:fence, 2147483647)
  union all
  select o.fence, o.worker, o.started_at, o.finished_at, o.state, o.ended_by, o.error_type, o.error, o.detail, o.seq
  from outcome o
  where o.id = :id
  union all
  select e.fence, e.worker, e.started_at, null, null, null, null, null, null, null
  from lease e
  where e.id = :id
) x
left join worker k on k.id = x.worker
where :fence is null or x.fence = :fence
order by x.fence, x.seq nulls last

-- name: list.tasks
select t.id
from task t
where t.lane = :lane and t.id < coalesce(:before, x'ffffffffffffffffffffffffffffffffff')
order by t.id desc
limit :limit

-- name: list.of_user
select t.id
from task t
where t.user_id = :user_id and t.lane = :lane and t.id < coalesce(:before, x'ffffffffffffffffffffffffffffffffff')
order by t.id desc
limit :limit

-- name: list.ready
select r.id, r.np, r.seq
from ready r
where r.lane = :lane and (r.np, r.seq) > (:np, :seq)
order by r.np, r.seq
limit :limit

-- name: list.scheduled
select w.id, w.run_at
from later w
where w.waiting is null
  and (w.run_at, w.id) > (coalesce(:run_at, -1), coalesce(:id, x''))
  and w.lane in (select a.value from json_each(:lanes) a)
order by w.run_at, w.id
limit :limit

-- name: list_blocked
select b.id, b.pool, b.key, b.np, b.seq
from blocked b
where b.lane in (select a.value from json_each(:lanes) a)
  and (b.pool, b.key, b.np, b.seq) > (:pool, :key, :np, :seq)
order by b.pool, b.key, b.np, b.seq
limit :limit

-- name: list_waiting
select w.id
from later w
where w.waiting is not null
  and w.lane in (select a.value from json_each(:lanes) a)
  and w.id < coalesce(:before, x'ffffffffffffffffffffffffffffffffff')
order by w.id desc
limit :limit

-- name: list_running
select e.id
from lease e
where e.lane in (select a.value from json_each(:lanes) a)
  and e.id < coalesce(:before, x'ffffffffffffffffffffffffffffffffff')
order by e.id desc
limit :limit

-- name: list.done
select o.id, o.seq
from outcome o
cross join task t on t.id = o.id
where o.state = 'done'
  and o.seq < :before
  and t.lane in (select a.value from json_each(:lanes) a)
order by o.seq desc
limit :limit

-- "<> 'done'" leads to the index of the few that were not
-- name: list.undone
select o.id, o.seq
from outcome o
cross join task t on t.id = o.id
where o.state = :state
  and o.state <> 'done'
  and o.seq < :before
  and t.lane in (select a.value from json_each(:lanes) a)
order by o.seq desc
limit :limit

-- name: events.ended
select o.seq, o.state, o.id, o.fence, o.worker, o.ended_by, o.finished_at, o.error, null, l.type, l.queue, l.tenant
from outcome o
left join task t on t.id = o.id
left join lane l on l.id = t.lane
where o.seq > :after
order by o.seq
limit :limit

-- name: events.attempts
select a.seq, a.ended, a.id, a.fence, a.worker, a.ended_by, a.ended_at, a.error, null, l.type, l.queue, l.tenant
from attempt a
left join task t on t.id = a.id
left join lane l on l.id = t.lane
where a.seq > :after
order by a.seq
limit :limit

-- name: events.refusals
select r.seq, 'refused', r.id, r.fence, null, null, r.at, null, r.verb, l.type, l.queue, l.tenant
from refusal r
left join task t on t.id = r.id
left join lane l on l.id = t.lane
where r.seq > :after
order by r.seq
limit :limit

-- name: task_events
select x.seq, x.kind, x.id, x.fence, x.worker, x.ended_by, x.at, x.error, x.verb, l.type, l.queue, l.tenant
from (
  select o.seq, o.state as kind, o.id, o.fence, o.worker, o.ended_by, o.finished_at as at, o.error, null as verb
  from outcome o
  where o.id = :id
  union all
  select a.seq, a.ended, a.id, a.fence, a.worker, a.ended_by, a.ended_at, a.error, null
  from attempt a
  where a.id = :id
  union all
  select r.seq, 'refused', r.id, r.fence, null, null, r.at, null, r.verb
  from refusal r
  where r.id = :id
) x
left join task t on t.id = x.id
left join lane l on l.id = t.lane
where x.seq > :after
order by x.seq
limit :limit

-- name: newest_event
select max(
  coalesce((select max(o.seq) from outcome o), 0),
  coalesce((select max(a.seq) from attempt a), 0),
  coalesce((select max(r.seq) from refusal r), 0)
)

-- Numbers of the queues, each from at most cap rows: what is ready of each queue, and what is
-- blocked, later or failed of all of them together.
-- name: loads.queues
select q.name, q.paused
from queue q
where :tenant is null or exists (select 1 from lane l where l.queue = q.name and l.tenant = :tenant)
order by q.name

-- name: loads.ready
select :queue, count(*)
from (
  select 1
  from lane l
  cross join ready r on r.lane = l.id
  where l.queue = :queue and (:tenant is null or l.tenant = :tenant)
  limit :cap
)

-- name: loads.scheduled
select l.queue, sum(x.waiting is null and (:tenant is null or l.tenant = :tenant)), count(*)
from (
  select w.lane, w.waiting from later w where w.run_at < 9223372036854775807 order by w.run_at limit :cap
) x
join lane l on l.id = x.lane
group by l.queue

-- name: loads.waiting
select l.queue, sum(:tenant is null or l.tenant = :tenant), count(*)
from (select w.lane from later w where w.waiting is not null order by w.id limit :cap) x
join lane l on l.id = x.lane
group by l.queue

-- name: loads.blocked
select l.queue, sum(:tenant is null or l.tenant = :tenant), count(*)
from (select b.lane from blocked b limit :cap) x
cross join lane l on l.id = x.lane
group by l.queue

-- name: loads.held
select l.queue, count(*), sum(e.boot <> :boot or e.boot_end < :boot_now)
from lease e
join lane l on l.id = e.lane
where :tenant is null or l.tenant = :tenant
group by l.queue

-- name: loads.failed
select l.queue, sum(:tenant is null or l.tenant = :tenant), count(*)
from (
  select o.id from outcome o where o.state = 'failed' and o.state <> 'done' order by o.seq desc limit :cap
) x
cross join task t on t.id = x.id
cross join lane l on l.id = t.lane
group by l.queue

-- name: loads.oldest
select l.queue, (:now - min(t.created_at)) / 1e6
from lane l
cross join task t on t.id = (
  select r.id from ready r where r.lane = l.id order by r.np, r.seq limit 1
)
where :tenant is null or l.tenant = :tenant
group by l.queue

-- name: leases
select
  e.id, l.type, l.queue, e.worker, k.name, e.fence, e.tries, e.started_at, e.lease_timeout,
  case when e.boot = :boot then e.boot_end - :boot_now else min(e.lease_timeout - :now, 0) end / 1e6,
  l.tenant
from lease e
join lane l on l.id = e.lane
left join worker k on k.id = e.worker
where (:tenant is null or l.tenant = :tenant)
  and (not :lapsed or e.boot <> :boot or e.boot_end < :boot_now)
  and (:older is null or e.started_at < :now - :older * 1e6)
  and (:worker is null or k.name = :worker or cast(e.worker as text) = :worker)
  and (e.lease_timeout, e.id) > (coalesce(:after_end, -1), coalesce(:after_id, x''))
order by e.lease_timeout, e.id
limit :limit

-- name: lease_counts
select e.worker, count(*), count(*) filter (where e.boot <> :boot or e.boot_end < :boot_now)
from lease e
join lane l on l.id = e.lane
where :tenant is null or l.tenant = :tenant
group by e.worker

-- name: now
select :now

-- name: recoveries
select a.seq, a.id, k.name, a.fence, a.started_at, a.ended_at
from attempt a
left join worker k on k.id = a.worker
where a.ended = 'lost' and a.seq < ifnull(:before, 9223372036854775807)
order by a.seq desc
limit :limit

-- name: workers
select
  w.id, w.name, w.host, w.pid, w.version, w.queues, w.tags, w.capabilities, w.types, w.priority, w.slots,
  min(coalesce(h.held, 0), w.slots),     -- what is claimed ahead takes no slot yet
  case
    when w.status not in ('stale', 'stopped') and w.last_heartbeat < :now - :stale * 1e6
    then 'stale'
    else w.status
  end,
  w.tasks_acquired, w.tasks_recovered, w.poll_interval, w.loop_lag, w.started_at, w.last_heartbeat,
  w.tenant, w.tenants, w.group_id, w.lease
from worker w
left join (
  select e.worker, count(*) as held
  from lease e
  where :counted and e.boot = :boot and e.boot_end >= :boot_now
  group by e.worker
) h on h.worker = w.id
order by w.started_at, w.id

-- name: dead_letter_groups
select l.type, o.error_type, min(o.error), count(*), max(o.finished_at)
from (
  select x.id, x.error_type, x.error, x.finished_at
  from outcome x
  where x.state = 'failed' and x.state <> 'done'
  order by x.seq desc
  limit :cap
) o
join task t on t.id = o.id
join lane l on l.id = t.lane
where :tenant is null or l.tenant = :tenant
group by l.type, o.error_type
order by count(*) desc, l.type, o.error_type nulls last
limit :limit
