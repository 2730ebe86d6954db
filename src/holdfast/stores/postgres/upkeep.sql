-- name: promote
select holdfast.promote(:batch)

-- name: lapsed
select
  id, grant_id, fence, worker, tries, max_tries, policy, alone, cancel_requested, expired, in_company, late
from holdfast.lapsed(:batch)

-- name: expire
select holdfast.expire(:batch)

-- name: sweep_wakes
select holdfast.sweep_wakes(:batch)

-- name: mark_stale
with marked as (
  update holdfast.worker w
  set status = 'stale'
  where w.status not in ('stale', 'stopped')
    and w.last_heartbeat < holdfast.clock() - make_interval(secs => :after)
  returning w.id
)
select count(*)
from marked

-- name: cleanup
select holdfast.cleanup(:retention, :dead_letters, :batch)
