-- name: register
insert into holdfast.worker (
  id, tenant, name, host, pid, version, queues, tags, capabilities, tenants, group_id, types, priority, slots,
  status, tasks_acquired, tasks_recovered, poll_interval, loop_lag, lease, started_at, last_heartbeat
)
values (
  :id, :tenant, :name, :host, :pid, :version, :queues, :tags, :capabilities, :tenants, :group_id, :types, :priority, :slots,
  :status, :tasks_acquired::bigint + :more_acquired::bigint, :tasks_recovered, :poll_interval, :loop_lag, :lease, holdfast.clock(), holdfast.clock()
)
on conflict (id) do update
set
  types = excluded.types,
  slots = excluded.slots,
  tasks_acquired = greatest(worker.tasks_acquired, :tasks_acquired) + :more_acquired,
  tasks_recovered = excluded.tasks_recovered,
  poll_interval = excluded.poll_interval,
  loop_lag = excluded.loop_lag,
  -- a beat that was under way when the worker signed off does not bring it back
  status = case when worker.status = 'stopped' then 'stopped' else excluded.status end,
  last_heartbeat = excluded.last_heartbeat
returning drain_requested

-- name: cancel_requested
select t.id
from holdfast.task t
where t.id = any (:ids) and t.cancel_requested

-- name: sign_off
update holdfast.worker w
set status = 'stopped', last_heartbeat = holdfast.clock()
where w.id = :id

-- name: lane_change
select c.moved
from holdfast.lane_change c

-- name: lanes
select
  l.id, l.queue, l.type, l.version, l.tags, l.requires, l.tenant,
  l.gates is not null
    or exists (
      select from holdfast.gate g
      where g.kind = 'type' and g.name = l.type and g.max_per_key is not null
    )
from holdfast.lane l

-- name: claim
select
  ids, lanes, nps, seqs, fences, tries, payloads,
  specials, max_tries, policies, parents, cancels, lefts, alones, user_ids,
  contended, is_full, next_due, lane_change, memory
from holdfast.claim(:worker, :grant, :lanes, :turns, :want, :lease, :wait_gate, :durable, :memory)

-- name: claimed
select
  id, lane, np, seq, fence, tries, payload, max_tries, policy, parent, cancel_requested, expires_in, alone, user_id
from holdfast.claimed(:worker, :grant)

-- name: repair
-- What has ended waits for nothing any more.
with later as (
  delete from holdfast.later w
  where w.lane = any (:lanes) and exists (select from holdfast.outcome o where o.id = w.id)
  returning w.id
), blocked as (
  delete from holdfast.blocked b
  where b.lane = any (:lanes) and exists (select from holdfast.outcome o where o.id = b.id)
  returning b.id
)
select holdfast.repair(:lanes)
union all
select l.id
from later l
union all
select b.id
from blocked b

-- name: repair_leases
select holdfast.repair_leases(:ids)

-- name: renew
select id, cancel_requested
from holdfast.renew(:ids, :grants, :lease)

-- name: settle
-- Also on connections of callers, whose libraries may not ask for the types: they are said.
select whole, accepted, states, parents
from holdfast.settle(
  :ids::uuid[], :grants::uuid[], :verdicts::text[], :delays::float8[], :refunds::boolean[],
  :alones::boolean[], :wakes::int[], :watched::text[], :reasons::text[], :results::bytea[], :error_types::text[],
  :errors::text[], :details::bytea[], :seen_ids::uuid[], :seen::bigint[], :by::text,
  :lapsed_only::boolean, :default_tries::int
)

-- name: settle_one
select held, parent
from holdfast.settle_one(:id, :grant, :result)

-- name: settled
select holdfast.settled(:ids, :grants)

-- name: refuse
select holdfast.refuse(:verb, :ids, :grants, :fences)

-- name: progress
select holdfast.progress(:id, :grant, :percent, :message, :saved)
