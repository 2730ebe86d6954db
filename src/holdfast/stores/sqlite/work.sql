-- name: register
insert into worker (
  id, tenant, name, host, pid, version, queues, tags, capabilities, tenants, group_id, types, priority, slots,
  status, tasks_acquired, tasks_recovered, poll_interval, loop_lag, lease, started_at, last_heartbeat
)
values (
  :id, :tenant, :name, :host, :pid, :version, :queues, :tags, :capabilities, :tenants, :group_id, :types, :priority, :slots,
  :status, :tasks_acquired + :more_acquired, :tasks_recovered, :poll_interval, :loop_lag, :lease, :now, :now
)
on conflict (id) do update
set
  types = excluded.types,
  slots = excluded.slots,
  tasks_acquired = max(worker.tasks_acquired, :tasks_acquired) + :more_acquired,
  tasks_recovered = excluded.tasks_recovered,
  poll_interval = excluded.poll_interval,
  loop_lag = excluded.loop_lag,
  status = excluded.status,
  last_heartbeat = excluded.last_heartbeat
where worker.status <> 'stopped'           -- a beat that was under way at the end; a new start has a new id
returning drain_requested

-- name: cancel_requested
select t.id
from task t
where t.id = :id and t.cancel_requested

-- name: sign_off
update worker
set status = 'stopped', last_heartbeat = :now
where id = :id

-- name: lane_change
select c.moved
from lane_change c

-- name: lanes
select
  l.id, l.queue, l.type, l.version, l.tags, l.requires, l.tenant,
  l.gates is not null
    or exists (
      select 1 from gate g
      where g.kind = 'type' and g.name = l.type and g.max_per_key is not null
    )
from lane l

-- name: claim.heads
select
  l.id, l.gates, r.np, r.seq,
  exists (select 1 from ready m where m.lane = l.id and (m.np, m.seq) > (r.np, r.seq))
from json_each(:lanes) a
cross join lane l on l.id = a.value
cross join ready r on r.lane = l.id
where not l.paused
  and (r.np, r.seq) = (select h.np, h.seq from ready h where h.lane = l.id order by h.np, h.seq limit 1)

-- name: claim.last
select r.np, r.seq
from ready r
where r.lane = :lane and r.np <= :upto
order by r.np, r.seq
limit 1 offset :skip

-- name: claim.count
select count(*)
from ready r
where r.lane = :lane and r.np <= :upto

-- name: claim.lease
insert into lease (
  id, grant_id, worker, seq, lease_timeout, boot, boot_end, started_at,
  lane, fence, np, tries, alone, child, gates, key
)
select
  r.id, :grant, :worker, r.seq, :now + :lease, :boot, :boot_now + :lease, :now,
  r.lane, r.fence + 1, r.np, r.tries + 1, r.alone, r.child, :gates, r.key
from ready r
where r.lane = :lane and (r.np, r.seq) <= (:np, :seq)

-- name: claim.taken
-- By columns: with each row that SQLite hands over, Python's threads take turns. Large payloads are left out.
select
  group_concat(hex(r.id)), group_concat(r.lane), group_concat(r.np), group_concat(r.seq),
  group_concat(r.fence + 1), group_concat(r.tries + 1),
  group_concat(case when length(t.payload) <= 4096 then hex(t.payload) else '' end),
  group_concat(
    t.cancel_requested or r.alone or t.max_tries is not null or t.policy is not null
      or t.parent is not null or t.expires_at is not null or t.user_id is not null
  )
from ready r
cross join task t on t.id = r.id
where r.lane = :lane and (r.np, r.seq) <= (:np, :seq)
having count(*) > 0

-- name: claim.payload
select t.payload
from task t
where t.id = :id

-- name: claim.special
select
  t.id, t.max_tries, t.policy, t.parent, t.cancel_requested, (t.expires_at - :now) / 1e6,
  (select l.alone from lease l where l.id = t.id), t.user_id
from task t
where t.id = :id

-- name: claim.leave
delete from ready
where lane = :lane and (np, seq) <= (:np, :seq)

-- name: gate.room
select
  min(g.max_running - g.running + coalesce((select sum(f.n) from freed f where f.gate = g.id), 0)),
  min(
    cast(
      g.rate_burst - max(coalesce(g.rate_next - :now, 0), 0) / 1e6 / g.rate_interval + 1e-6 as integer
    )
  ),
  max((g.rate_next - :now) / 1e6 - (g.rate_burst - 1) * g.rate_interval),
  max(g.rate_next > :now + g.rate_burst * g.rate_interval * 1e6 + 1)
from gate g
where g.id in (select a.value from json_each(:gates) a)

-- name: gate.set_right
-- The wall clock was set back, or the rate was raised: nobody pays for more than one burst.
update gate
set rate_next = :now + cast(rate_burst * rate_interval * 1e6 as integer)
where id in (select a.value from json_each(:gates) a)
  and rate_next > :now + rate_burst * rate_interval * 1e6 + 1

-- name: gate.count
update gate
set
  running = running + :took - coalesce((select sum(f.n) from freed f where f.gate = gate.id), 0),
  rate_next = max(coalesce(rate_next, :now), :now) + cast(round(:took * rate_interval * 1e6) as integer)
where id in (select a.value from json_each(:gates) a)

-- name: gate.folded
delete from freed
where gate in (select a.value from json_each(:gates) a)

-- name: freed.add
insert into freed (gate, n)
values (:gate, :n)

-- Seconds until something is due, whether keys were nudged, how often lanes have changed, and whether this very claim
-- was written before.
-- name: claim.around
-- Leases are few: to read them all takes less than to keep an index.
select
  (select max(min(l.run_at) - :now, 0) / 1e6 from later l where l.run_at < 9223372036854775807),
  exists (select 1 from nudge),
  (select c.moved from lane_change c),
  exists (select 1 from lease l where l.grant_id = :grant and l.worker = :worker)

-- name: claim.held
select
  l.id, l.lane, l.np, l.seq, l.fence, l.tries, t.payload, t.max_tries,
  t.policy, t.parent, t.cancel_requested, (t.expires_at - :now) / 1e6, l.alone, t.user_id
from lease l
cross join task t on t.id = l.id
where l.grant_id = :grant and l.worker = :worker

-- The same, as a claim answers.
-- name: claim.again
select
  l.id, l.lane, l.np, l.seq, l.fence, l.tries, t.payload,
  t.cancel_requested or l.alone or t.max_tries is not null or t.policy is not null
    or t.parent is not null or t.expires_at is not null or t.user_id is not null
from lease l
cross join task t on t.id = l.id
where l.grant_id = :grant and l.worker = :worker

-- name: repair
delete from ready
where (lane, np, seq) in (
  select d.lane, d.np, d.seq
  from (
    select q.lane, q.np, q.seq, q.id, row_number() over (partition by q.id order by q.seq) as copy
    from ready q
    where q.lane in (select a.value from json_each(:lanes) a)
  ) d
  where d.copy > 1
    or exists (select 1 from lease l where l.id = d.id)
    or exists (select 1 from outcome o where o.id = d.id)
    or exists (select 1 from later w where w.id = d.id)
)
returning id

-- name: repair.lease
delete from lease
where id = :id
  and (
    exists (select 1 from outcome o where o.id = :id)
    or exists (select 1 from later w where w.id = :id)
  )
returning id, lane, gates, key

-- name: renew.keep
update lease
set lease_timeout = :now + :lease, boot = :boot, boot_end = :boot_now + :lease
where id = :id and grant_id = :grant
returning id, (select t.cancel_requested from task t where t.id = lease.id)

-- name: settle.one
delete from lease
where id = :id
  and grant_id = :grant
returning worker, started_at, fence, tries, child, lane, gates, key

-- What is all done comes as one list of texts: id, grant and result in hex, the result x for none.
-- One statement for all is quicker than one for each that carries every column to Python and back.
-- name: settle.done
insert into outcome (
  id, grant_id, worker, seq, started_at, finished_at, fence, tries, state, ended_by, result
)
select
  l.id, l.grant_id, l.worker, :first + a.key, l.started_at, :now, l.fence, l.tries, 'done', :by,
  unhex(substr(a.value, 65))
from json_each(:asked) a
cross join lease l on l.id = unhex(substr(a.value, 1, 32))
where l.grant_id = unhex(substr(a.value, 33, 32))

-- name: settle.any_special
select 1
from lease l
where l.gates is not null or l.child or l.key is not null
limit 1

-- name: settle.special
select l.id, l.lane, l.gates, l.child, l.key
from json_each(:asked) a
cross join lease l on l.id = unhex(substr(a.value, 1, 32))
where l.grant_id = unhex(substr(a.value, 33, 32))
  and (l.gates is not null or l.child or l.key is not null)

-- name: settle.leave
-- Whose outcomes were written just now, in the same transaction.
delete from lease
where id in (select o.id from outcome o where o.seq > :after)

-- name: settle.accepted
select o.id
from json_each(:asked) a
cross join outcome o on o.id = unhex(substr(a.value, 1, 32))
where o.seq > :after

-- name: settle.take
delete from lease
where id = :id
  and grant_id = :grant
  and (not :lapsed_only or boot <> :boot or boot_end < :boot_now)
returning id, grant_id, worker, started_at, fence, tries, lane, gates, child, key, seq, np, alone

-- name: settle.judge
select
  t.id,
  case
    when :verdict in ('done', 'failed', 'cancelled') then :verdict
    when t.cancel_requested then 'cancelled'
    when t.expires_at <= :now then 'failed'
    when not :refund and :tries >= coalesce(t.max_tries, :default_tries) then 'failed'
  end,
  :verdict not in ('done', 'failed', 'cancelled') and not t.cancel_requested and coalesce(t.expires_at <= :now, 0),
  t.parent,
  la.pool,
  :refund and not :lonely and (:tries > 1 or :alone)
    and coalesce((select s.fence from step s where s.id = :id order by s.position desc limit 1) = :fence, 0)
from task t
cross join lane la on la.id = :lane
where t.id = :id

-- The tries of a task that its errors have cost: the least of what was charged after an attempt and the errors since.
-- name: settle.failures
select min(
  :tries - 1,
  coalesce(min(r.tries + r.since), :tries),
  iif(count(*) < 100, count(*) filter (where r.ended = 'retry'), :tries)
)
from (
  select
    a.tries,
    a.ended,
    count(*) filter (where a.ended = 'retry')
      over (order by a.fence desc, a.seq desc rows between unbounded preceding and 1 preceding) as since
  from (
    select a.tries, a.ended, a.fence, a.seq
    from attempt a
    where a.id = :id
      and a.ended in ('retry', 'lost', 'snoozed', 'failed', 'cancelled')
    order by a.fence desc, a.seq desc
    limit 100
  ) a
) r

-- name: settle.parent
select t.parent
from task t
where t.id = :id

-- name: wake.parent
insert into wake (id, urgent)
select p.id, 0
from task t
cross join task p on p.id = t.parent
where t.id = :id
returning id

-- name: outcome.add
insert into outcome (
  id, grant_id, worker, seq, started_at, finished_at, fence, tries, state, ended_by,
  result, error_type, error, detail
)
values (
  :id, :grant, :worker, :seq, :started_at, :now, :fence, :tries, :state, :by,
  :result, :error_type, :error, :detail
)

-- name: attempt.add
insert into attempt (
  seq, id, grant_id, worker, started_at, ended_at, fence, tries, ended, ended_by, error_type, error, detail
)
values (
  :seq, :id, :grant, :worker, :started_at, :now, :fence, :tries, :ended, :by, :error_type, :error, :detail
)

-- What finds its place taken by another task is not answered.
-- name: ready.give_back
insert into ready (lane, np, seq, id, fence, tries, alone, child)
values (:lane, :np, :seq, :id, :fence, :tries, :alone, :child)
on conflict (lane, np, seq) do update
set id = ready.id
where ready.id = excluded.id
returning id

-- name: blocked.give_back
insert into blocked (pool, key, np, seq, id, lane, fence, tries, alone, child)
values (:pool, :key, :np, :seq, :id, :lane, :fence, :tries, :alone, :child)
on conflict (pool, key, np, seq) do update
set id = blocked.id
where blocked.id = excluded.id
returning id

-- name: settled
select :id
where exists (
    select 1 from outcome o
    where o.id = :id and o.grant_id = :grant and o.ended_by = 'holder'
  )
  or exists (
    select 1 from attempt a
    where a.id = :id and a.grant_id = :grant and a.ended_by = 'holder'
  )

-- name: refuse.add
insert into refusal (seq, id, grant_id, fence, verb, at)
values (:seq, :id, :grant, :fence, :verb, :now)

-- name: progress.write
insert into progress (id, percent, message, saved, updated_at)
select l.id, :percent, :message, :saved, :now
from lease l
where l.id = :id and l.grant_id = :grant
on conflict (id) do update
set
  percent = excluded.percent,
  message = excluded.message,
  saved = coalesce(excluded.saved, progress.saved),
  updated_at = excluded.updated_at
returning 1
