-- name: old_transactions
select a.pid, a.application_name::text, a.state::text, extract(epoch from holdfast.clock() - a.xact_start)::float8
from pg_stat_activity a
where a.datname = current_database()
  and a.pid <> pg_backend_pid()
  and a.backend_type = 'client backend'
  and (a.backend_xmin is not null or a.backend_xid is not null or a.state like 'idle in transaction%')
  and a.xact_start < holdfast.clock() - interval '1 second' * :seconds
order by a.xact_start
limit 5

-- name: held_rows
select 'prepared transaction', x.gid::text
from pg_prepared_xacts x
where x.database = current_database() and x.prepared < holdfast.clock() - interval '1 second' * :seconds
union all
select 'replication slot', s.slot_name::text
from pg_replication_slots s
where not s.active and (s.xmin is not null or s.catalog_xmin is not null)
limit 5

-- name: dead_rows
select format('%I.%I', t.schemaname, t.relname), t.n_dead_tup, t.n_live_tup
from pg_stat_user_tables t
where t.schemaname = current_schema()
  and t.n_dead_tup > 50000
  and t.n_dead_tup > 2 * t.n_live_tup
order by t.n_dead_tup desc
limit 5
