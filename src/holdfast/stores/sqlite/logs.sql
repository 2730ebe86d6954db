-- name: log.room
select
  l.fence,
  coalesce(sum(length(cast(g.message as blob)) + length(cast(g.logger as blob))), 0),
  coalesce(max(g.seen is not null), 0),
  coalesce(max(case when g.seen is null then g.position end), 0)
from lease l
left join task_log g on g.id = l.id and g.fence = l.fence
where l.id = :id
  and l.grant_id = :grant
group by l.fence

-- name: log.add
insert into task_log (id, fence, position, at, level, logger, message)
values (:id, :fence, :position, :at, :level, :logger, :message)

-- name: log.full
insert into task_log (id, fence, position, at, level, logger, message, seen)
values (:id, :fence, :position, :now, '', '', '', :seen)
on conflict (id, fence, position) do update
set seen = max(seen, excluded.seen), at = excluded.at

-- name: forget.logs
delete from task_log
where id = :id

-- name: logs
select
  g.fence, g.position, g.at, g.level, g.logger, g.message,
  g.seen - (select max(x.position) from task_log x where x.id = g.id and x.fence = g.fence and x.position < g.position)
from task_log g
where g.id = :id and (g.fence, g.position) > (:fence, :position)
order by g.fence, g.position
limit :limit
