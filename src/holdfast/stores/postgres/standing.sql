-- name: standing
select
  place, queue, type, version, tags, requires, tenant, key, pool, due, paused, ahead,
  cancel_requested, reason, holder, seconds_left
from holdfast.standing(:id, :cap)

-- name: standing_gates
select kind, name, max_running, running, max_per_key, running_of_key, rate_opens, occupants
from holdfast.standing_gates(:id, :type, :queue, :tenant, :pool, :key, :most)
