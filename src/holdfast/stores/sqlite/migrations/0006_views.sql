-- The public contract for people with a SQL prompt. Names are those of the interface; ids are dashed
-- text, instants text in UTC. Only built-in functions, so that other tools can read them, and now(),
-- which every connection of ours has.

create view task_state as
select
  t.id,
  l.type,
  case
    when o.id is not null then o.state
    when e.id is not null then 'running'
    when w.waiting is not null then 'waiting'
    else 'pending'
  end as status,
  l.queue,
  -t.np as priority,
  l.tenant as tenant_id,
  l.version,
  l.tags,
  l.requires,
  case when e.id is not null then coalesce(k.name, cast(e.worker as text)) end as locked_by,
  e.lease_timeout,
  coalesce(o.tries, e.tries, w.tries, a.tries, 0) as try_count,
  t.max_tries,
  coalesce(o.error, a.error) as last_error,
  coalesce(o.error_type, a.error_type) as last_error_type,
  p.percent as progress,
  p.message as progress_message,
  t.cancel_requested,
  t.key as idempotency_key,
  t.concurrency_key,
  t.user_id,
  t.parent,
  w.waiting as reason,
  t.created_at,
  case when w.run_at = 9223372036854775807 then null else coalesce(w.run_at, t.run_at, t.created_at) end as run_at,
  t.expires_at,
  coalesce(e.started_at, o.started_at) as started_at,
  o.finished_at,
  a.ended_at as last_ended_at
from task t
join lane l on l.id = t.lane
left join outcome o on o.id = t.id
left join lease e on e.id = t.id
left join later w on w.id = t.id
left join worker k on k.id = e.worker
left join progress p on p.id = t.id
left join attempt a on a.seq = (
  select x.seq
  from attempt x
  where x.id = t.id
  order by x.fence desc, x.seq desc
  limit 1
);

create view tasks as
select
  lower(
    substr(hex(s.id), 1, 8) || '-' || substr(hex(s.id), 9, 4) || '-' || substr(hex(s.id), 13, 4)
    || '-' || substr(hex(s.id), 17, 4) || '-' || substr(hex(s.id), 21)
  ) as id,
  s.type,
  s.status,
  s.queue,
  s.priority,
  s.tenant_id,
  s.version,
  s.tags,
  s.requires,
  s.locked_by,
  strftime('%F %T', s.lease_timeout / 1000000, 'unixepoch') || printf('.%06d', s.lease_timeout % 1000000) as lease_timeout,
  s.try_count,
  s.max_tries,
  s.last_error,
  s.last_error_type,
  s.progress,
  s.progress_message,
  s.cancel_requested,
  s.idempotency_key,
  s.concurrency_key,
  s.user_id,
  case when s.parent is not null then lower(
    substr(hex(s.parent), 1, 8) || '-' || substr(hex(s.parent), 9, 4) || '-' || substr(hex(s.parent), 13, 4)
    || '-' || substr(hex(s.parent), 17, 4) || '-' || substr(hex(s.parent), 21)
  ) end as parent,
  s.reason,
  strftime('%F %T', s.created_at / 1000000, 'unixepoch') || printf('.%06d', s.created_at % 1000000) as created_at,
  strftime('%F %T', s.run_at / 1000000, 'unixepoch') || printf('.%06d', s.run_at % 1000000) as run_at,
  strftime('%F %T', s.expires_at / 1000000, 'unixepoch') || printf('.%06d', s.expires_at % 1000000) as expires_at,
  strftime('%F %T', s.started_at / 1000000, 'unixepoch') || printf('.%06d', s.started_at % 1000000) as started_at,
  strftime('%F %T', s.finished_at / 1000000, 'unixepoch') || printf('.%06d', s.finished_at % 1000000) as finished_at
from task_state s;

create view job_state as
select
  s.*,
  max(
    s.created_at, coalesce(s.started_at, 0), coalesce(s.finished_at, 0), coalesce(s.last_ended_at, 0)
  ) as updated_at,
  lower(
    substr(hex(s.id), 1, 8) || '-' || substr(hex(s.id), 9, 4) || '-' || substr(hex(s.id), 13, 4)
    || '-' || substr(hex(s.id), 17, 4) || '-' || substr(hex(s.id), 21)
  ) as dashed
from task_state s;

create view processing_jobs as
select
  j.dashed as id,
  coalesce(j.idempotency_key, j.dashed) as job_id,
  case
    when j.status = 'running' then 'processing'
    when j.status in ('pending', 'waiting') and j.try_count > 0 then 'retry'
    when j.status in ('pending', 'waiting') then 'pending'
    when j.status = 'cancelled' then 'failed'
    else j.status
  end as status,
  j.try_count as attempts,
  j.locked_by,
  strftime('%F %T', j.lease_timeout / 1000000, 'unixepoch') || printf('.%06d', j.lease_timeout % 1000000) as locked_until,
  j.last_error,
  strftime('%F %T', j.updated_at / 1000000, 'unixepoch') || printf('.%06d', j.updated_at % 1000000) as updated_at,
  coalesce(j.progress, 0.0) as progress
from job_state j;

create view workers as
select
  w.id,
  w.tenant as tenant_id,
  w.name,
  w.host as hostname,
  case
    when w.status not in ('stale', 'stopped') and w.last_heartbeat / 1e6 < unixepoch(now(), 'subsec') - 90
    then 'stale'
    else w.status
  end as status,
  w.capabilities,
  w.queues,
  w.tags,
  w.tenants,
  w.group_id,
  w.slots as max_concurrent,
  coalesce(h.held, 0) as active,
  w.version,
  strftime('%F %T', w.started_at / 1000000, 'unixepoch') || printf('.%06d', w.started_at % 1000000) as started_at,
  strftime('%F %T', w.last_heartbeat / 1000000, 'unixepoch') || printf('.%06d', w.last_heartbeat % 1000000) as last_heartbeat
from worker w
left join (
  select e.worker, count(*) as held
  from lease e
  group by e.worker
) h on h.worker = w.id;

-- Seconds, where PostgreSQL has intervals.
create view lease_state as
select
  lower(
    substr(hex(e.id), 1, 8) || '-' || substr(hex(e.id), 9, 4) || '-' || substr(hex(e.id), 13, 4)
    || '-' || substr(hex(e.id), 17, 4) || '-' || substr(hex(e.id), 21)
  ) as task_id,
  l.type,
  l.queue,
  coalesce(k.name, cast(e.worker as text)) as locked_by,
  e.worker as worker_id,
  e.fence,
  e.tries as try_count,
  strftime('%F %T', e.started_at / 1000000, 'unixepoch') || printf('.%06d', e.started_at % 1000000) as started_at,
  strftime('%F %T', e.lease_timeout / 1000000, 'unixepoch') || printf('.%06d', e.lease_timeout % 1000000) as lease_timeout,
  e.lease_timeout / 1000000.0 - unixepoch(now(), 'subsec') as seconds_left
from lease e
join lane l on l.id = e.lane
left join worker k on k.id = e.worker;

create view active_leases as
select
  s.task_id, s.type, s.queue, s.locked_by, s.worker_id, s.fence, s.try_count, s.started_at, s.lease_timeout,
  s.seconds_left as time_left
from lease_state s
where s.lease_timeout >= now();

create view stale_leases as
select
  s.task_id, s.type, s.queue, s.locked_by, s.worker_id, s.fence, s.try_count, s.started_at, s.lease_timeout,
  -s.seconds_left as late_by
from lease_state s
where s.lease_timeout < now();

create view worker_utilization as
select
  w.id,
  w.name,
  case
    when w.status not in ('stale', 'stopped') and w.last_heartbeat / 1e6 < unixepoch(now(), 'subsec') - 90
    then 'stale'
    else w.status
  end as status,
  w.slots as max_concurrent,
  coalesce(h.held, 0) as active,
  round(coalesce(h.held, 0) / cast(max(w.slots, 1) as real), 3) as utilization,
  strftime('%F %T', w.last_heartbeat / 1000000, 'unixepoch') || printf('.%06d', w.last_heartbeat % 1000000) as last_heartbeat
from worker w
left join (
  select e.worker, count(*) as held
  from lease e
  group by e.worker
) h on h.worker = w.id
where w.status <> 'stopped';

create view queue_load as
select
  q.name as queue,
  q.paused,
  (select count(*) from lane l join ready r on r.lane = l.id where l.queue = q.name) as ready,
  (select count(*) from later w join lane l on l.id = w.lane where l.queue = q.name and w.waiting is null) as scheduled,
  (select count(*) from later w join lane l on l.id = w.lane where l.queue = q.name and w.waiting is not null) as waiting,
  (select count(*) from blocked b join lane l on l.id = b.lane where l.queue = q.name) as blocked,
  (select count(*) from lease e join lane l on l.id = e.lane where l.queue = q.name) as running
from queue q;

create view dead_letters as
select
  lower(
    substr(hex(o.id), 1, 8) || '-' || substr(hex(o.id), 9, 4) || '-' || substr(hex(o.id), 13, 4)
    || '-' || substr(hex(o.id), 17, 4) || '-' || substr(hex(o.id), 21)
  ) as id,
  l.type,
  l.queue,
  l.tenant as tenant_id,
  o.tries as try_count,
  o.error_type,
  o.error as last_error,
  o.ended_by,
  strftime('%F %T', t.created_at / 1000000, 'unixepoch') || printf('.%06d', t.created_at % 1000000) as created_at,
  strftime('%F %T', o.finished_at / 1000000, 'unixepoch') || printf('.%06d', o.finished_at % 1000000) as finished_at
from outcome o
join task t on t.id = o.id
join lane l on l.id = t.lane
where o.state = 'failed' and o.state <> 'done';  -- which leads to its index
