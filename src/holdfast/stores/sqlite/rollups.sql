-- name: rolled_up
select max(r.seq)
from reached r
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
    select * from (select o.seq from outcome o where o.seq > :after order by o.seq limit :limit)
    union all
    select * from (select a.seq from attempt a where a.seq > :after order by a.seq limit :limit)
    union all
    select * from (select r.seq from refusal r where r.seq > :after order by r.seq limit :limit)
  ) x
  order by x.seq
  limit :limit
) y

-- name: rollup.start
insert into reached (name, seq)
values ('rollup', 0)
on conflict do nothing

-- name: rollup.move
update reached
set seq = :upto
where name = 'rollup' and seq = :after
returning seq

-- name: rollup.mark
select r.seq
from reached r
where r.name = 'rollup'

-- What is forgotten before its turn came to be counted.
-- name: rollup.unseen
select o.seq
from outcome o
where o.id = :id and o.seq > :after
union all
select a.seq
from attempt a
where a.id = :id and a.seq > :after

-- When a later attempt was due is not on record. As lists: with each row that SQLite hands over, Python's threads
-- take turns.
-- name: rollup.happened
select
  g.minute, coalesce(l.queue, ''), coalesce(l.type, ''), coalesce(l.tenant, ''), g.kind, g.ended_by, g.n, g.waits, g.runs
from (
  select
    h.at / 60000000 * 60000000 as minute, t.lane, h.kind, h.ended_by, count(*) as n,
    group_concat(case when h.fence = 1 then max(h.started_at - coalesce(t.run_at, t.created_at), 0) end) as waits,
    group_concat(
      case
        when h.ended_by = 'holder' and h.kind in ('done', 'failed', 'cancelled', 'retry')
        then max(h.at - h.started_at, 0)
      end
    ) as runs
  from (
    select o.id, o.state as kind, o.ended_by, o.fence, o.started_at, o.finished_at as at
    from outcome o
    where o.seq > :after and o.seq <= :upto
    union all
    select a.id, a.ended, a.ended_by, a.fence, a.started_at, a.ended_at
    from attempt a
    where a.seq > :after and a.seq <= :upto
  ) h
  left join task t on t.id = h.id
  where h.kind <> 'handed_back'            -- it never started
  group by 1, 2, 3, 4
) g
left join lane l on l.id = g.lane

-- name: rollup.find
select r.wait, r.run
from rollup r
where r.minute = :minute and r.queue = :queue and r.type = :type and r.tenant = :tenant

-- name: rollup.write
insert into rollup (
  minute, queue, type, tenant, done, failed, cancelled, retried, lost, wait, wait_seconds, run, run_seconds
)
values (
  :minute, :queue, :type, :tenant, :done, :failed, :cancelled, :retried, :lost,
  :wait, :wait_seconds, :run, :run_seconds
)
on conflict (minute, queue, type, tenant) do update
set
  done = done + excluded.done,
  failed = failed + excluded.failed,
  cancelled = cancelled + excluded.cancelled,
  retried = retried + excluded.retried,
  lost = lost + excluded.lost,
  wait = excluded.wait,
  wait_seconds = wait_seconds + excluded.wait_seconds,
  run = excluded.run,
  run_seconds = run_seconds + excluded.run_seconds

-- name: rollup.sums
select
  r.minute / :step * :step, sum(r.done), sum(r.failed), sum(r.cancelled), sum(r.retried), sum(r.lost),
  sum(r.wait_seconds), sum(r.run_seconds)
from rollup r
where r.minute >= :since
  and r.minute < :until
  and (:queue is null or r.queue = :queue)
  and (:type is null or r.type = :type)
  and (:tenant is null or r.tenant = :tenant)
group by 1
order by 1

-- name: rollup.buckets
select r.minute / :step * :step, w.key, sum(w.value), sum(n.value)
from rollup r
cross join json_each(r.wait) w
cross join json_each(r.run) n on n.key = w.key
where r.minute >= :since
  and r.minute < :until
  and (:queue is null or r.queue = :queue)
  and (:type is null or r.type = :type)
  and (:tenant is null or r.tenant = :tenant)
group by 1, 2
order by 1, 2

-- name: rollup.forget
delete from rollup
where (minute, queue, type, tenant) in (
  select r.minute, r.queue, r.type, r.tenant
  from rollup r
  where r.minute < :now - :kept
  order by r.minute
  limit :batch
)
