-- name: record
select held, conflicts, taken_ids, taken_by, key_conflicts, leased
from holdfast.record(
  :id, :grant, :positions, :kinds, :names, :step_values, :consumed, :seen,
  :ids, :lanes, :nps, :payloads, :max_tries, :policies, :delays, :run_ats, :expires, :keys, :tenants,
  :fingerprints, :lifetimes, :concurrency_keys, :user_ids, :parents, :worker, :taking, :lease, :most
)

-- name: record_child
select holdfast.record_child(
  :id, :grant, :positions, :kinds, :names, :step_values, :child, :lane, :np, :payload, :max_tries, :policy, :user_id,
  :worker, :taking, :lease, :durable
)

-- name: record_step
select holdfast.record_step(:id, :grant, :position, :kind, :name, :step_value)

-- name: record_steps
select holdfast.record_steps(:ids, :grants, :positions, :kinds, :names, :step_values, :apart)

-- name: restart
select whole, accepted, states, parents
from holdfast.restart(:id, :grant, :payload, :default_tries)

-- name: payload
select t.payload
from holdfast.task t
where t.id = :id

-- Whether it has a journal, its last attempt that was no loss, and the last one of its former life.
-- name: past
select
  a.id,
  exists (select from holdfast.step s where s.id = a.id),
  (
    select t.fence
    from holdfast.attempt t
    where t.id = a.id and t.ended not in ('lost', 'handed_back')
    order by t.fence desc
    limit 1
  ),
  (
    select t.fence
    from holdfast.attempt t
    where t.id = a.id and t.ended in ('failed', 'cancelled')
    order by t.fence desc
    limit 1
  )
from unnest(:ids::uuid[]) as a (id)

-- name: steps
select
  s.position, s.kind, s.name, s.value,
  extract(epoch from holdfast.clock() - s.recorded_at)::float8,
  s.fence
from holdfast.step s
where s.id = :id
order by s.position

-- A part of it, whose values are not much larger than `bytes`: at least one entry.
-- name: steps.page
with page as (
  select s.position, coalesce(octet_length(s.value), 0) as size
  from holdfast.step s
  where s.id = :id and s.position > :after and (not :families or s.kind in ('child', 'holder'))
  order by s.position
  limit :most
),
cut as (select p.position, sum(p.size) over (order by p.position) - p.size as before from page p)
select s.position, s.kind, s.name, s.value
from cut c
join holdfast.step s on s.id = :id and s.position = c.position
where c.before < :bytes
order by s.position

-- What has come for a function that is in somebody's memory, as of one moment.
-- name: news
select w.seqs, s.signals, s.names, s.payloads, o.ids, o.states, o.results, o.types, o.errors, o.details
from (
  select array_agg(w.seq order by w.seq) as seqs
  from holdfast.wake w
  where w.id = :id
) w
cross join (
  select
    array_agg(s.signal order by s.seq) as signals,
    array_agg(s.name order by s.seq) as names,
    array_agg(s.payload order by s.seq) as payloads
  from (
    select o.*
    from unnest(:names::text[]) as n (name)
    cross join lateral (
      select s.signal, s.name, s.payload, s.seq
      from holdfast.signal s
      where s.id = :id and not s.consumed and s.name = n.name
      order by s.seq
      limit :most
    ) o
    order by o.seq
    limit :most
  ) s
) s
cross join (
  select
    array_agg(o.id order by o.seq) as ids,
    array_agg(o.state order by o.seq) as states,
    array_agg(o.result order by o.seq) as results,
    array_agg(o.error_type order by o.seq) as types,
    array_agg(o.error order by o.seq) as errors,
    array_agg(o.detail order by o.seq) as details
  from unnest(:children::uuid[]) as c (id)
  join holdfast.outcome o on o.id = any (array[c.id])
) o

-- name: saved
select p.percent, p.message, p.saved, p.updated_at
from holdfast.progress p
where p.id = :id

-- name: send_signal
select holdfast.send_signal(:signal, :id, :name, :payload)

-- name: watchers
select holdfast.watchers(:ids)

-- name: in_vain
select v.task, v.forgotten
from holdfast.in_vain(:id, :ids) v

-- name: wake_up
select holdfast.wake_up(:ids)

-- Children that have not ended, in the order of their ids, and whether their parents have, a while ago. Not
-- those that somebody gave a new life of their own, nor those whose key others may have asked for.
-- name: orphans
with open as materialized (
  (select l.id from holdfast.later l where l.child and l.id > :after order by l.id limit :batch)
  union all
  (select b.id from holdfast.blocked b where b.child and b.id > :after order by b.id limit :batch)
  union all
  (select r.id from holdfast.ready r where r.child and r.id > :after order by r.id limit :batch)
  union all
  (select e.id from holdfast.lease e where e.child and e.id > :after order by e.id limit :batch)
  order by 1
  limit :batch
)
select
  c.id,
  t.key is null
    and exists (
      select from holdfast.outcome o
      where o.id = t.parent and o.finished_at <= holdfast.clock() - make_interval(secs => :quiet)
    )
    and not exists (
      select from holdfast.attempt a
      where a.id = c.id and a.ended in ('failed', 'cancelled')
    )
from open c
join holdfast.task t on t.id = any (array[c.id])
order by c.id

-- The topmost ancestors.
-- name: roots
with recursive up (id, at, height) as (
  select a.id, a.id, 0
  from unnest(:ids::uuid[]) as a (id)
  union all
  select u.id, t.parent, u.height + 1
  from up u
  join holdfast.task t on t.id = any (array[u.at])
  where t.parent is not null
)
select distinct on (u.id) u.id, u.at
from up u
order by u.id, u.height desc
