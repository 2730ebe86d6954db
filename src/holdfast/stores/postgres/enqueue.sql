-- name: intern_lane
select holdfast.intern_lane(:queue, :type, :version, :tags, :requires, :tenant)

-- name: accept
select taken_ids, taken_by, conflicts
from holdfast.accept(
  :ids, :lanes, :nps, :payloads, :max_tries, :policies, :delays, :run_ats, :expires,
  :keys, :tenants, :fingerprints, :while_pendings, :concurrency_keys, :parents
)

-- name: known
select t.id
from holdfast.task t
where t.id = any (:ids)
