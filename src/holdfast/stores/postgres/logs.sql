-- name: log
select holdfast.log(
  :id, :grant, :positions, :ages, :levels, :loggers, :messages, :most, :most_bytes
)

-- name: logs
select
  g.fence, g.position, g.at, g.level, g.logger, g.message,
  g.seen - (
    select max(x.position) from holdfast.task_log x where x.id = g.id and x.fence = g.fence and x.position < g.position
  )
from holdfast.task_log g
where g.id = :id and (g.fence, g.position) > (:fence, :position)
order by g.fence, g.position
limit :limit
