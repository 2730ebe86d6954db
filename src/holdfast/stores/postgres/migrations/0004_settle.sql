-- "= any (array[x])", not "= x", wherever a list is joined to a table: it leaves the planner one
-- path only, the look-up by key in the order asked, whatever the statistics say. Where the list is long,
-- "= any (the whole list)" finds neighbours on one page together, a third of the cost; what belongs to
-- which is then told by a hash of the list, with nested loops off.


-- Answers what is still held, with whether its cancellation was asked for. The others are lost.

create function holdfast.renew(ids uuid[], grants uuid[], p_lease float8)
returns table (id uuid, cancel_requested boolean)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with asked as materialized (
    select a.id, a.grant_id
    from unnest(ids, grants) as a (id, grant_id)
    order by a.id
  ), kept as (
    update holdfast.lease l
    set lease_timeout = holdfast.clock() + make_interval(secs => p_lease)
    from asked a
    where l.id = any (array[a.id])
      and l.grant_id = a.grant_id
    returning l.id
  )
  select k.id, t.cancel_requested
  from kept k
  join holdfast.task t on t.id = any (array[k.id]);
end $$;


-- Whether this attempt has recorded something: what it asked for, or what it heard.

create function holdfast.recorded(p_id uuid, p_fence int)
returns boolean
language sql
stable
as $$
  select coalesce(
    (select s.fence from holdfast.step s where s.id = p_id order by s.position desc limit 1) = p_fence, false
  )
$$;


-- The tries of a task that its errors have cost, without those that deaths of its workers have. After each attempt
-- at least so many were charged as there had been errors, and just so many where deaths were forgiven or a life began:
-- it is the least of what was charged and the errors since. More than 100 attempts back nobody looks; those that
-- were put down or handed back, which may be many more, say nothing that others do not say.

create function holdfast.failures(p_id uuid, p_tries smallint)
returns int
language sql
stable
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select least(
    p_tries - 1,
    min(r.tries + r.since),
    case when count(*) < 100 then count(*) filter (where r.ended = 'retry') end
  )::int
  from (
    select
      a.tries,
      a.ended,
      count(*) filter (where a.ended = 'retry')
        over (order by a.fence desc, a.seq desc rows between unbounded preceding and 1 preceding) as since
    from (
      select a.tries, a.ended, a.fence, a.seq
      from holdfast.attempt a
      where a.id = p_id
        and a.ended in ('retry', 'lost', 'snoozed', 'failed', 'cancelled')
      order by a.fence desc, a.seq desc
      limit 100
    ) a
  ) r
$$;


-- One guarded statement: the lease goes, and what follows stands. What is not answered was refused;
-- where nothing was, "whole" says so instead of a list.
-- verdicts null: all done; a single grant stands for all. A retry ends the task when it has no tries left, was cancelled or has
-- expired: the database decides that, not the worker.

create function holdfast.settle(
  ids uuid[],
  grants uuid[],
  verdicts text[],
  delays float8[],
  refunds boolean[],
  alones boolean[],
  wakes int[],
  watched text[],                          -- each a list of ids, as JSON
  reasons text[],
  results bytea[],
  error_types text[],
  errors text[],
  details bytea[],
  seen_ids uuid[],
  seen bigint[],
  p_by text,
  lapsed_only boolean,
  default_tries int,
  out whole boolean,
  out accepted uuid[],
  out states text[],
  out parents uuid[]
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_hashjoin = on
set enable_mergejoin = off
set jit = off
set work_mem = '16MB'                     -- the locks of a settle are taken in the order of a hash join's other side
as $$
#variable_conflict use_column
declare
  stamp timestamptz := holdfast.clock();
  only_grant uuid := case when cardinality(grants) = 1 then grants[1] end;
  held uuid[];
begin
  if verdicts is null then
    with asked as (                        -- without the results: what does not fit into memory loses its order
      select a.id, coalesce(a.grant_id, only_grant) as grant_id, a.n
      from unnest(ids, grants) with ordinality as a (id, grant_id, n)
      order by a.id
      offset 0
    ), gone as (
      delete from holdfast.lease l
      using asked a
      where l.id = any (ids)
        and l.id = a.id
        and l.grant_id = a.grant_id
      returning
        l.id, l.grant_id, l.worker, l.started_at, l.fence, l.tries, l.lane, l.child, l.gates, l.key, a.n
    ), ended as (
      insert into holdfast.outcome (
        id, grant_id, worker, started_at, finished_at, fence, tries, state, ended_by, result
      )
      select g.id, g.grant_id, g.worker, g.started_at, stamp, g.fence, g.tries, 'done', p_by, r.result
      from gone g
      join unnest(results) with ordinality as r (result, n) on r.n = g.n
    ), others as materialized (             -- those that somebody else has to hear of
      select g.id, g.lane, g.child, g.gates, g.key
      from gone g
      where g.gates is not null or g.key is not null or g.child
    ), freed as (
      insert into holdfast.freed (gate, n)
      select x.gate, count(*)
      from others g
      cross join unnest(g.gates) as x (gate)
      group by x.gate
    ), nudged as (
      insert into holdfast.nudge (pool, key, freed)
      select la.pool, g.key, count(*)
      from others g
      join holdfast.lane la on la.id = any (array[g.lane])
      where g.key is not null
      group by la.pool, g.key
    ), woken as (
      insert into holdfast.wake (id, urgent)
      select p.id, false
      from others g
      join holdfast.task t on t.id = any (array[g.id])
      join holdfast.task p on p.id = any (array[t.parent])
      where g.child
      returning id
    )
    select
      count(*) = cardinality(ids),
      case when count(*) < cardinality(ids) then array_agg(g.id) end,
      (select array_agg(w.id) from woken w)
    into whole, accepted, parents
    from gone g;
    return;
  end if;

  if lapsed_only then                      -- recovery waits for nobody who holds a lease just now
    held := array(
      select l.id
      from holdfast.lease l
      where l.id = any (ids)
      order by l.id
      for update skip locked
    );
  end if;

  with asked as (
    select a.id, coalesce(a.grant_id, only_grant) as grant_id, a.n
    from unnest(ids, grants) with ordinality as a (id, grant_id, n)
    where not lapsed_only or a.id = any (held)
    order by a.id
    offset 0
  ), gone as (
    delete from holdfast.lease l
    using asked a
    where l.id = any (ids)
      and l.id = a.id
      and l.grant_id = a.grant_id
      and (not lapsed_only or l.lease_timeout < holdfast.clock())
    returning l.*, a.n
  ), told as (
    select
      g.*, v.verdict, v.delay, coalesce(v.refund, false) as refund, coalesce(v.lonely, false) as lonely,
      v.wakes, v.watched, v.reason, v.result, v.error_type, v.error, v.detail
    from gone g
    join unnest(verdicts, delays, refunds, alones, wakes, watched, reasons, results, error_types, errors, details)
      with ordinality
      as v (verdict, delay, refund, lonely, wakes, watched, reason, result, error_type, error, detail, n)
      on v.n = g.n
  ), judged as materialized (
    select
      g.*, t.parent, la.pool,
      case when f.forgiven then holdfast.failures(g.id, g.tries) else g.tries - g.refund::int end as charged,
      g.alone and not f.forgiven or g.lonely as stays_alone,
      case
        when g.verdict in ('done', 'failed', 'cancelled') then g.verdict
        when t.cancel_requested then 'cancelled'
        when t.expires_at <= stamp then 'failed'
        when not g.refund and g.tries >= coalesce(t.max_tries, default_tries) then 'failed'
      end as ends_as,
      g.verdict not in ('done', 'failed', 'cancelled') and not t.cancel_requested and t.expires_at <= stamp as late
    from told g
    join holdfast.task t on t.id = any (array[g.id])
    join holdfast.lane la on la.id = any (array[g.lane])
    cross join lateral (                   -- who gets on is forgiven the deaths of its workers
      select g.refund and not g.lonely and (g.tries > 1 or g.alone) and holdfast.recorded(g.id, g.fence) as forgiven
    ) f
  ), ended as (
    insert into holdfast.outcome (
      id, grant_id, worker, started_at, finished_at, fence, tries, state, ended_by, result, error_type, error, detail
    )
    select
      j.id, j.grant_id, j.worker, j.started_at, stamp, j.fence, j.tries, j.ends_as, p_by, j.result,
      case when j.late then 'Expired' else j.error_type end,
      case when j.late then 'not tried again before it expired' else j.error end,
      j.detail
    from judged j
    where j.ends_as is not null
  ), noted as (
    insert into holdfast.attempt (
      id, grant_id, worker, started_at, ended_at, fence, tries, ended, ended_by, error_type, error, detail
    )
    select
      j.id, j.grant_id, j.worker, j.started_at, stamp, j.fence, j.charged, j.verdict, p_by,
      j.error_type, j.error, j.detail
    from judged j
    where j.ends_as is null
  ), postponed as (
    insert into holdfast.later (id, run_at, lane, fence, np, tries, alone, child, key, waiting, wakes, watched)
    select
      j.id,
      case
        when j.delay is null and j.verdict = 'waiting' then 'infinity'
        else stamp + make_interval(secs => coalesce(j.delay, 0))
      end,
      j.lane, j.fence, j.np, j.charged, j.stays_alone, j.child, j.key,
      case when j.verdict = 'waiting' then coalesce(j.reason, 'waiting') end,
      coalesce(j.wakes, 1),
      case when j.watched is not null then
        array(select x.id::uuid from json_array_elements_text(j.watched::json) as x (id))
      end
    from judged j
    where j.ends_as is null and j.verdict in ('retry', 'snoozed', 'waiting')
  ), returned as (
    insert into holdfast.ready (seq, id, lane, fence, np, tries, alone, child)
    select j.seq, j.id, j.lane, j.fence, j.np, j.charged, j.stays_alone, j.child
    from judged j
    where j.ends_as is null and j.verdict in ('handed_back', 'lost') and j.key is null
  ), shut_out as (
    insert into holdfast.blocked (seq, id, pool, lane, fence, np, tries, alone, child, key)
    select j.seq, j.id, j.pool, j.lane, j.fence, j.np, j.charged, j.stays_alone, j.child, j.key
    from judged j
    where j.ends_as is null and j.verdict in ('handed_back', 'lost') and j.key is not null
  ), freed as (
    insert into holdfast.freed (gate, n)
    select x.gate, count(*)
    from gone g
    cross join unnest(g.gates) as x (gate)
    where g.gates is not null
    group by x.gate
  ), nudged as (
    insert into holdfast.nudge (pool, key, freed)
    select j.pool, j.key, count(*)
    from judged j
    where j.key is not null
    group by j.pool, j.key
  ), read as (
    delete from holdfast.wake w
    using unnest(seen_ids, seen) as s (id, seq)
    where w.seq = any (array[s.seq]) and w.id = any (array[s.id]) and s.id in (select g.id from gone g)
  ), woken as (
    insert into holdfast.wake (id, urgent)
    select p.id, j.ends_as <> 'done'
    from judged j
    join holdfast.task p on p.id = any (array[j.parent])
    where j.ends_as is not null and j.child
    returning id
  )
  select
    false,
    array_agg(j.id),
    array_agg(coalesce(j.ends_as, j.verdict)),
    (select array_agg(w.id) from woken w)
  into whole, accepted, states, parents
  from judged j;
end $$;


-- One that is done: most that are settled alone. Not held, and nothing is written: the lease is gone; whoever asks then
-- asks `settle`, which tells.

create function holdfast.settle_one(
  p_id uuid, p_grant uuid, p_result bytea, out held boolean, out parent uuid
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  lone holdfast.lease;
begin
  with gone as (
    delete from holdfast.lease l
    where l.id = p_id
      and l.grant_id = p_grant
    returning l.*
  ),
  ended as (
    insert into holdfast.outcome (
      id, grant_id, worker, started_at, finished_at, fence, tries, state, ended_by, result
    )
    select p_id, p_grant, g.worker, g.started_at, holdfast.clock(), g.fence, g.tries, 'done', 'holder', p_result
    from gone g
  ),
  woken as (
    insert into holdfast.wake (id, urgent)
    select p.id, false
    from gone g
    join holdfast.task p on p.id = (select t.parent from holdfast.task t where t.id = p_id)
    where g.child
    returning wake.id
  )
  select g.lane, g.gates, g.key, (select w.id from woken w)
  into lone.lane, lone.gates, lone.key, parent
  from gone g;
  held := found;
  if lone.gates is not null then
    insert into holdfast.freed (gate, n) select x.gate, 1 from unnest(lone.gates) as x (gate);
  end if;
  if lone.key is not null then
    insert into holdfast.nudge (pool, key, freed)
    select a.pool, lone.key, 1 from holdfast.lane a where a.id = lone.lane;
  end if;
end $$;


-- After an unknown commit, a second statement tells "accepted before" from "lost". Recovery's rows
-- carry the grant too: a zombie must not hear that its work was taken.

create function holdfast.settled(ids uuid[], grants uuid[])
returns setof uuid
language sql
stable
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select a.id
  from unnest(ids, grants) as a (id, grant_id)
  where exists (
      select from holdfast.outcome o
      where o.id = any (array[a.id]) and o.grant_id = a.grant_id and o.ended_by = 'holder'
    )
    or exists (
      select from holdfast.attempt t
      where t.id = any (array[a.id]) and t.grant_id = a.grant_id and t.ended_by = 'holder'
    )
$$;


-- A lease of a task that has ended, or waits for its time, comes from a double: it must not fail the
-- batch that it is settled with for ever.

create function holdfast.repair_leases(ids uuid[])
returns setof uuid
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  with gone as (
    delete from holdfast.lease l
    where l.id = any (ids)
      and (
        exists (select from holdfast.outcome o where o.id = l.id)
        or exists (select from holdfast.later w where w.id = l.id)
      )
    returning l.id, l.lane, l.gates, l.key
  ), freed as (
    insert into holdfast.freed (gate, n)
    select x.gate, count(*)
    from gone g
    cross join unnest(g.gates) as x (gate)
    group by x.gate
  ), nudged as (
    insert into holdfast.nudge (pool, key, freed)
    select la.pool, g.key, count(*)
    from gone g
    join holdfast.lane la on la.id = g.lane
    where g.key is not null
    group by la.pool, g.key
  )
  select g.id
  from gone g
$$;


create function holdfast.refuse(p_verb text, ids uuid[], grants uuid[], fences int[])
returns void
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  insert into holdfast.refusal (id, grant_id, fence, verb, at)
  select a.id, a.grant_id, a.fence, p_verb, holdfast.clock()
  from unnest(ids, grants, fences) as a (id, grant_id, fence)
  where exists (select from holdfast.task t where t.id = a.id)
$$;


-- Lapsed leases, with what the decision needs: settle writes it, guarded by "still lapsed". In company: other
-- leases, or tasks lost before, of the same start of a worker.

create function holdfast.lapsed(p_batch int)
returns table (
  id uuid, grant_id uuid, fence int, worker bigint, tries smallint, max_tries smallint, policy bytea,
  alone boolean, cancel_requested boolean, expired boolean, in_company boolean, recorded boolean, late float8
)
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  with crowd as materialized (
    select l.worker, count(*) as n
    from holdfast.lease l
    group by l.worker
  ), past as materialized (
    select l.*
    from holdfast.lease l
    where l.lease_timeout < holdfast.clock()
    order by l.id
    limit p_batch
  )
  select
    p.id, p.grant_id, p.fence, p.worker, p.tries, t.max_tries, t.policy, p.alone, t.cancel_requested,
    coalesce(t.expires_at <= holdfast.clock(), false),
    c.n > 1 or exists (select from holdfast.attempt a where a.worker = p.worker and a.ended = 'lost' and a.id <> p.id),
    holdfast.recorded(p.id, p.fence),
    extract(epoch from holdfast.clock() - p.lease_timeout)::float8
  from past p
  join crowd c on c.worker = p.worker
  join holdfast.task t on t.id = any (array[p.id])
$$;


-- The lease is held against settle and recover for the length of this statement; renewals pass.

create function holdfast.progress(
  p_id uuid, p_grant uuid, p_percent float8, p_message text, p_saved bytea
)
returns boolean
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  with held as (
    select l.id
    from holdfast.lease l
    where l.id = p_id
      and l.grant_id = p_grant
    for key share
  ), written as (
    insert into holdfast.progress (id, percent, message, saved, updated_at)
    select h.id, p_percent, p_message, p_saved, holdfast.clock()
    from held h
    on conflict (id) do update
    set
      percent = excluded.percent,
      message = excluded.message,
      saved = coalesce(excluded.saved, progress.saved),
      updated_at = excluded.updated_at
    returning 1
  )
  select exists (select from written)
$$;


-- Steps, and the children that they ask for, under the lease: together or not at all. Answers whose
-- idempotency keys were taken already, by whom, and whether by other work.

create function holdfast.record(
  p_id uuid,
  p_grant uuid,
  positions int[],
  kinds text[],
  names text[],
  step_values bytea[],
  p_consumed uuid[],
  p_seen bigint[],
  ids uuid[],
  lanes int[],
  nps smallint[],
  payloads bytea[],
  max_tries smallint[],
  policies bytea[],
  delays float8[],
  run_ats timestamptz[],
  expires float8[],
  keys text[],
  tenants text[],
  fingerprints bytea[],
  lifetimes float8[],
  concurrency_keys text[],
  user_ids text[],
  parents uuid[],
  p_worker bigint,
  p_taking uuid,
  p_lease float8,
  p_most int,
  out held boolean,
  out conflicts int[],
  out taken_ids uuid[],
  out taken_by uuid[],
  out key_conflicts boolean[],
  out leased uuid[]
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  p_fence int;
  stands boolean;
begin
  select l.fence into p_fence
  from holdfast.lease l
  where l.id = p_id
    and l.grant_id = p_grant
  for key share;
  held := found;
  if not held then
    return;
  end if;

  stands := exists (                       -- this very call was written before, children and all
    select from holdfast.step s where s.id = p_id and s.position = any (positions)
  );
  if ids is not null and not stands then
    select a.taken_ids, a.taken_by, a.conflicts
    into taken_ids, taken_by, key_conflicts
    from holdfast.accept(
      ids, lanes, nps, payloads, max_tries, policies, delays, run_ats, expires, keys, tenants,
      fingerprints, lifetimes, concurrency_keys, user_ids, parents, p_worker, p_taking, p_lease, p_most
    ) a;
    if true = any (key_conflicts) then
      return;
    end if;
  elsif keys is not null then
    select array_agg(a.id), array_agg(k.id), array_agg(false)
    into taken_ids, taken_by, key_conflicts
    from unnest(ids, keys, tenants) as a (id, key, tenant)
    join holdfast.task_key k on k.tenant = a.tenant and k.key = a.key
    where k.id <> a.id;
  end if;

  if stands then
    conflicts := array(
      select b.position
      from unnest(positions, kinds, names, step_values) as b (position, kind, name, value)
      cross join lateral (                 -- never the other way round: a journal is long
        select s.kind, s.name, s.value
        from holdfast.step s
        where s.id = p_id
          and s.position = b.position
        offset 0
      ) s
      where (s.kind, s.name, s.value) is distinct from (b.kind, b.name, b.value)
      order by b.position
    );
    if conflicts <> '{}' then
      return;
    end if;
  end if;
  insert into holdfast.step (id, position, kind, name, value, fence, recorded_at)
  select p_id, a.position, a.kind, a.name, a.value, p_fence, holdfast.clock()
  from unnest(positions, kinds, names, step_values) as a (position, kind, name, value)
  on conflict do nothing;

  if p_consumed is not null then
    update holdfast.signal s set consumed = true where s.signal = any (p_consumed) and s.id = p_id;
  end if;
  if p_seen is not null then
    delete from holdfast.wake w where w.seq = any (p_seen) and w.id = p_id;
  end if;
  if p_most > 0 then
    leased := array(
      select l.id
      from unnest(ids) as a (id)
      join holdfast.lease l on l.id = any (array[a.id])
      where l.grant_id = p_taking
    );
  end if;
end $$;


-- One entry after the other of a chain of children: one plain child, which whoever asks takes at once. False, and nothing
-- is written: the lease is gone, something stands there already, or a limit or a pause concerns the child's lane; whoever
-- asks then asks `record`, which tells.

create function holdfast.record_child(
  p_id uuid,
  p_grant uuid,
  positions int[],
  kinds text[],
  names text[],
  step_values bytea[],
  p_child uuid,
  p_lane int,
  p_np smallint,
  p_payload bytea,
  p_max_tries smallint,
  p_policy bytea,
  p_user_id text,
  p_worker bigint,
  p_taking uuid,
  p_lease float8,
  p_durable boolean
)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  p_fence int;
  stamp timestamptz := holdfast.clock();
begin
  perform pg_advisory_xact_lock_shared(hashtext('holdfast.limits'));  -- as a claim does
  select l.fence into p_fence
  from holdfast.lease l
  where l.id = p_id
    and l.grant_id = p_grant
    and not exists (select from holdfast.step s where s.id = p_id and s.position = any (positions))
    and exists (select from holdfast.lane a where a.id = p_lane and a.gates is null and not a.paused)
  for key share of l;
  if not found then
    return false;
  end if;
  insert into holdfast.task (id, parent, created_at, lane, np, max_tries, user_id, policy, payload)
  values (p_child, p_id, stamp, p_lane, p_np, p_max_tries, p_user_id, p_policy, p_payload);
  insert into holdfast.lease (
    id, grant_id, worker, seq, lease_timeout, started_at, lane, fence, np, tries, alone, child
  )
  values (
    p_child, p_taking, p_worker, nextval('holdfast.place'), stamp + make_interval(secs => p_lease), stamp,
    p_lane, 1, p_np, 1, false, true
  );
  insert into holdfast.step (id, position, kind, name, value, fence, recorded_at)
  select p_id, a.position, a.kind, a.name, a.value, p_fence, stamp
  from unnest(positions, kinds, names, step_values) as a (position, kind, name, value);
  -- The child's end waits for the disk, and for all that was written before it.
  if not p_durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  return true;
end $$;


-- The plainest case, and the most frequent: one new step of one function. False: its lease is gone, or something
-- stands there already; whoever asks then asks `record`, which tells.

create function holdfast.record_step(
  p_id uuid, p_grant uuid, p_position int, p_kind text, p_name text, p_value bytea
)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
  p_fence int;
begin
  select l.fence into p_fence
  from holdfast.lease l
  where l.id = p_id
    and l.grant_id = p_grant
  for key share;
  if not found then
    return false;
  end if;
  insert into holdfast.step (id, position, kind, name, value, fence, recorded_at)
  values (p_id, p_position, p_kind, p_name, p_value, p_fence, holdfast.clock())
  on conflict do nothing;
  return found;
end $$;


-- Plain steps of many functions at once. False: some leases are gone, or some steps stand there already; whoever asks then
-- asks `record` for each function, which tells. `apart`: every step is of another function; else, where one of them stands
-- there, none is written: a function's steps are written all or not at all.
-- Lists are hashed: joined one by one they took 36 ms for 500, against 12.

create function holdfast.record_steps(
  ids uuid[],
  grants uuid[],
  positions int[],
  kinds text[],
  names text[],
  step_values bytea[],
  p_apart boolean
)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
declare
  written int;
begin
  insert into holdfast.step (id, position, kind, name, value, fence, recorded_at)
  select a.id, a.position, a.kind, a.name, a.value, l.fence, holdfast.clock()
  from unnest(ids, grants, positions, kinds, names, step_values)
    as a (id, given, position, kind, name, value)
  join holdfast.lease l on l.id = a.id and l.grant_id = a.given
  where l.id = any (ids)
    and (
      p_apart
      or not exists (
        select
        from unnest(ids, positions) as b (id, position)
        join holdfast.step s on s.id = any (array[b.id]) and s.position = any (array[b.position])
      )
    )
  order by l.id
  for key share of l
  on conflict do nothing;
  get diagnostics written = row_count;
  return written = cardinality(ids);
end $$;


-- A function that goes on as a new one: other arguments, an empty journal, and all its tries; its signals stay.
-- In one with the settle that ends its last run: nobody ever finds the one without the other.

create function holdfast.restart(
  p_id uuid,
  p_grant uuid,
  p_payload bytea,
  p_default_tries int,
  out whole boolean,
  out accepted uuid[],
  out states text[],
  out parents uuid[]
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  select s.whole, s.accepted, s.states, s.parents
  into whole, accepted, states, parents
  from holdfast.settle(
    ids => array[p_id], grants => array[p_grant], verdicts => array['snoozed'], delays => array[0::float8],
    refunds => array[true], alones => null, wakes => null, watched => null, reasons => null, results => null,
    error_types => null, errors => null, details => null, seen_ids => null, seen => null,
    p_by => 'holder', lapsed_only => false, default_tries => p_default_tries
  ) s;
  if states = array['snoozed'] then        -- else its time was over, or somebody has cancelled it
    update holdfast.task t set payload = p_payload where t.id = p_id;
    delete from holdfast.step s where s.id = p_id;
    update holdfast.later l set tries = 0, alone = false where l.id = p_id;
    update holdfast.attempt a
    set tries = 0
    from holdfast.later l
    where l.id = p_id and a.id = l.id and a.fence = l.fence;
  end if;
end $$;
