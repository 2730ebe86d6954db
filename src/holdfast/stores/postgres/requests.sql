-- name: begin_request
select said, status, headers, body
from holdfast.begin_request(:scope, :key, :digest, :token, :patience, :kept)

-- name: end_request
update holdfast.request r
set state = 'done', status = :status, headers = :headers, body = :body, at = holdfast.clock()
where r.scope = :scope and r.key = :key and r.token = :token
returning r.key

-- name: drop_request
delete from holdfast.request r
where r.scope = :scope and r.key = :key and r.token = :token and r.state = 'running'
returning r.key
