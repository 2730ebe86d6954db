-- name: start_operation
insert into operation (id, action, filter, rate, state, matched, capped, actor, tenant, reason, created_at)
values (:id, :action, :filter, :rate, 'pending', :matched, :capped, :actor, :tenant, :reason, :now)
on conflict (id) do nothing

-- name: operations
select
  o.id, o.action, o.filter, o.rate, o.state, o.matched, o.capped, o.done, o.failed, o.position, o.actor,
  o.tenant, o.reason, o.error, o.created_at, o.ended_at
from operation o
where (:id is null or o.id = :id)
  and (:before is null or o.id < :before)
  and (:tenant is null or o.tenant = :tenant)
order by o.id desc
limit :limit

-- name: cancel_operation
update operation
set state = 'cancelled', ended_at = :now, grant_id = null, lease_timeout = null
where id = :id and state in ('pending', 'running')
returning id

-- name: take_operations
-- A lease that ends far ahead was given out before the clock was set back.
update operation
set state = 'running', grant_id = :grant, lease_timeout = cast(:now + :lease * 1e6 as integer)
where id in (
  select o.id
  from operation o
  where o.state in ('pending', 'running')
    and (
      o.grant_id is null
      or o.grant_id = :grant
      or o.lease_timeout < :now
      or o.lease_timeout > :now + 2e6 * :lease
    )
  order by o.id
  limit :limit
)
returning
  id, action, filter, rate, state, matched, capped, done, failed, position, actor, tenant, reason, error, created_at,
  ended_at

-- name: advance_operation
update operation
set
  position = :position,
  matched = coalesce(:matched, matched),
  done = :done,
  failed = :failed,
  lease_timeout = cast(:now + :lease * 1e6 as integer)
where id = :id
  and grant_id = :grant
  and state = 'running'
returning id

-- name: end_operation
update operation
set state = :state, error = :error, ended_at = coalesce(ended_at, :now)
where id = :id
  and grant_id = :grant
  and state in ('running', :state)
returning id

-- name: operation.forget
delete from operation
where id in (
  select o.id from operation o where o.ended_at < :now - :kept order by o.id limit :batch
)
