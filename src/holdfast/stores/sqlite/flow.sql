-- name: lease.fence
select l.fence
from lease l
where l.id = :id and l.grant_id = :grant

-- name: step.standing
select s.position, s.kind is not :kind or s.name is not :name or s.value is not :value
from step s
where s.id = :id and s.position = :position

-- name: step.add
insert into step (id, position, kind, name, value, fence, recorded_at)
values (:id, :position, :kind, :name, :value, :fence, :now)
on conflict do nothing

-- name: record_step
insert into step (id, position, kind, name, value, fence, recorded_at)
select l.id, :position, :kind, :name, :step_value, l.fence, :now
from lease l
where l.id = :id and l.grant_id = :grant
on conflict do nothing

-- The fence of a lease that holds, where nothing stands there and nothing limits the child's lane.
-- name: record_child.guard
select l.fence
from lease l
where l.id = :id
  and l.grant_id = :grant
  and not exists (select 1 from step s where s.id = :id and s.position between :first and :last)
  and exists (select 1 from lane a where a.id = :lane and a.gates is null and not a.paused)

-- name: signal.consume
update signal
set consumed = 1
where signal = :signal and id = :id

-- name: wake.forget
delete from wake
where seq = :seq and id = :id

-- name: wake.add
insert into wake (id, urgent)
select :id, :urgent
where exists (select 1 from task t where t.id = :id)  -- a parent may be forgotten by now

-- name: restart.task
update task
set payload = :payload
where id = :id

-- name: restart.steps
delete from step
where id = :id

-- name: restart.tries
update later
set tries = 0, alone = false
where id = :id

-- name: restart.attempt
update attempt
set tries = 0
where id = :id and fence = (select l.fence from later l where l.id = :id)

-- name: payload
select t.payload
from task t
where t.id = :id

-- Whether it has a journal, and how it ended before the losses that led here.
-- name: past
select
  :id,
  exists (select 1 from step s where s.id = :id),
  (select max(t.fence) from attempt t where t.id = :id and t.ended not in ('lost', 'handed_back')),
  (select max(t.fence) from attempt t where t.id = :id and t.ended in ('failed', 'cancelled'))

-- name: steps
select s.position, s.kind, s.name, s.value, (:now - s.recorded_at) / 1e6, s.fence
from step s
where s.id = :id
order by s.position

-- A part of it, whose values are not much larger than `bytes`: at least one entry.
-- name: steps.page
with page as (
  select s.position, coalesce(length(s.value), 0) as size
  from step s
  where s.id = :id and s.position > :after and (not :families or s.kind in ('child', 'holder'))
  order by s.position
  limit :most
),
cut as (select p.position, sum(p.size) over (order by p.position) - p.size as before from page p)
select s.position, s.kind, s.name, s.value
from cut c
join step s on s.id = :id and s.position = c.position
where c.before < :bytes
order by s.position

-- name: news.signals
select s.seq
from signal s
where s.id = :id and s.consumed = 0 and s.name = :name
order by s.seq
limit :most

-- name: news.signal
select s.signal, s.name, s.payload
from signal s
where s.seq = :seq

-- name: wakes
select w.seq
from wake w
where w.id = :id
order by w.seq

-- name: news.ending
select o.id, o.state, o.result, o.error_type, o.error, o.detail, o.seq
from outcome o
where o.id = :id

-- name: saved
select p.percent, p.message, p.saved, p.updated_at
from progress p
where p.id = :id

-- name: signal.open
select 1
from task t
where t.id = :id and not exists (select 1 from outcome o where o.id = :id)

-- name: signal.sent
select 1
from signal s
where s.signal = :signal and s.id = :id

-- name: signal.add
insert into signal (signal, id, name, payload, sent_at)
values (:signal, :id, :name, :payload, :now)
on conflict do nothing
returning seq

-- name: wake.come
select l.id
from later l
where l.id = :id
  and l.waiting is not null
  and (
    l.wakes < 1000000000 and exists (select 1 from wake w where w.id = l.id and w.urgent)
    or exists (
      select 1 from json_each(l.watched) a join outcome o on o.id = unhex(a.value) where o.state <> 'done'
    )
    or l.wakes <= (
      (select count(*) from wake w where w.id = l.id)
      + (select count(*) from json_each(l.watched) a join outcome o on o.id = unhex(a.value))
    )
  )

-- Who was put down, and waits for one of these that is not its child.
-- name: watchers
select distinct w.watcher
from json_each(:ids) a
cross join watch w on w.task = unhex(a.value)

-- Those of these that it would wait for in vain: they are not there any more, or wait for it themselves, through
-- whoever watches them and through parents that have not ended.
-- name: in_vain
with recursive asked (id, forgotten) as materialized (
  select unhex(a.value), not exists (select 1 from task t where t.id = unhex(a.value))
  from json_each(:ids) a
  where not exists (select 1 from outcome o where o.id = unhex(a.value))
),
waits (id) as (
  select :id where exists (select 1 from asked a where not a.forgotten)
  union
  select t.parent
  from waits w
  cross join task t on t.id = w.id
  where t.parent is not null and not exists (select 1 from outcome o where o.id = t.parent)
  union
  select x.watcher
  from waits w
  cross join watch x on x.task = w.id
)
select a.id, a.forgotten
from asked a
where a.forgotten or exists (select 1 from waits w where w.id = a.id)

-- name: watching
select l.id, l.watched
from later l
where l.id = :id and l.watched is not null

-- Whoever watches what waits itself, or is not there any more.
-- name: watching.all
select l.id, l.watched
from (
  select distinct x.watcher
  from (select distinct w.task from watch w) t
  cross join watch x on x.task = t.task
  where exists (select 1 from later l where l.id = t.task and l.waiting is not null)
    or not exists (select 1 from task t2 where t2.id = t.task)
) w
cross join later l on l.id = w.watcher

-- From one who was woken to the next, however many wakes they have and however many wait.
-- name: wake.all_come
with recursive woken (id) as (
  select min(w.id) from wake w
  union all
  select (select min(w.id) from wake w where w.id > x.id)
  from woken x
  where x.id is not null
),
watching (id) as (
  select y.id from later y where y.watched is not null
)
select l.id
from (select x.id from woken x union select x.id from watching x) x
cross join later l on l.id = x.id
where l.waiting is not null
  and (                                    -- joins that are not complete must hide nobody
    l.wakes < 1000000000 and exists (select 1 from wake w where w.id = l.id and w.urgent)
    or exists (
      select 1 from json_each(l.watched) a join outcome o on o.id = unhex(a.value) where o.state <> 'done'
    )
    or l.wakes <= (
      (select count(*) from wake w where w.id = l.id)
      + (select count(*) from json_each(l.watched) a join outcome o on o.id = unhex(a.value))
    )
  )
limit :batch

-- name: lease.of_grant
select l.id
from lease l
where l.id = :id and l.grant_id = :grant

-- Children that have not ended, in the order of their ids, and whether their parents have, a while ago. Not
-- those that somebody gave a new life of their own, nor those whose key others may have asked for.
-- name: orphans
with open (id) as materialized (
  select * from (select l.id from later l where l.child and l.id > :after order by l.id limit :batch)
  union all
  select * from (select b.id from blocked b where b.child and b.id > :after order by b.id limit :batch)
  union all
  select * from (select r.id from ready r where r.child and r.id > :after order by r.id limit :batch)
  union all
  select * from (select e.id from lease e where e.child and e.id > :after order by e.id limit :batch)
  order by 1
  limit :batch
)
select
  c.id,
  t.key is null
    and exists (
      select 1 from outcome o
      where o.id = t.parent and o.finished_at <= :now - cast(:quiet * 1e6 as integer)
    )
    and not exists (
      select 1 from attempt a
      where a.id = c.id and a.ended in ('failed', 'cancelled')
    )
from open c
cross join task t on t.id = c.id
order by c.id

-- The topmost ancestor.
-- name: roots
with recursive up (at, height) as (
  select :id, 0
  union all
  select t.parent, u.height + 1
  from up u
  cross join task t on t.id = u.at
  where t.parent is not null
)
select :id, u.at
from up u
order by u.height desc
limit 1
