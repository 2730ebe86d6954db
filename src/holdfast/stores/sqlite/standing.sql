-- name: standing.task
select
  case
    when o.id is not null then 'outcome'
    when e.id is not null then 'lease'
    when w.waiting is not null then 'waiting'
    when w.id is not null then 'later'
  end,
  l.queue, l.type, l.version, l.tags, l.requires, l.tenant, t.concurrency_key, l.pool,
  case when w.run_at > :now and w.run_at < 9223372036854775807 then (w.run_at - :now) / 1e6 end,
  exists (select 1 from queue q where q.name = l.queue and q.paused),
  t.lane,
  t.cancel_requested,
  w.waiting,
  case when e.id is not null then coalesce(k.name, cast(e.worker as text)) end,
  case when e.boot = :boot then e.boot_end - :boot_now else min(e.lease_timeout - :now, 0) end / 1e6
from task t
join lane l on l.id = t.lane
left join outcome o on o.id = t.id
left join lease e on e.id = t.id
left join later w on w.id = t.id
left join worker k on k.id = e.worker
where t.id = :id

-- name: standing.in_lane
select r.id
from ready r
where r.lane = :lane
order by r.np, r.seq
limit :cap

-- name: standing.of_key
select b.id
from blocked b
where b.pool = :pool and b.key = :key
order by b.np, b.seq
limit :cap

-- The counter of a gate that limits no number is not told: leases older than its rate are not in it.
-- Nobody waits for more than one start: a rate that is further ahead is put right by the next claim.
-- name: standing.gates
select
  g.id, g.kind, g.name, g.max_running,
  case
    when g.max_running is not null
    then g.running - coalesce((select sum(f.n) from freed f where f.gate = g.id), 0)
  end,
  g.max_per_key,
  min((g.rate_next - :now) / 1e6 - (g.rate_burst - 1) * g.rate_interval, g.rate_interval)
from gate g
where (g.kind, g.name) in (values ('type', :type), ('queue', :queue), ('tenant', :tenant))
  and (g.max_running is not null or g.max_per_key is not null or g.rate_interval is not null)
order by g.kind desc

-- name: standing.let_in
select max(
  coalesce((select g.running from key_gate g where g.pool = :pool and g.key = :key), 0)
  - coalesce((select sum(n.freed) from nudge n where n.pool = :pool and n.key = :key), 0),
  0
)

-- name: standing.occupants
select e.id
from lease e
where e.id <> :id
  and (
    (:full and :gate in (select a.value from json_each(coalesce(e.gates, '[]')) a))
    or (
      :key_full
      and e.key = :key
      and exists (select 1 from lane l where l.id = e.lane and l.pool = :pool)
    )
  )
order by e.started_at, e.id
limit :most
