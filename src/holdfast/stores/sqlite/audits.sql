-- name: note
insert into audit (at, actor, tenant, verb, subject, detail)
values (:now, :actor, :tenant, :verb, :subject, :detail)
returning seq

-- name: audits.after
select a.seq, a.at, a.actor, a.tenant, a.verb, a.subject, a.detail
from audit a
where a.seq > :after and (:tenant is null or a.tenant = :tenant)
order by a.seq
limit :limit

-- name: audits.before
select a.seq, a.at, a.actor, a.tenant, a.verb, a.subject, a.detail
from audit a
where a.seq < coalesce(:before, 9223372036854775807) and (:tenant is null or a.tenant = :tenant)
order by a.seq desc
limit :limit

-- name: audit.old
select max(x.seq)
from (select a.seq, a.at from audit a order by a.seq limit :batch) x
where x.at < :now - :kept

-- name: audit.mark
insert into reached (name, seq)
values ('audit', :seq)
on conflict (name) do update set seq = max(seq, excluded.seq)

-- name: audit.forget
delete from audit
where seq <= :seq
