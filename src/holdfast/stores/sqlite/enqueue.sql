-- name: lane.find
select l.id
from lane l
where l.type = :type
  and l.queue = :queue
  and l.tenant = :tenant
  and l.version = :version
  and l.tags = :tags
  and l.requires = :requires

-- name: lane.moved
update lane_change
set moved = moved + 1

-- name: lane.add_queue
insert into queue (name)
values (:queue)
on conflict do nothing

-- name: lane.add
insert into lane (queue, type, version, tags, requires, tenant, paused, gates, pool)
select
  :queue, :type, :version, :tags, :requires, :tenant,
  (select q.paused from queue q where q.name = :queue),
  (
    select nullif(json_group_array(g.id order by g.id), '[]')
    from gate g
    where (g.kind, g.name) in (values ('type', :type), ('queue', :queue), ('tenant', :tenant))
      and (g.max_running is not null or g.rate_interval is not null)
  ),
  0
returning id

-- name: lane.join_pool
update lane
set pool = (select min(o.id) from lane o where o.type = :type and o.tenant = :tenant)
where id = :id

-- name: lane.pools
select l.id, l.pool
from lane l

-- name: task.add
insert into task (
  id, parent, created_at, run_at, expires_at, lane, np, max_tries, key, concurrency_key, user_id,
  policy, payload
)
values (
  :id, :parent, :now, :run_at, :expires_at, :lane, :np, :max_tries, :key, :concurrency_key, :user_id,
  :policy, :payload
)

-- name: ready.add
insert into ready (lane, np, seq, id, fence, tries, alone, child)
values (:lane, :np, :seq, :id, :fence, :tries, :alone, :child)

-- name: lane.open
select l.id
from lane l
where l.id = :id and l.gates is null and not l.paused

-- name: accept.lease
insert into lease (
  id, grant_id, worker, seq, lease_timeout, boot, boot_end, started_at,
  lane, fence, np, tries, alone, child
)
values (
  :id, :grant, :worker, :seq, :now + :lease, :boot, :boot_now + :lease, :now, :lane, 1, :np, 1, 0, :child
)

-- name: later.add
insert into later (id, run_at, lane, fence, np, tries, alone, child, key, waiting, wakes, watched)
values (:id, :run_at, :lane, :fence, :np, :tries, :alone, :child, :key, :waiting, :wakes, :watched)

-- name: blocked.add
insert into blocked (pool, key, np, seq, id, lane, fence, tries, alone, child)
values (:pool, :key, :np, :seq, :id, :lane, :fence, :tries, :alone, :child)

-- name: nudge.add
insert into nudge (pool, key, freed)
values (:pool, :key, :freed)

-- name: expiry.add
insert into expiry (id, expires_at)
values (:id, :expires_at)

-- name: key.holder
select
  k.tenant, k.key, k.id, k.fingerprint,
  k.lifetime is not null and exists (
    select 1 from outcome o
    where o.id = k.id
      and (
        o.state <> 'done'
        or k.lifetime = 0                 -- whatever the clock says
        or o.finished_at <= :now - cast(k.lifetime * 1e6 as integer)
      )
  )
from task_key k
where k.tenant = :tenant and k.key = :key

-- name: key.take
insert into task_key (tenant, key, id, fingerprint, lifetime)
values (:tenant, :key, :id, :fingerprint, :lifetime)
on conflict (tenant, key) do update
set id = excluded.id, fingerprint = excluded.fingerprint, lifetime = excluded.lifetime
where task_key.lifetime is not null and exists (
    select 1 from outcome o
    where o.id = task_key.id
      and (
        o.state <> 'done'
        or task_key.lifetime = 0                 -- whatever the clock says
        or o.finished_at <= :now - cast(task_key.lifetime * 1e6 as integer)
      )
  )
returning id

-- name: key.give_back
delete from task_key
where tenant = :tenant and key = :key and id = :id

-- name: known
select t.id
from task t
where t.id = :id

-- name: task.work
select t.id, l.type, t.payload
from task t
left join lane l on l.id = t.lane
where t.id = :id
