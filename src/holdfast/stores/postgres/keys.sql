-- name: add_key
-- No row: the id is another key's.
insert into holdfast.api_key as k (id, name, tenant, scopes, digest, created_at, created_by, expires_at)
values (
  :id, :name, :tenant, :scopes, :digest, holdfast.clock(), :created_by,
  holdfast.clock() + make_interval(secs => :expires::float8)
)
on conflict (id) do update
set name = k.name
where k.digest = excluded.digest
returning k.id

-- name: keys
select
  k.id, k.name, k.tenant, k.scopes, k.digest, k.created_at, k.created_by, k.expires_at, k.last_used_at, k.revoked_at,
  coalesce(k.expires_at <= holdfast.clock(), false)
from holdfast.api_key k
where :id::text is null or k.id = :id
order by k.created_at, k.id

-- name: revoke_key
update holdfast.api_key k
set revoked_at = holdfast.clock()
where k.id = :id and k.revoked_at is null
returning k.id

-- name: touch_keys
-- Once a minute is enough, and waits for nobody.
update holdfast.api_key k
set last_used_at = holdfast.clock()
where k.id in (
  select x.id
  from holdfast.api_key x
  where x.id = any (:ids::text[])
    and (x.last_used_at is null or x.last_used_at <= holdfast.clock() - interval '1 minute')
  order by x.id
  for no key update skip locked
)
returning k.id
