-- name: add_key
-- No row: the id is another key's.
insert into api_key (id, name, tenant, scopes, digest, created_at, created_by, expires_at)
values (:id, :name, :tenant, :scopes, :digest, :now, :created_by, cast(:now + :expires * 1e6 as integer))
on conflict (id) do update
set name = name
where digest = excluded.digest
returning id

-- name: keys
select
  k.id, k.name, k.tenant, k.scopes, k.digest, k.created_at, k.created_by, k.expires_at, k.last_used_at, k.revoked_at,
  coalesce(k.expires_at <= :now, 0)
from api_key k
where :id is null or k.id = :id
order by k.created_at, k.id

-- name: revoke_key
update api_key
set revoked_at = :now
where id = :id and revoked_at is null
returning id

-- name: touch_keys
update api_key
set last_used_at = :now
where id in (select a.value from json_each(:ids) a) and (last_used_at is null or last_used_at <= :now - 60000000)
returning id
