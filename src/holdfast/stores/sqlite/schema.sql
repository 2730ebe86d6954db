-- name: schema.tables
select s.name
from sqlite_schema s
where s.type in ('table', 'view') and s.name not like 'sqlite_%'

-- name: schema.version
select m.version, m.fits
from migration m
order by m.version desc
limit 1

-- name: schema.moved_to
insert into migration (version, name, fits, applied_at)
values (:version, :name, :fits, :now)

-- name: counter.take
update counter
set value = value + :n
where name = :name
returning value

-- name: counter.now
select c.value
from counter c
where c.name = :name

-- name: counter.set
update counter
set value = :value
where name = :name
