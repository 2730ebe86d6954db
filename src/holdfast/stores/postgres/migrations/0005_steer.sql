-- What operators and sweeps do.


-- Takes tasks that nobody holds out of the queue and ends them. Later first, ready last: a task that
-- moves on in between moves towards what is looked at next. What was given a new life since its cancel
-- was requested is not cancelled.

create function holdfast.withdraw(
  ids uuid[], p_state text, p_error_type text, p_error text,
  out withdrawn uuid[], out parents uuid[]
)
language plpgsql
set plan_cache_mode = force_custom_plan    -- the list of ids is hashed then: one walk through each lane for all
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  got uuid[];
begin
  withdrawn := '{}';
  perform holdfast.house(ids);

  with asked as materialized (
    select t.id
    from holdfast.task t
    where t.id = any (ids) and (t.cancel_requested or p_state <> 'cancelled')
    order by t.id
  ), gone as (
    delete from holdfast.later l
    using asked a
    where l.id = any (array[a.id])
    returning l.id, l.fence, l.tries
  ), ended as (
    insert into holdfast.outcome (id, finished_at, fence, tries, state, ended_by, error_type, error)
    select g.id, holdfast.clock(), g.fence, g.tries, p_state, 'operator', p_error_type, p_error
    from gone g
  )
  select array_agg(g.id) into got from gone g;
  withdrawn := withdrawn || got;

  with asked as materialized (
    select t.np, t.concurrency_key, la.pool
    from holdfast.task t
    join holdfast.lane la on la.id = any (array[t.lane])
    where t.id = any (ids) and t.concurrency_key is not null
  ), home as materialized (
    select distinct a.pool, a.concurrency_key as key, a.np
    from asked a
    order by a.pool, key, a.np
  ), gone as (
    delete from holdfast.blocked b
    using home h
    where b.pool = h.pool and b.key = h.key and b.np = h.np and b.id = any (ids)
      and (p_state <> 'cancelled' or exists (select from holdfast.task t where t.id = any (array[b.id]) and t.cancel_requested))
    returning b.id, b.fence, b.tries
  ), ended as (
    insert into holdfast.outcome (id, finished_at, fence, tries, state, ended_by, error_type, error)
    select g.id, holdfast.clock(), g.fence, g.tries, p_state, 'operator', p_error_type, p_error
    from gone g
  )
  select array_agg(g.id) into got from gone g;
  withdrawn := withdrawn || got;

  with asked as materialized (
    select t.lane, t.np
    from holdfast.task t
    where t.id = any (ids)
  ), home as materialized (
    select distinct a.lane, a.np
    from asked a
    order by a.lane, a.np
  ), gone as (
    delete from holdfast.ready r
    using home h
    where r.lane = h.lane and r.np = h.np and r.id = any (ids)
      and (p_state <> 'cancelled' or exists (select from holdfast.task t where t.id = any (array[r.id]) and t.cancel_requested))
    returning r.id, r.lane, r.fence, r.tries, r.key
  ), ended as (
    insert into holdfast.outcome (id, finished_at, fence, tries, state, ended_by, error_type, error)
    select g.id, holdfast.clock(), g.fence, g.tries, p_state, 'operator', p_error_type, p_error
    from gone g
  ), nudged as (
    insert into holdfast.nudge (pool, key, freed)
    select la.pool, g.key, 1
    from gone g
    join holdfast.lane la on la.id = any (array[g.lane])
    where g.key is not null
  )
  select array_agg(g.id) into got from gone g;
  withdrawn := withdrawn || got;

  with woken as (
    insert into holdfast.wake (id, urgent)
    select p.id, true
    from holdfast.task t
    join holdfast.task p on p.id = any (array[t.parent])
    where t.id = any (withdrawn) and t.parent is not null
    returning id
  )
  select array_agg(w.id) into parents from woken w;
end $$;


-- First the request, committed; then, in a second call, the withdrawal: so a retry, a promotion or a
-- recovery in between sees the request, and the task cannot slip through.
-- p_rule: 'asked' takes all; 'left' only children whose parent has ended; 'below' also children of what is
-- being cancelled itself. What somebody's next life has taken up meanwhile is none of them.

create function holdfast.request_cancel(ids uuid[], p_rule text)
returns table (id uuid, state text)
language plpgsql
set plan_cache_mode = force_custom_plan    -- lists are hashed then
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  chosen uuid[] := ids;
  parents uuid[];
  ended uuid[];
  found uuid[];
begin
  if p_rule <> 'asked' then                -- a retry of a parent comes before, and is seen, or waits
    parents := array(select distinct t.parent from holdfast.task t where t.id = any (ids) and t.parent is not null);
    ended := array(
      select p.id
      from holdfast.outcome p
      where p.id = any (parents)
      order by p.id
      for share
    );
    if p_rule = 'below' then
      perform from holdfast.task t where t.id = any (ids || parents) order by t.id for no key update;
      ended := ended || array(select t.id from holdfast.task t where t.id = any (parents) and t.cancel_requested);
    end if;
    found := array(select t.id from holdfast.task t where t.id = any (ids) and t.parent = any (ended));
    chosen := found;
    while p_rule = 'below' and found <> '{}' loop
      found := array(select t.id from holdfast.task t where t.id = any (ids) and t.parent = any (found));
      chosen := chosen || found;
    end loop;
  end if;
  return query
  with asked as materialized (
    select t.id, o.state
    from holdfast.task t
    left join holdfast.outcome o on o.id = any (array[t.id])
    where t.id = any (chosen)
    order by t.id
  ), marked as (
    update holdfast.task t
    set cancel_requested = true
    from asked a
    where t.id = any (chosen) and t.id = any (array[a.id]) and a.state is null and not t.cancel_requested
    returning t.id
  ), woken as (
    insert into holdfast.wake (id, urgent)
    select m.id, true
    from marked m
  )
  select a.id, a.state
  from asked a;
end $$;


-- A new life for what failed or was cancelled; what waits for its time goes ahead.

create function holdfast.retry(ids uuid[])
returns uuid[]
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
  ended uuid[];
  revived uuid[];
  early uuid[];
begin
  -- First the locks, and only then the look: an enqueue may be taking a key over just now. What ends
  -- in between is not looked at: it would be locked out of their order.
  ended := array(
    select o.id
    from holdfast.outcome o
    where o.id = any (ids) and o.state in ('failed', 'cancelled')
    order by o.id
    for update
  );
  perform
  from holdfast.task t
  join holdfast.lane l on l.id = t.lane
  join holdfast.task_key k on k.tenant = l.tenant and k.key = t.key
  where t.id = any (ids)
  order by k.tenant, k.key
  for no key update of k;

  with asked as materialized (
    select o.id
    from holdfast.outcome o
    where o.id = any (ended)
      and not exists (                     -- its key belongs to a younger task by now
        select from holdfast.task t
        join holdfast.lane l on l.id = t.lane
        join holdfast.task_key k on k.tenant = l.tenant and k.key = t.key
        where t.id = any (array[o.id]) and k.id <> o.id
      )
    order by o.id
    for update
  ), gone as (
    delete from holdfast.outcome o
    using asked a
    where o.id = any (array[a.id])
    returning o.*
  ), noted as (
    insert into holdfast.attempt (
      id, grant_id, worker, seq, started_at, ended_at, fence, tries, ended, ended_by, result, error_type, error, detail
    )
    select
      g.id, g.grant_id, g.worker, g.seq, g.started_at, g.finished_at, g.fence, 0, g.state, g.ended_by,
      g.result, g.error_type, g.error, g.detail
    from gone g
  ), reset as (
    update holdfast.task t
    set cancel_requested = false, expires_at = null
    from gone g
    where t.id = any (array[g.id])
    returning t.id, t.lane, t.np, t.parent, t.concurrency_key, g.fence
  ), entered as (
    insert into holdfast.later (id, run_at, lane, fence, np, tries, alone, child, key)
    select
      r.id, holdfast.clock(), r.lane, r.fence, r.np, 0, false, r.parent is not null, r.concurrency_key
    from reset r
  )
  select coalesce(array_agg(g.id), '{}') into revived from gone g;
  delete from holdfast.expiry e where e.id = any (revived);

  select coalesce(array_agg(l.id), '{}') into early
  from (
    select l.id
    from holdfast.later l
    where l.id = any (ids) and (l.waiting is null or l.waiting like 'parked:%')
    order by l.id
    for update
  ) l;
  perform holdfast.house(early) where early <> '{}';
  perform holdfast.enter(early) where early <> '{}';
  return array(select distinct unnest(revived || early));
end $$;


-- Changes a task that has not begun, where it still is as it was seen. First its row: a cancel came before
-- and is seen, or waits. Then its expiry, as forget does. Then its place, later first and ready last, as
-- withdraw does: whoever finds it nowhere comes too late. Only a new place costs it its turn.
-- begun: it runs, has ended, or is about to; changed: it is not as it was seen.

create function holdfast.edit(
  p_id uuid,
  p_seen_lane int, p_seen_np smallint, p_seen_max_tries smallint,
  p_seen_expires_at timestamptz, p_seen_run_at timestamptz,
  p_lane int, p_np smallint, p_max_tries smallint,
  p_new_expiry boolean, p_expires float8,
  p_new_time boolean, p_delay float8, p_run_at timestamptz
)
returns text
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
  stamp timestamptz;
  due timestamptz;
  old record;
  place record;
  stood text := 'later';
begin
  perform from holdfast.task t where t.id = p_id for no key update;
  perform from holdfast.expiry e where e.id = p_id for update;
  perform holdfast.house(array[p_id]);
  select t.*, l.pool into old
  from holdfast.task t
  join holdfast.lane l on l.id = t.lane
  where t.id = p_id;

  select w.fence, w.tries, w.alone, w.child, w.key, w.run_at into place
  from holdfast.later w
  where w.id = p_id and w.waiting is null
  for update;
  if not found then
    stood := 'blocked';
    select b.fence, b.tries, b.alone, b.child, b.key, null::timestamptz as run_at into place
    from holdfast.blocked b
    where b.pool = old.pool and b.key = old.concurrency_key and b.np = old.np and b.id = p_id
    for update;
  end if;
  if not found then
    stood := 'ready';
    select r.fence, r.tries, r.alone, r.child, r.key, null::timestamptz as run_at into place
    from holdfast.ready r
    where r.lane = old.lane and r.np = old.np and r.id = p_id
    for update;
  end if;
  stamp := holdfast.clock();
  if not found or old.cancel_requested or old.expires_at <= stamp then
    return 'begun';
  end if;
  if (old.lane, old.np, old.max_tries, old.expires_at, coalesce(place.run_at, old.run_at, old.created_at))
    is distinct from (p_seen_lane, p_seen_np, p_seen_max_tries, p_seen_expires_at, p_seen_run_at)
    -- tried once more since it was seen: fewer tries than it has had are no limit
    or (p_max_tries is distinct from old.max_tries and p_max_tries <= place.tries)
  then
    return 'changed';
  end if;

  due := case
    when not p_new_time then coalesce(place.run_at, stamp)
    when p_run_at is not null then p_run_at
    else stamp + make_interval(secs => p_delay)
  end;
  update holdfast.task t
  set
    lane = p_lane,
    np = p_np,
    max_tries = p_max_tries,
    run_at = case when p_new_time then due else t.run_at end,
    expires_at = case when p_new_expiry then stamp + make_interval(secs => p_expires) else t.expires_at end
  where t.id = p_id;
  if p_new_expiry then
    delete from holdfast.expiry e where e.id = p_id;
    insert into holdfast.expiry (id, expires_at)
    select p_id, stamp + make_interval(secs => p_expires)
    where p_expires is not null;
  end if;
  if p_lane = old.lane and p_np = old.np and not p_new_time then
    return 'edited';
  end if;

  case stood
    when 'later' then
      delete from holdfast.later w where w.id = p_id;
    when 'blocked' then
      delete from holdfast.blocked b
      where b.pool = old.pool and b.key = old.concurrency_key and b.np = old.np and b.id = p_id;
    else
      delete from holdfast.ready r where r.lane = old.lane and r.np = old.np and r.id = p_id;
      insert into holdfast.nudge (pool, key, freed) select old.pool, place.key, 1 where place.key is not null;
  end case;
  insert into holdfast.later (id, run_at, lane, fence, np, tries, alone, child, key)
  values (p_id, due, p_lane, place.fence, p_np, place.tries, place.alone, place.child, old.concurrency_key);
  if due <= stamp then
    perform holdfast.enter(array[p_id]);
  end if;
  return 'edited';
end $$;


-- Who was put down, and waits for one of these that is not its child.

create function holdfast.watchers(ids uuid[])
returns setof uuid
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = on
set jit = off
as $$
begin
  return query select l.id from holdfast.later l where l.watched && ids;
end $$;


-- Those of these that it would wait for in vain: they are not there any more, or wait for it themselves, through
-- whoever watches them and through parents that have not ended.

create function holdfast.in_vain(p_id uuid, ids uuid[])
returns table (task uuid, forgotten boolean)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_indexscan = off
set enable_bitmapscan = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with recursive open as materialized (
    select a.id, t.id is null as forgotten
    from unnest(ids) as a (id)
    left join holdfast.task t on t.id = any (array[a.id])
    where not exists (select from holdfast.outcome o where o.id = any (array[a.id]))
  ),
  waits (id) as (
    select p_id
    where exists (select from open o where not o.forgotten)
    union
    select x.id
    from waits w
    cross join lateral (
      select t.parent as id
      from holdfast.task t
      where t.id = w.id and not exists (select from holdfast.outcome o where o.id = any (array[t.parent]))
      union all
      select l.id
      from holdfast.later l
      where l.watched && array[w.id]
    ) x
  )
  select o.id, o.forgotten
  from open o
  where o.forgotten or exists (select from waits w where w.id = o.id);
end $$;


-- Whether the wakes of one that watches have come. For functions that set how it is planned.

create function holdfast.has_seen_enough(p_id uuid, p_wakes int, p_watched uuid[])
returns boolean
language plpgsql
as $$
declare
  ended int;
  badly boolean;
begin
  select count(*), bool_or(o.state <> 'done') into ended, badly
  from unnest(p_watched) as a (id)
  join holdfast.outcome o on o.id = any (array[a.id]);
  return coalesce(badly, false)
    or p_wakes < 1000000000
      and exists (select from holdfast.wake w where w.id = any (array[p_id]) and w.urgent)
    or p_wakes <= ended + (select count(*) from holdfast.wake w where w.id = any (array[p_id]));
end $$;


-- Waiting tasks whose wakes have come. The rows are locked first; the wakes are counted by the next
-- statement, which has a younger snapshot. Of those that wait for each other one goes on, and is told so.

create function holdfast.wake_up(ids uuid[])
returns int
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
  held uuid[];
  watching uuid[];
  come uuid[];
  one record;
begin
  select array_agg(l.id), array_agg(l.id) filter (where l.watched <> '{}') into held, watching
  from (
    select l.id, l.watched
    from holdfast.later l
    where l.id = any (ids) and l.waiting is not null
    order by l.id
    for update
  ) l;

  select array_agg(l.id order by l.id) into come
  from holdfast.later l
  where l.id = any (held)
    and case
      when l.watched <> '{}' then holdfast.has_seen_enough(l.id, l.wakes, l.watched)
      else
        l.wakes < 1000000000
          and exists (select from holdfast.wake w where w.id = any (array[l.id]) and w.urgent)
        or l.wakes <= (select count(*) from holdfast.wake w where w.id = any (array[l.id]))
    end;
  if come is not null then
    perform holdfast.enter(come);
  end if;

  for one in
    select l.id, l.watched
    from holdfast.later l
    where watching is not null and l.id = any (watching)
    order by l.id
  loop
    continue when not exists (select from holdfast.in_vain(one.id, one.watched));
    perform pg_advisory_xact_lock(hashtext('holdfast.circles'));  -- each sees whom the last one moved
    if exists (select from holdfast.in_vain(one.id, one.watched)) then
      perform holdfast.enter(array[one.id]);
      come := come || one.id;
    end if;
  end loop;
  return coalesce(cardinality(come), 0);
end $$;


create function holdfast.sweep_wakes(p_batch int)
returns int
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  select holdfast.wake_up(
    array(
      select l.id
      from (
        select x.id from holdfast.wake x
        union
        select y.id from holdfast.later y where y.watched <> '{}'
      ) w
      join holdfast.later l on l.id = any (array[w.id])
      where l.waiting is not null
        and case                           -- joins that are not complete must hide nobody
          when l.watched <> '{}' then
            holdfast.has_seen_enough(l.id, l.wakes, l.watched)
            or (
              exists (select from holdfast.later x where x.id = any (l.watched) and x.waiting is not null)
              or cardinality(l.watched) > (select count(*) from holdfast.task t where t.id = any (l.watched))
            ) and exists (select from holdfast.in_vain(l.id, l.watched))
          else
            l.wakes < 1000000000
              and exists (select from holdfast.wake w where w.id = any (array[l.id]) and w.urgent)
            or l.wakes <= (select count(*) from holdfast.wake w where w.id = any (array[l.id]))
        end
      limit p_batch
    )
  )
$$;


-- False: the task has ended, or there is none.

create function holdfast.send_signal(p_signal uuid, p_id uuid, p_name text, p_payload bytea)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  -- Against a cleanup at the same moment. An end may come first: then nobody reads the signal.
  perform from holdfast.task t where t.id = p_id for key share;
  if not found or exists (select from holdfast.outcome o where o.id = p_id) then
    return exists (select from holdfast.signal s where s.signal = p_signal and s.id = p_id);
  end if;
  insert into holdfast.signal (signal, id, name, payload, sent_at)
  values (p_signal, p_id, p_name, p_payload, holdfast.clock())
  on conflict do nothing;
  if found then
    insert into holdfast.wake (id, urgent) values (p_id, true);
  end if;
  return true;
end $$;


-- Not done in time. What runs just now is its worker's to stop, and looked at again a little later: its settle
-- may have put it back.

create function holdfast.expire(
  p_batch int, out ids uuid[], out types text[], out queues text[], out parents uuid[]
)
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
  stamp timestamptz := holdfast.clock();   -- a variable can be looked up in an index, a volatile function not
  due uuid[];
begin
  select array_agg(d.id) into due
  from (
    select e.id
    from holdfast.expiry e
    where e.expires_at <= stamp
    order by e.expires_at
    limit p_batch
    for update skip locked
  ) d;
  if due is null then
    return;
  end if;

  select w.parents
  into parents
  from holdfast.withdraw(
    array(select d.id from unnest(due) as d (id) where not exists (select from holdfast.lease l where l.id = d.id)),
    'failed', 'Expired', 'not done before it expired'
  ) w;

  with done as (
    delete from holdfast.expiry e
    where e.id = any (due)
      and (
        exists (select from holdfast.outcome o where o.id = e.id)
        or not exists (select from holdfast.task t where t.id = e.id and t.expires_at is not null)
      )
    returning e.id
  )
  select array_agg(o.id), array_agg(l.type), array_agg(l.queue)
  into ids, types, queues
  from done d
  join holdfast.outcome o on o.id = any (array[d.id])
  join holdfast.task t on t.id = any (array[d.id])
  join holdfast.lane l on l.id = any (array[t.lane])
  where o.state = 'failed'
    and o.error_type = 'Expired'
    and (o.worker is null or (o.ended_by = 'holder' and o.error = 'not tried again before it expired'));
  update holdfast.expiry e
  set expires_at = holdfast.clock() + interval '10 seconds'
  where e.id = any (due);
end $$;


-- Forgets tasks with all that belongs to them. Not what a living parent may still ask for.

create function holdfast.forget(ids uuid[])
returns uuid[]
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
  free uuid[];
  gone uuid[];
begin
  select array_agg(f.id) into free
  from (
    select o.id
    from holdfast.outcome o
    join holdfast.task t on t.id = any (array[o.id])
    where o.id = any (ids)
      and not exists (
        select from holdfast.task p
        where p.id = any (array[t.parent])
          and not exists (select from holdfast.outcome x where x.id = any (array[p.id]))
      )
    order by o.id
    for update of o skip locked
  ) f;
  perform holdfast.roll_up_early(free);

  with ended as (
    delete from holdfast.outcome o
    where o.id = any (free)
    returning o.id
  ), written as (
    delete from holdfast.task t
    using ended e
    where t.id = any (array[e.id])
    returning t.id, t.key, t.lane
  ), keyed as (
    delete from holdfast.task_key k
    using written w
    join holdfast.lane l on l.id = w.lane
    where k.tenant = l.tenant and k.key = w.key and k.id = w.id
  )
  select array_agg(w.id) into gone from written w;

  delete from holdfast.attempt a where a.id = any (gone);
  delete from holdfast.refusal a where a.id = any (gone);
  delete from holdfast.progress a where a.id = any (gone);
  delete from holdfast.step a where a.id = any (gone);
  delete from holdfast.signal a where a.id = any (gone);
  delete from holdfast.wake a where a.id = any (gone);
  delete from holdfast.expiry a where a.id = any (gone);
  delete from holdfast.task_log a where a.id = any (gone);
  return coalesce(gone, '{}');
end $$;


-- What ended so longer ago than that, oldest first, and is needed by no living parent. In the order of
-- their ends, so the first that is young stops the walk; children of living parents are stepped over.

create function holdfast.ended_before(p_state text, p_seconds float8, p_batch int)
returns uuid[]
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
  old uuid[] := '{}';
  past timestamptz := holdfast.clock() - make_interval(secs => p_seconds);
  at bigint := -1;
  chunk record;
begin
  for turn in 1 .. 100 loop
    with next as materialized (
      (
        select o.id, o.seq, o.finished_at
        from holdfast.outcome o
        where p_state = 'done' and o.state = 'done' and o.seq > at
        order by o.seq
        limit 1000
      )
      union all
      (
        select o.id, o.seq, o.finished_at
        from holdfast.outcome o
        where p_state <> 'done' and o.state = p_state and o.state <> 'done' and o.seq > at
        order by o.seq
        limit 1000
      )
    )
    select
      max(n.seq) as last,
      bool_or(n.finished_at >= past) as young,
      array_agg(n.id order by n.seq) filter (
        where n.finished_at < past
          and not exists (
            select from holdfast.task p
            where p.id = t.parent
              and not exists (select from holdfast.outcome x where x.id = p.id)
          )
      ) as ids
    into chunk
    from next n
    join holdfast.task t on t.id = any (array[n.id]);
    old := old || chunk.ids;
    exit when chunk.last is null or chunk.young or cardinality(old) >= p_batch;
    at := chunk.last;
  end loop;
  return old[1:p_batch];
end $$;


-- Workers that were last heard of longer ago than that, and hold nothing.

create function holdfast.forget_workers(p_after float8, p_batch int)
returns int
language plpgsql
as $$
declare
  forgotten int;
begin
  delete from holdfast.worker w
  where w.id in (
    select x.id
    from holdfast.worker x
    where x.status in ('stopped', 'stale')
      and x.last_heartbeat < holdfast.clock() - make_interval(secs => p_after)
      and not exists (select from holdfast.lease l where l.worker = x.id)
    order by x.id
    limit p_batch
    for update skip locked                 -- a worker that beats just now is back
  );
  get diagnostics forgotten = row_count;
  return forgotten;
end $$;


create function holdfast.cleanup(p_retention float8, p_dead_letters float8, p_batch int)
returns int
language plpgsql
as $$
#variable_conflict use_column
declare
  old uuid[];
begin
  old := holdfast.ended_before('done', p_retention, p_batch);
  old := old || holdfast.ended_before('cancelled', p_retention, p_batch - cardinality(old));
  if p_dead_letters is not null then
    old := old || holdfast.ended_before('failed', p_dead_letters, p_batch - cardinality(old));
  end if;

  perform holdfast.forget_workers(p_retention, p_batch);
  delete from holdfast.chore
  where next_at < holdfast.clock() - make_interval(secs => p_retention);
  delete from holdfast.schedule
  where seen_at < holdfast.clock() - make_interval(secs => p_retention);
  return coalesce(cardinality(holdfast.forget(old)), 0);
end $$;


create function holdfast.pause(p_queue text, p_paused boolean)
returns void
language plpgsql
as $$
begin
  update holdfast.lane_change set moved = moved + 1;
  insert into holdfast.queue (name, paused)
  values (p_queue, p_paused)
  on conflict (name) do update set paused = excluded.paused;
  update holdfast.lane set paused = p_paused where queue = p_queue;
end $$;


-- A new limit counts what runs already. p_limit is null where there is none (any more). What a function's
-- code says is kept also while an operator's word goes before it, and holds again when that is lifted.

create function holdfast.set_limit(p_kind text, p_name text, p_limit jsonb, p_declared boolean)
returns void
language plpgsql
as $$
#variable_conflict use_column
declare
  gate_id int;
  old_per_key int;
  was_held boolean;
  in_force jsonb;
  most int;
  most_per_key int;
  rate float8;
  burst int;
  counts boolean;
  adopted int;
begin
  perform pg_advisory_xact_lock(hashtext('holdfast.limits'));
  insert into holdfast.gate (kind, name)
  values (p_kind, p_name)
  on conflict do nothing;
  select g.id, g.max_per_key, g.held, case when p_declared then p_limit else coalesce(p_limit, g.declared) end
  into gate_id, old_per_key, was_held, in_force
  from holdfast.gate g
  where g.kind = p_kind and g.name = p_name
  for no key update;

  if p_declared then
    update holdfast.gate g set declared = p_limit where g.id = gate_id;
    if was_held then
      return;
    end if;
  else
    update holdfast.gate g set held = p_limit is not null where g.id = gate_id;
  end if;
  most := (in_force ->> 'max_running')::int;
  most_per_key := (in_force ->> 'max_per_key')::int;
  rate := (in_force ->> 'interval')::float8;
  burst := (in_force ->> 'burst')::int;
  counts := most is not null or rate is not null;

  -- After the gate, as a claim does that waited for its gate and then interns a lane.
  update holdfast.lane_change set moved = moved + 1;

  update holdfast.gate g
  set
    said = in_force,
    max_running = most,
    max_per_key = most_per_key,
    rate_interval = rate,
    rate_burst = burst,
    -- a slower rate before must not hold up a faster one: nobody pays for more than one burst
    rate_next = case
      when rate is not null and g.rate_next is not null
      then least(g.rate_next, holdfast.clock() + make_interval(secs => burst * rate))
    end
  where g.id = gate_id;

  update holdfast.lane l
  set gates = case
    when not counts then nullif(array_remove(l.gates, gate_id), '{}')
    else array(select distinct x from unnest(l.gates || gate_id) x order by x)
  end
  where case p_kind when 'type' then l.type when 'queue' then l.queue else l.tenant end = p_name;

  if most is not null then
    with held as (
      select e.id
      from holdfast.lease e
      join holdfast.lane l on l.id = e.lane
      where case p_kind when 'type' then l.type when 'queue' then l.queue else l.tenant end = p_name
        and (e.gates is null or gate_id <> all (e.gates))
      order by e.id
      for no key update of e
    ), counted as (
      update holdfast.lease e
      set gates = e.gates || gate_id
      from held h
      where e.id = h.id
      returning e.id
    )
    select count(*) into adopted from counted;
    update holdfast.gate g set running = g.running + adopted where g.id = gate_id;
  end if;

  -- Tasks that were let in under a wider limit, or none, line up again, in their places.
  if most_per_key < coalesce(old_per_key, most_per_key + 1) then
    with gone as (
      delete from holdfast.ready r
      using holdfast.lane l
      where l.type = p_name and r.lane = l.id and r.key is not null
      returning r.*, l.pool
    ), back as (
      insert into holdfast.blocked (seq, id, pool, lane, fence, np, tries, alone, child, key)
      select g.seq, g.id, g.pool, g.lane, g.fence, g.np, g.tries, g.alone, g.child, g.key
      from gone g
    )
    insert into holdfast.nudge (pool, key, freed)
    select g.pool, g.key, count(*)
    from gone g
    group by g.pool, g.key;
  end if;

  -- Keys that were full may have room now.
  insert into holdfast.nudge (pool, key, freed)
  select distinct b.pool, b.key, 0
  from holdfast.blocked b
  join holdfast.lane l on l.id = b.lane
  where p_kind = 'type' and l.type = p_name;
end $$;
