-- What the faces keep: keys, the audit log, answered requests, logs, bulk work, and numbers per minute.
-- Nothing here is on the way of a task: claim, settle and enqueue neither read nor write it.

-- How far somebody has come who follows a sequence, or counts; nobody: nowhere yet.
create table holdfast.reached (
  name text primary key,
  seq bigint not null
) with (fillfactor = 50);

create table holdfast.api_key (
  id text primary key,
  name text not null,
  tenant text,                             -- null: of all tenants
  scopes text[] not null,
  digest bytea not null,                   -- never the secret
  created_at timestamptz not null,
  created_by text not null,
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
) with (fillfactor = 50);

create table holdfast.audit (
  seq bigint generated always as identity primary key,
  at timestamptz not null,
  actor text not null,
  tenant text,
  verb text not null,
  subject text not null,
  detail json not null
);
create index audit_tenant on holdfast.audit (tenant, seq);

create table holdfast.request (
  scope text not null,
  key text not null,
  digest bytea not null,
  state text not null check (state in ('running', 'done')),
  token uuid not null,                     -- whoever answers it
  status int,
  headers bytea,                           -- JSON
  body bytea,
  at timestamptz not null,
  primary key (scope, key)
);
create index request_at on holdfast.request (at);

create table holdfast.task_log (
  id uuid not null,
  fence int not null,
  position int not null,                   -- counted by the holder: written twice is written once
  at timestamptz not null,
  level text not null,
  logger text not null,
  message text not null,
  seen int,                                -- on the last line of an attempt that said too much: how many lines it had
  primary key (id, fence, position)
);

create table holdfast.operation (
  id uuid primary key,                     -- UUIDv7, made by the client
  action text not null,
  filter json not null,
  rate float8,                             -- tasks a second; null: as fast as it goes
  state text not null check (state in ('pending', 'running', 'done', 'failed', 'cancelled')),
  matched bigint,
  capped boolean not null default false,   -- at least so many match
  done bigint not null default 0,
  failed bigint not null default 0,
  position text,
  actor text not null,
  tenant text,
  reason text,
  error text,
  created_at timestamptz not null,
  ended_at timestamptz,
  grant_id uuid,                           -- whoever drives it
  lease_timeout timestamptz
) with (fillfactor = 50);
create index operation_open on holdfast.operation (id) where state in ('pending', 'running');

-- Each bucket counts what was shorter than its bound and not shorter than the one before.
create table holdfast.rollup (
  minute timestamptz not null,
  queue text not null,
  type text not null,
  tenant text not null,
  done bigint not null,
  failed bigint not null,
  cancelled bigint not null,
  retried bigint not null,
  lost bigint not null,
  wait bigint[] not null,
  wait_seconds float8 not null,
  run bigint[] not null,
  run_seconds float8 not null,
  primary key (minute, queue, type, tenant)
) with (fillfactor = 50);


-- The audit log only grows. Cleanup first says how far it forgets, and then may.

create function holdfast.keep_audit()
returns trigger
language plpgsql
as $$
begin
  if tg_op = 'DELETE' then
    if old.seq <= (select r.seq from holdfast.reached r where r.name = 'audit') then
      return old;
    end if;
  end if;
  raise exception 'the audit log only grows: % is refused; cleanup forgets what is past its retention', lower(tg_op)
    using errcode = 'insufficient_privilege';
end $$;

create trigger audit_kept
before update or delete on holdfast.audit
for each row execute function holdfast.keep_audit();

create trigger audit_whole
before truncate on holdfast.audit
for each statement execute function holdfast.keep_audit();


-- One after the other: who follows the log by its numbers misses none that commits late.

create function holdfast.note(p_actor text, p_tenant text, p_verb text, p_subject text, p_detail text)
returns bigint
language plpgsql
as $$
declare
  noted bigint;
begin
  perform pg_advisory_xact_lock(hashtext('holdfast.audit'));
  insert into holdfast.audit (at, actor, tenant, verb, subject, detail)
  values (holdfast.clock(), p_actor, p_tenant, p_verb, p_subject, p_detail::json)
  returning seq into noted;
  return noted;
end $$;


-- new: answer it, and say so with end_request; running: somebody does; done: this was the answer;
-- other: the key belongs to another request.

create function holdfast.begin_request(
  p_scope text, p_key text, p_digest bytea, p_token uuid, p_patience float8, p_kept float8,
  out said text, out status int, out headers bytea, out body bytea
)
language plpgsql
as $$
#variable_conflict use_column
declare
  stamp timestamptz := holdfast.clock();
begin
  for tried in 1..3 loop                   -- it may be forgotten between the two statements
    insert into holdfast.request as r (scope, key, digest, state, token, at)
    values (p_scope, p_key, p_digest, 'running', p_token, stamp)
    on conflict (scope, key) do update
    set digest = p_digest, state = 'running', token = p_token, status = null, headers = null, body = null, at = stamp
    where r.at < stamp - make_interval(secs => p_kept)
      or (
        r.state = 'running'
        and r.digest = p_digest
        and (r.token = p_token or r.at < stamp - make_interval(secs => p_patience))
      )
    returning 'new' into said;
    if said is not null then
      return;
    end if;
    select
      case when r.digest = p_digest then r.state else 'other' end,
      case when r.digest = p_digest then r.status end,
      case when r.digest = p_digest then r.headers end,
      case when r.digest = p_digest then r.body end
    into said, status, headers, body
    from holdfast.request r
    where r.scope = p_scope and r.key = p_key;
    if said is not null then
      return;
    end if;
  end loop;
  said := 'running';
end $$;


-- Lines of one attempt, under its lease, as many as there is room for; the others are only counted.

create function holdfast.log(
  p_id uuid, p_grant uuid, positions int[], ages float8[], levels text[], loggers text[], messages text[],
  p_most int, p_most_bytes int
)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  held_fence int;
  used bigint;
  is_full boolean;
  stored int;
  stamp timestamptz := holdfast.clock();
begin
  -- Held against settle and recover until this commits; renewals pass.
  select l.fence into held_fence
  from holdfast.lease l
  where l.id = p_id
    and l.grant_id = p_grant
  for key share;
  if not found then
    return false;
  end if;

  select coalesce(sum(octet_length(g.message) + octet_length(g.logger)), 0), coalesce(bool_or(g.seen is not null), false)
  into used, is_full
  from holdfast.task_log g
  where g.id = p_id and g.fence = held_fence;

  if not is_full then
    insert into holdfast.task_log (id, fence, position, at, level, logger, message)
    select p_id, held_fence, x.position, stamp - make_interval(secs => x.age), x.level, x.logger, x.message
    from (
      select
        a.*,
        used + sum(octet_length(a.message) + octet_length(a.logger)) over (order by a.position) as bytes
      from unnest(positions, ages, levels, loggers, messages) as a (position, age, level, logger, message)
      where not exists (
        select from holdfast.task_log g
        where g.id = p_id and g.fence = held_fence and g.position = a.position
      )
    ) x
    where x.position <= p_most and x.bytes <= p_most_bytes
    on conflict do nothing;
  end if;

  select max(g.position) into stored
  from holdfast.task_log g
  where g.id = p_id and g.fence = held_fence and g.position <= p_most;
  if positions[cardinality(positions)] > coalesce(stored, 0) then
    insert into holdfast.task_log as g (id, fence, position, at, level, logger, message, seen)
    values (p_id, held_fence, p_most + 1, stamp, '', '', '', positions[cardinality(positions)])
    on conflict (id, fence, position) do update
    set seen = greatest(g.seen, excluded.seen), at = excluded.at;
  end if;
  return true;
end $$;


-- All that happened from p_after to p_upto, once: whoever comes second finds the mark moved, and counts nothing.

create function holdfast.roll_up(p_after bigint, p_upto bigint)
returns boolean
language plpgsql
as $$
#variable_conflict use_column
begin
  -- What is forgotten meanwhile is counted by whoever forgets it: one waits for the other.
  perform pg_advisory_xact_lock(hashtext('holdfast.rollup'));
  insert into holdfast.reached (name, seq)
  values ('rollup', 0)
  on conflict do nothing;
  update holdfast.reached
  set seq = p_upto
  where name = 'rollup' and seq = p_after;
  if not found then
    return false;
  end if;
  perform holdfast.tally(p_after, p_upto, null);
  return true;
end $$;


-- What is forgotten before its turn came to be counted.

create function holdfast.roll_up_early(ids uuid[])
returns void
language plpgsql
as $$
#variable_conflict use_column
declare
  mark bigint;
begin
  perform pg_advisory_xact_lock_shared(hashtext('holdfast.rollup'));
  select r.seq into mark from holdfast.reached r where r.name = 'rollup';
  if mark is not null then                 -- else nobody counts here
    perform holdfast.tally(mark, null, ids);
  end if;
end $$;


-- Adds up what has a number after p_after: up to p_upto, or of these tasks. By lane and bucket at first: to sort
-- thousands of rows by their names took half of the time.

create function holdfast.tally(p_after bigint, p_upto bigint, ids uuid[])
returns void
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  bounds constant float8[] := holdfast.bounds();
begin
  with happened as (
    select o.id, o.state as kind, o.ended_by, o.fence, o.started_at, o.finished_at as at
    from holdfast.outcome o
    where o.state = 'done' and o.seq > p_after and o.seq <= p_upto
    union all
    select o.id, o.state, o.ended_by, o.fence, o.started_at, o.finished_at
    from holdfast.outcome o
    where o.state = 'failed' and o.seq > p_after and o.seq <= p_upto
    union all
    select o.id, o.state, o.ended_by, o.fence, o.started_at, o.finished_at
    from holdfast.outcome o
    where o.state = 'cancelled' and o.seq > p_after and o.seq <= p_upto
    union all
    select a.id, a.ended, a.ended_by, a.fence, a.started_at, a.ended_at
    from holdfast.attempt a
    where a.seq > p_after and a.seq <= p_upto
    union all
    select o.id, o.state, o.ended_by, o.fence, o.started_at, o.finished_at
    from holdfast.outcome o
    where o.id = any (ids) and o.seq > p_after
    union all
    select a.id, a.ended, a.ended_by, a.fence, a.started_at, a.ended_at
    from holdfast.attempt a
    where a.id = any (ids) and a.seq > p_after
  ), told as (
    select
      date_bin('1 minute', h.at, to_timestamp(0)) as minute, t.lane, h.kind, h.ended_by,
      -- when a later attempt was due is not on record
      case
        when h.fence = 1
        then greatest(date_part('epoch', h.started_at - coalesce(t.run_at, t.created_at)), 0)
      end as wait,
      case
        when h.ended_by = 'holder' and h.kind in ('done', 'failed', 'cancelled', 'retry')
        then greatest(date_part('epoch', h.at - h.started_at), 0)
      end as run
    from happened h
    left join holdfast.task t on t.id = h.id
    where h.kind <> 'handed_back'        -- it never started
  ), counted as (
    select
      x.minute, x.lane, x.kind, x.ended_by,
      width_bucket(x.wait, bounds) as waited, width_bucket(x.run, bounds) as ran,
      count(*) as n, sum(x.wait) as wait_seconds, sum(x.run) as run_seconds
    from told x
    group by x.minute, x.lane, x.kind, x.ended_by, waited, ran
  ), named as (
    select c.*, coalesce(l.queue, '') as queue, coalesce(l.type, '') as type, coalesce(l.tenant, '') as tenant
    from counted c
    left join holdfast.lane l on l.id = c.lane
  )
  insert into holdfast.rollup as r (
    minute, queue, type, tenant, done, failed, cancelled, retried, lost, wait, wait_seconds, run, run_seconds
  )
  select
    c.minute, c.queue, c.type, c.tenant,
    coalesce(sum(c.n) filter (where c.kind = 'done'), 0),
    coalesce(sum(c.n) filter (where c.kind = 'failed'), 0),
    coalesce(sum(c.n) filter (where c.kind = 'cancelled'), 0),
    coalesce(sum(c.n) filter (where c.kind = 'retry'), 0),
    coalesce(sum(c.n) filter (where c.ended_by = 'recovery'), 0),
    holdfast.histogram(array_agg(c.waited), array_agg(c.n), cardinality(bounds)), coalesce(sum(c.wait_seconds), 0),
    holdfast.histogram(array_agg(c.ran), array_agg(c.n), cardinality(bounds)), coalesce(sum(c.run_seconds), 0)
  from named c
  group by c.minute, c.queue, c.type, c.tenant
  order by c.minute, c.queue, c.type, c.tenant
  on conflict (minute, queue, type, tenant) do update
  set
    done = r.done + excluded.done,
    failed = r.failed + excluded.failed,
    cancelled = r.cancelled + excluded.cancelled,
    retried = r.retried + excluded.retried,
    lost = r.lost + excluded.lost,
    wait = holdfast.added(r.wait, excluded.wait),
    wait_seconds = r.wait_seconds + excluded.wait_seconds,
    run = holdfast.added(r.run, excluded.run),
    run_seconds = r.run_seconds + excluded.run_seconds;
end $$;


create function holdfast.bounds()
returns float8[]
language sql
immutable
as $$
  select array[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600]::float8[]
$$;


create function holdfast.histogram(places int[], counts bigint[], most int)
returns bigint[]
language sql
immutable
as $$
  select array_agg(coalesce(c.n, 0) order by b.place)
  from generate_series(0, most) as b (place)
  left join (
    select p.place, sum(p.n)::bigint as n
    from unnest(places, counts) as p (place, n)
    group by p.place
  ) c on c.place = b.place
$$;


create function holdfast.added(one bigint[], other bigint[])
returns bigint[]
language sql
immutable
as $$
  select array_agg(coalesce(a.one, 0) + coalesce(a.other, 0) order by a.n)
  from unnest(one, other) with ordinality as a (one, other, n)
$$;


-- Seconds each. What the log of deeds forgets is told first: see keep_audit.

create function holdfast.forget_records(
  p_audits float8, p_requests float8, p_operations float8, p_rollups float8, p_batch int
)
returns int
language plpgsql
as $$
#variable_conflict use_column
declare
  stamp timestamptz := holdfast.clock();
  mark bigint;
  n int;
  forgotten int := 0;
begin
  select max(x.seq) into mark
  from (select a.seq, a.at from holdfast.audit a order by a.seq limit p_batch) x
  where x.at < stamp - make_interval(secs => p_audits);
  if mark is not null then
    insert into holdfast.reached as r (name, seq)
    values ('audit', mark)
    on conflict (name) do update set seq = greatest(r.seq, excluded.seq);
    delete from holdfast.audit where seq <= mark;
    get diagnostics n = row_count;
    forgotten := forgotten + n;
  end if;

  delete from holdfast.request
  where (scope, key) in (
    select r.scope, r.key
    from holdfast.request r
    where r.at < stamp - make_interval(secs => p_requests)
    order by r.at
    limit p_batch
    for update skip locked
  );
  get diagnostics n = row_count;
  forgotten := forgotten + n;

  delete from holdfast.operation
  where id in (
    select o.id
    from holdfast.operation o
    where o.ended_at < stamp - make_interval(secs => p_operations)
    order by o.id
    limit p_batch
    for update skip locked
  );
  get diagnostics n = row_count;
  forgotten := forgotten + n;

  delete from holdfast.rollup r
  using (
    select x.minute, x.queue, x.type, x.tenant
    from holdfast.rollup x
    where x.minute < stamp - make_interval(secs => p_rollups)
    order by x.minute
    limit p_batch
    for update skip locked
  ) old
  where (r.minute, r.queue, r.type, r.tenant) = (old.minute, old.queue, old.type, old.tenant);
  get diagnostics n = row_count;
  return forgotten + n;
end $$;
