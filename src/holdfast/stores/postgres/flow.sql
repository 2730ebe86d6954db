-- name: record
select held, conflicts
from holdfast.record(:id, :grant, :positions, :kinds, :names, :step_values, :consumed, :seen)

-- name: steps
select s.position, s.kind, s.name, s.value
from holdfast.step s
where s.id = :id
order by s.position

-- name: signals
select s.signal, s.name, s.payload
from holdfast.signal s
where s.id = :id and not s.consumed
order by s.seq

-- name: wakes
select w.seq
from holdfast.wake w
where w.id = :id
order by w.seq

-- name: saved
select p.percent, p.message, p.saved, p.updated_at
from holdfast.progress p
where p.id = :id

-- name: send_signal
select holdfast.send_signal(:signal, :id, :name, :payload)

-- name: wake_up
select holdfast.wake_up(:ids)
