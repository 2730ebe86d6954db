-- name: wall
select holdfast.wall(:role)

-- name: is_walled
select row_security_active('holdfast.task'::regclass)
