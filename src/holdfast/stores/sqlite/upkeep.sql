-- name: later.due
select l.id
from later l
where l.run_at <= :now
order by l.run_at
limit :batch

-- name: later.take
delete from later
where id = :id
returning id, lane, fence, np, tries, alone, child, key

-- name: later.judge
select
  t.id,
  case
    when t.cancel_requested then 'cancelled'
    when t.expires_at <= :now then 'failed'
  end,
  t.parent,
  la.pool
from task t
cross join lane la on la.id = :lane
where t.id = :id

-- name: nudge.pools
select distinct l.pool
from json_each(:lanes) a
cross join lane l on l.id = a.value
where exists (select 1 from nudge n where n.pool = l.pool)

-- First nudged, first let in: no key can hide another for long. A key may come more than once.
-- name: nudge.keys
select n.pool, n.key
from nudge n
where n.pool = :pool
order by n.rowid
limit :batch

-- name: key_gate.add
insert into key_gate (pool, key, running)
values (:pool, :key, 0)
on conflict do nothing

-- name: key_gate.fold
update key_gate
set running = running - coalesce((select sum(n.freed) from nudge n where n.pool = :pool and n.key = :key), 0)
where pool = :pool and key = :key

-- name: nudge.folded
delete from nudge
where pool = :pool and key = :key

-- name: key_gate.room
select coalesce(t.max_per_key - g.running, 1000)
from key_gate g
join lane l on l.id = g.pool
left join gate t on t.kind = 'type' and t.name = l.type
where g.pool = :pool and g.key = :key

-- name: blocked.heads
select b.np, b.seq
from blocked b
where b.pool = :pool and b.key = :key
order by b.np, b.seq
limit 1 offset :skip

-- name: blocked.admit
insert into ready (lane, np, seq, id, fence, tries, alone, child, key)
select b.lane, b.np, b.seq, b.id, b.fence, b.tries, b.alone, b.child, b.key
from blocked b
where b.pool = :pool and b.key = :key and (b.np, b.seq) <= (:np, :seq)

-- name: blocked.leave
delete from blocked
where pool = :pool and key = :key and (np, seq) <= (:np, :seq)

-- name: key_gate.count
update key_gate
set running = running + :n
where pool = :pool and key = :key

-- name: key_gate.forget
delete from key_gate
where pool = :pool
  and key = :key
  and running = 0
  and not exists (select 1 from blocked b where b.pool = :pool and b.key = :key)
  and not exists (select 1 from nudge n where n.pool = :pool and n.key = :key)

-- name: add_recovered
insert into reached (name, seq)
values ('recovered', :count)
on conflict (name) do update
set seq = reached.seq + excluded.seq

-- name: recovered_total
select coalesce(max(r.seq), 0)
from reached r
where r.name = 'recovered'

-- name: lapsed.leases
with crowd as materialized (
  select l.worker, count(*) as n
  from lease l
  group by l.worker
), past as materialized (
  select l.*
  from lease l
  where l.boot <> :boot or l.boot_end < :boot_now
  order by l.id
  limit :batch
)
select
  p.id, p.grant_id, p.fence, p.worker, p.tries, t.max_tries, t.policy, p.alone, t.cancel_requested,
  coalesce(t.expires_at <= :now, 0),
  c.n > 1 or exists (select 1 from attempt a where a.worker = p.worker and a.ended = 'lost' and a.id <> p.id),
  coalesce((select s.fence from step s where s.id = p.id order by s.position desc limit 1) = p.fence, 0),
  case when p.boot = :boot then :boot_now - p.boot_end else max(:now - p.lease_timeout, 0) end / 1e6
from past p
cross join crowd c on c.worker = p.worker
cross join task t on t.id = p.id

-- name: lease.revoke
-- A grant that nobody knows: whoever held it can neither renew nor settle, and recovery takes it back.
update lease
set grant_id = :grant, lease_timeout = :now - 1, boot = :boot, boot_end = :boot_now - 1
where id = :id and fence = :fence
returning id

-- name: expiry.due
select e.id
from expiry e
where e.expires_at <= :now
order by e.expires_at
limit :batch

-- Dead letters by their time alone, which nobody has told of: they ended where no worker held them, or as their
-- holder put them back. What recovery ended it tells itself.
-- name: expiry.untold
select o.id, l.type, l.queue
from outcome o
cross join task t on t.id = o.id
cross join lane l on l.id = t.lane
where o.id = :id
  and o.state = 'failed'
  and o.error_type = 'Expired'
  and (o.worker is null or (o.ended_by = 'holder' and o.error = 'not tried again before it expired'))

-- name: expiry.done
delete from expiry
where id = :id
  and (
    exists (select 1 from outcome o where o.id = :id)
    or not exists (select 1 from task t where t.id = :id and t.expires_at is not null)
  )

-- name: expiry.again
update expiry
set expires_at = :now + 10000000
where id = :id

-- name: heard
update worker
set
  last_heartbeat = :now,
  status = case when status = 'stale' then 'ready' else status end
where id = :id and status <> 'stopped'

-- name: worker.mark_stale
update worker
set status = 'stale'
where status not in ('stale', 'stopped') and last_heartbeat < :now - :after
returning id

-- name: worker.forget
delete from worker
where id in (
  select w.id
  from worker w
  where w.status in ('stopped', 'stale')
    and w.last_heartbeat < :now - :after
    and w.id not in (select l.worker from lease l)
  limit :batch
)

-- name: chore.take_turn
-- A turn that lies far ahead was given out before the clock was set back, or `every` was shortened.
insert into chore (name, next_at)
values (:chore, :now + :every)
on conflict (name) do update
set next_at = excluded.next_at
where chore.next_at <= :now or chore.next_at > :now + 2 * :every
returning name

-- name: chore.forget
delete from chore
where next_at < :now - :after

-- name: schedule.see
insert into schedule (type, cron, timezone, next_at, seen_at)
values (:type, :cron, :timezone, :first, :now)
on conflict (type, cron, timezone) do update
set seen_at = excluded.seen_at
returning next_at

-- name: schedule.move
update schedule
set next_at = :next
where type = :type and cron = :cron and timezone = :timezone and next_at = :seen
returning type

-- name: schedule.forget
delete from schedule
where seen_at < :now - :after

-- name: cleanup.ended
select o.id
from outcome o
cross join task t on t.id = o.id
where o.state <> 'failed'
  and o.finished_at < :now - :retention
  and not exists (
    select 1 from task p
    where p.id = t.parent and not exists (select 1 from outcome x where x.id = p.id)
  )
order by o.finished_at
limit :batch

-- name: cleanup.failed
select o.id
from outcome o
cross join task t on t.id = o.id
where o.state = 'failed'
  and o.finished_at < :now - :retention
  and not exists (
    select 1 from task p
    where p.id = t.parent and not exists (select 1 from outcome x where x.id = p.id)
  )
order by o.finished_at
limit :batch

-- name: forget.free
select o.id, t.key, l.tenant
from outcome o
join task t on t.id = o.id
join lane l on l.id = t.lane
where o.id = :id
  and not exists (
    select 1 from task p
    where p.id = t.parent and not exists (select 1 from outcome x where x.id = p.id)
  )

-- name: forget.outcome
delete from outcome
where id = :id
returning id

-- name: forget.task
delete from task
where id = :id

-- name: forget.attempts
delete from attempt
where id = :id

-- name: forget.refusals
delete from refusal
where id = :id

-- name: forget.progress
delete from progress
where id = :id

-- name: forget.steps
delete from step
where id = :id

-- name: forget.signals
delete from signal
where id = :id

-- name: forget.wakes
delete from wake
where id = :id

-- name: forget.expiry
delete from expiry
where id = :id
