-- name: start_operation
insert into holdfast.operation (id, action, filter, rate, state, matched, capped, actor, tenant, reason, created_at)
values (:id, :action, :filter::text::json, :rate, 'pending', :matched, :capped, :actor, :tenant, :reason, holdfast.clock())
on conflict (id) do nothing

-- name: operations
select
  o.id, o.action, o.filter::text, o.rate, o.state, o.matched, o.capped, o.done, o.failed, o.position, o.actor,
  o.tenant, o.reason, o.error, o.created_at, o.ended_at
from holdfast.operation o
where (:id::uuid is null or o.id = :id)
  and (:before::uuid is null or o.id < :before)
  and (:tenant::text is null or o.tenant = :tenant)
order by o.id desc
limit :limit

-- name: cancel_operation
update holdfast.operation o
set state = 'cancelled', ended_at = holdfast.clock(), grant_id = null, lease_timeout = null
where o.id = :id and o.state in ('pending', 'running')
returning o.id

-- name: take_operations
-- A lease that ends far ahead was given out before the clock was set back.
with free as materialized (
  select o.id
  from holdfast.operation o
  where o.state in ('pending', 'running')
    and (
      o.grant_id is null
      or o.grant_id = :grant
      or o.lease_timeout < holdfast.clock()
      or o.lease_timeout > holdfast.clock() + make_interval(secs => 2 * :lease)
    )
  order by o.id
  limit :limit
  for update skip locked
)
update holdfast.operation o
set state = 'running', grant_id = :grant, lease_timeout = holdfast.clock() + make_interval(secs => :lease)
from free f
where o.id = f.id
returning
  o.id, o.action, o.filter::text, o.rate, o.state, o.matched, o.capped, o.done, o.failed, o.position, o.actor,
  o.tenant, o.reason, o.error, o.created_at, o.ended_at

-- name: advance_operation
update holdfast.operation o
set
  position = :position,
  matched = coalesce(:matched, o.matched),
  done = :done,
  failed = :failed,
  lease_timeout = holdfast.clock() + make_interval(secs => :lease)
where o.id = :id
  and o.grant_id = :grant
  and o.state = 'running'
returning o.id

-- name: end_operation
update holdfast.operation o
set state = :state, error = :error, ended_at = coalesce(o.ended_at, holdfast.clock())
where o.id = :id
  and o.grant_id = :grant
  and o.state in ('running', :state)
returning o.id
