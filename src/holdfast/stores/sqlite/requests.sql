-- name: request.begin
insert into request (scope, key, digest, state, token, at)
values (:scope, :key, :digest, 'running', :token, :now)
on conflict (scope, key) do update
set
  digest = excluded.digest, state = 'running', token = excluded.token, status = null, headers = null, body = null,
  at = :now
where at < :now - :kept
  or (
    state = 'running'
    and digest = excluded.digest
    and (token = excluded.token or at < :now - :patience)
  )
returning 'new', null, null, null

-- name: request.find
select case when r.digest = :digest then r.state else 'other' end, r.status, r.headers, r.body
from request r
where r.scope = :scope and r.key = :key

-- name: end_request
update request
set state = 'done', status = :status, headers = :headers, body = :body, at = :now
where scope = :scope and key = :key and token = :token
returning key

-- name: drop_request
delete from request
where scope = :scope and key = :key and token = :token and state = 'running'
returning key

-- name: request.forget
delete from request
where (scope, key) in (
  select r.scope, r.key
  from request r
  where r.at < :now - :kept
  order by r.at
  limit :batch
)
