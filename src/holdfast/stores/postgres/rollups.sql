-- name: rolled_up
select max(r.seq)
from holdfast.reached r
where r.name = 'rollup'

-- How many come next, up to which number none is missing, and the last of them.
-- name: event_numbers
select
  count(*),
  coalesce(:after + min(y.place) filter (where y.seq <> :after + y.place) - 1, max(y.seq), :after),
  coalesce(max(y.seq), :after)
from (
  select x.seq, row_number() over (order by x.seq) as place
  from (
    (select o.seq from holdfast.outcome o where o.state = 'done' and o.seq > :after order by o.seq limit :limit)
    union all
    (select o.seq from holdfast.outcome o where o.state = 'failed' and o.seq > :after order by o.seq limit :limit)
    union all
    (select o.seq from holdfast.outcome o where o.state = 'cancelled' and o.seq > :after order by o.seq limit :limit)
    union all
    (select a.seq from holdfast.attempt a where a.seq > :after order by a.seq limit :limit)
    union all
    (select r.seq from holdfast.refusal r where r.seq > :after order by r.seq limit :limit)
  ) x
  order by x.seq
  limit :limit
) y

-- name: roll_up
select holdfast.roll_up(:after, :upto)

-- name: rollups
with picked as materialized (
  select r.*, date_bin(make_interval(secs => :step), r.minute, to_timestamp(0)) as slot
  from holdfast.rollup r
  where r.minute >= :since
    and r.minute < :until
    and (:queue::text is null or r.queue = :queue)
    and (:type::text is null or r.type = :type)
    and (:tenant::text is null or r.tenant = :tenant)
), waits as (
  select x.slot, array_agg(x.n order by x.place) as counts
  from (
    select p.slot, u.place, sum(u.n)::bigint as n
    from picked p
    cross join lateral unnest(p.wait) with ordinality as u (n, place)
    group by p.slot, u.place
  ) x
  group by x.slot
), runs as (
  select x.slot, array_agg(x.n order by x.place) as counts
  from (
    select p.slot, u.place, sum(u.n)::bigint as n
    from picked p
    cross join lateral unnest(p.run) with ordinality as u (n, place)
    group by p.slot, u.place
  ) x
  group by x.slot
), sums as (
  select
    p.slot, sum(p.done)::bigint as done, sum(p.failed)::bigint as failed, sum(p.cancelled)::bigint as cancelled,
    sum(p.retried)::bigint as retried, sum(p.lost)::bigint as lost,
    sum(p.wait_seconds) as wait_seconds, sum(p.run_seconds) as run_seconds
  from picked p
  group by p.slot
)
select
  s.slot, s.done, s.failed, s.cancelled, s.retried, s.lost, w.counts, s.wait_seconds, r.counts, s.run_seconds
from sums s
join waits w on w.slot = s.slot
join runs r on r.slot = s.slot
order by s.slot

-- name: forget_records
select holdfast.forget_records(:audits, :requests, :operations, :rollups, :batch)
