-- name: note
select holdfast.note(:actor, :tenant, :verb, :subject, :detail)

-- name: audits
-- Oldest first from a number on, or newest first down from one.
select x.seq, x.at, x.actor, x.tenant, x.verb, x.subject, x.detail::text
from (
  (
    select a.*
    from holdfast.audit a
    where :after::bigint is not null
      and a.seq > :after
      and (:tenant::text is null or a.tenant = :tenant)
    order by a.seq
    limit :limit
  )
  union all
  (
    select a.*
    from holdfast.audit a
    where :after::bigint is null
      and (:before::bigint is null or a.seq < :before)
      and (:tenant::text is null or a.tenant = :tenant)
    order by a.seq desc
    limit :limit
  )
) x
order by case when :after::bigint is null then -x.seq else x.seq end
