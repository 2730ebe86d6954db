-- name: intern_lanes
select holdfast.intern_lanes(:queues, :types, :versions, :tags, :requires, :tenants)

-- name: accept
-- Also on connections of callers, whose libraries may not ask for the types: they are said.
select taken_ids, taken_by, conflicts
from holdfast.accept(
  :ids::uuid[], :lanes::int[], :nps::smallint[], :payloads::bytea[], :max_tries::smallint[],
  :policies::bytea[], :delays::float8[], :run_ats::timestamptz[], :expires::float8[],
  :keys::text[], :tenants::text[], :fingerprints::bytea[], :lifetimes::float8[],
  :concurrency_keys::text[], :user_ids::text[], :parents::uuid[]
)

-- name: known
select t.id, substr(sha256(convert_to(l.type, 'UTF8') || decode('00', 'hex') || t.payload), 1, 16)
from holdfast.task t
left join holdfast.lane l on l.id = any (array[t.lane])
where t.id = any (:ids)

-- name: key_holders
select k.tenant, k.key, k.id, k.fingerprint
from unnest(:tenants::text[], :keys::text[]) as a (tenant, key)
join holdfast.task_key k on k.tenant = a.tenant and k.key = a.key
