-- name: promote
select holdfast.promote(:batch)

-- name: lapsed
select
  id, grant_id, fence, worker, tries, max_tries, policy, alone, cancel_requested, expired, in_company, recorded, late
from holdfast.lapsed(:batch)

-- name: add_recovered
insert into holdfast.reached as r (name, seq)
values ('recovered', :count)
on conflict (name) do update
set seq = r.seq + excluded.seq

-- name: recovered_total
select coalesce(max(r.seq), 0)
from holdfast.reached r
where r.name = 'recovered'

-- name: revoke
-- A grant that nobody knows: whoever held it can neither renew nor settle, and recovery takes it back.
update holdfast.lease e
set grant_id = :grant, lease_timeout = holdfast.clock() - interval '1 microsecond'
where e.id = :id and e.fence = :fence
returning e.id

-- name: expire
select ids, types, queues, parents
from holdfast.expire(:batch)

-- name: sweep_wakes
select holdfast.sweep_wakes(:batch)

-- name: heard
update holdfast.worker w
set
  last_heartbeat = holdfast.clock(),
  status = case when w.status = 'stale' then 'ready' else w.status end
where w.id = :id and w.status <> 'stopped'

-- name: mark_stale
with marked as (
  update holdfast.worker w
  set status = 'stale'
  where w.status not in ('stale', 'stopped')
    and w.last_heartbeat < holdfast.clock() - make_interval(secs => :after)
  returning w.id
)
select count(*)
from marked

-- name: forget_workers
select holdfast.forget_workers(:after, :batch)

-- name: take_turn
-- A turn that lies far ahead was given out before the clock was set back, or `every` was shortened.
insert into holdfast.chore as c (name, next_at)
values (:chore, holdfast.clock() + make_interval(secs => :every))
on conflict (name) do update
set next_at = holdfast.clock() + make_interval(secs => :every)
where c.next_at <= holdfast.clock() or c.next_at > holdfast.clock() + make_interval(secs => 2 * :every)
returning c.name

-- name: see_schedules
with said as (
  select *
  from unnest(:types::text[], :crons::text[], :timezones::text[], :firsts::timestamptz[])
    with ordinality as a (type, cron, timezone, first_at, place)
),
seen as (
  insert into holdfast.schedule as s (type, cron, timezone, next_at, seen_at)
  select a.type, a.cron, a.timezone, a.first_at, holdfast.clock()
  from said a
  order by a.type, a.cron, a.timezone
  on conflict (type, cron, timezone) do update
  set seen_at = excluded.seen_at
  returning s.type, s.cron, s.timezone, s.next_at
)
select array_agg(s.next_at order by a.place)
from said a
join seen s using (type, cron, timezone)

-- name: move_schedule
update holdfast.schedule s
set next_at = :next
where s.type = :type and s.cron = :cron and s.timezone = :timezone and s.next_at = :seen
returning s.type

-- name: cleanup
select holdfast.cleanup(:retention, :dead_letters, :batch)
