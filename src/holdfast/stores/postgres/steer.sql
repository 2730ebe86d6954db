-- name: request_cancel
select id, state
from holdfast.request_cancel(:ids, :rule)

-- name: ended_as
select o.id, o.state
from holdfast.outcome o
where o.id = any (:ids::uuid[])

-- name: open_descendants
with recursive family (id) as (
  select t.id
  from unnest(:ids::uuid[]) as a (id)
  join holdfast.task t on t.parent = any (array[a.id])
  where not :left::boolean
    or exists (select from holdfast.task c where c.id = any (array[a.id]) and c.cancel_requested)
  union
  select t.id
  from family f
  join holdfast.task t on t.parent = any (array[f.id])
)
select f.id
from family f
where not exists (select from holdfast.outcome o where o.id = any (array[f.id]))

-- name: withdraw
select withdrawn, parents
from holdfast.withdraw(:ids, :state, :error_type, :error)

-- name: retry
select holdfast.retry(:ids)

-- name: edit
select holdfast.edit(
  :id, :seen_lane, :seen_np, :seen_max_tries, :seen_expires_at, :seen_run_at,
  :lane, :np, :max_tries, :new_expiry, :expires, :new_time, :delay, :run_at
)

-- name: discard
select holdfast.forget(array(select o.id from holdfast.outcome o where o.id = any (:ids) and o.state = 'failed'))

-- name: pause
select holdfast.pause(:queue, :paused)

-- name: request_drain
update holdfast.worker w
set drain_requested = true
where w.id = :id and w.status <> 'stopped'
returning w.id

-- name: set_limit
select holdfast.set_limit(:kind, :name, :limit::text::jsonb, :declared)

-- name: limits
select
  g.kind, g.name, g.said::text, g.declared::text, g.held,
  case
    when g.max_running is not null
    then g.running - coalesce((select sum(f.n) from holdfast.freed f where f.gate = g.id), 0)::int
  end
from holdfast.gate g
where g.said is not null or g.declared is not null
order by g.kind, g.name
