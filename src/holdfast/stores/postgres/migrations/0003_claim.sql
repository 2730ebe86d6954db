-- Claiming: due tasks go into their lanes, keys that have room let their heads in, and the best
-- rows of the lanes move from ready to lease.


-- Due: into the lane, behind everybody who waits there already. Cancelled and expired ones end here.

create function holdfast.promote(p_batch int)
returns int
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  stamp timestamptz := holdfast.clock();
  due uuid[];
begin
  select array_agg(d.id) into due
  from (
    select l.id
    from holdfast.later l
    where l.run_at <= stamp
    order by l.run_at
    limit p_batch
    for update skip locked
  ) d;
  if due is null then
    return 0;
  end if;

  perform holdfast.house(due);
  perform holdfast.enter(due);
  return cardinality(due);
end $$;


-- Tasks that came from a SQL prompt with a lane that nobody knew get it before they leave later.

create function holdfast.house(ids uuid[])
returns void
language plpgsql
as $$
declare
  homeless record;
  lane_id int;
begin
  for homeless in
    select l.id, l.parts
    from holdfast.later l
    where l.id = any (ids) and l.lane = 0
    order by l.id
  loop
    lane_id := (holdfast.intern_lanes(
      array[homeless.parts ->> 'queue'],
      array[homeless.parts ->> 'type'],
      array[homeless.parts ->> 'version'],
      array[homeless.parts ->> 'tags'],
      array[homeless.parts ->> 'requires'],
      array[homeless.parts ->> 'tenant']
    ))[1];
    update holdfast.later l set lane = lane_id, parts = null where l.id = homeless.id;
    update holdfast.task t set lane = lane_id where t.id = homeless.id;
  end loop;
end $$;


-- Moves rows of later, which the caller has locked, to where they wait for a worker.

create function holdfast.enter(ids uuid[])
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
begin
  with asked as materialized (
    select a.id, a.n
    from unnest(ids) with ordinality as a (id, n)
    order by a.n
  ), gone as (
    delete from holdfast.later l
    using asked a
    where l.id = any (array[a.id])
    returning l.*, a.n
  ), judged as materialized (
    select
      g.*, t.parent, la.pool,
      case
        when t.cancel_requested then 'cancelled'
        when t.expires_at <= holdfast.clock() then 'failed'
      end as ends_as
    from gone g
    join holdfast.task t on t.id = any (array[g.id])
    join holdfast.lane la on la.id = any (array[g.lane])
    order by g.n
  ), ended as (
    insert into holdfast.outcome (id, finished_at, fence, tries, state, ended_by, error_type, error)
    select
      j.id, holdfast.clock(), j.fence, j.tries, j.ends_as, 'operator',
      case when j.ends_as = 'failed' then 'Expired' end,
      case when j.ends_as = 'failed' then 'not started before it expired' end
    from judged j
    where j.ends_as is not null
  ), woken as (
    insert into holdfast.wake (id, urgent)
    select p.id, true
    from judged j
    join holdfast.task p on p.id = any (array[j.parent])  -- a parent may be forgotten by now
    where j.ends_as is not null and j.child
  ), free as (
    insert into holdfast.ready (id, lane, fence, np, tries, alone, child)
    select j.id, j.lane, j.fence, j.np, j.tries, j.alone, j.child
    from judged j
    where j.ends_as is null and j.key is null
  ), keyed as (
    insert into holdfast.blocked (id, pool, lane, fence, np, tries, alone, child, key)
    select j.id, j.pool, j.lane, j.fence, j.np, j.tries, j.alone, j.child, j.key
    from judged j
    where j.ends_as is null and j.key is not null
    returning pool, key
  )
  insert into holdfast.nudge (pool, key, freed)
  select distinct k.pool, k.key, 0
  from keyed k;
end $$;


-- Keys: every way in appends to blocked and nudge and locks nothing. Here, keys that were nudged, of
-- the pools that the claim serves, are locked first; what was freed is added up by the next statement,
-- which has a younger snapshot. First nudged, first let in: no key can hide another for long.

create function holdfast.admit(p_batch int, p_pools int[])
returns int
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = on
set jit = off
as $$
#variable_conflict use_column
declare
  pools int[];
  keys text[];
  moved int;
begin
  select array_agg(n.pool), array_agg(n.key)
  into pools, keys
  from (
    select distinct x.pool, x.key
    from unnest(p_pools) as p (pool)
    cross join lateral (
      select s.pool, s.key
      from holdfast.nudge s
      where s.pool = p.pool
      order by s.seq
      limit p_batch
    ) x
    order by x.pool, x.key
  ) n;
  if pools is null then
    return 0;
  end if;

  insert into holdfast.key_gate (pool, key, running)
  select a.pool, a.key, 0
  from unnest(pools, keys) as a (pool, key)
  where not exists (select from holdfast.key_gate g where g.pool = a.pool and g.key = a.key)
  order by a.pool, a.key
  on conflict do nothing;

  with asked as materialized (
    select a.pool, a.key from unnest(pools, keys) as a (pool, key)
  ), held as (
    select g.pool, g.key
    from asked a
    cross join lateral (
      select k.pool, k.key
      from holdfast.key_gate k
      where k.pool = a.pool and k.key = a.key
      for no key update skip locked
    ) g
  )
  select array_agg(h.pool), array_agg(h.key) into pools, keys from held h;
  if pools is null then
    return 0;
  end if;

  with asked as materialized (
    select a.pool, a.key from unnest(pools, keys) as a (pool, key)
  ), gone as (
    delete from holdfast.nudge n
    using asked a
    where n.pool = any (array[a.pool]) and n.key = any (array[a.key])
    returning n.pool, n.key, n.freed
  ), added as materialized (
    select g.pool, g.key, sum(g.freed)::int as freed
    from gone g
    group by g.pool, g.key
    having sum(g.freed) <> 0
  )
  update holdfast.key_gate g
  set running = g.running - a.freed
  from added a
  where g.pool = any (array[a.pool]) and g.key = any (array[a.key]);

  with open as materialized (
    select g.pool, g.key, coalesce(t.max_per_key - g.running, 1000) as room
    from unnest(pools, keys) as a (pool, key)
    cross join lateral (
      select k.* from holdfast.key_gate k where k.pool = a.pool and k.key = a.key offset 0
    ) g
    join holdfast.lane l on l.id = any (array[g.pool])
    left join holdfast.gate t on t.kind = 'type' and t.name = l.type
  ), heads as materialized (
    select o.pool, o.key, o.room, h.ctids, coalesce(cardinality(h.ctids), 0) as n
    from open o
    cross join lateral (
      select array_agg(x.ctid) as ctids
      from (
        select b.ctid
        from holdfast.blocked b
        where b.pool = o.pool and b.key = o.key
        order by b.np, b.seq
        limit greatest(o.room, 0)
        for update skip locked
      ) x
    ) h
  ), gone as (
    delete from holdfast.blocked b
    where b.ctid = any (array(select unnest(h.ctids) from heads h))
    returning b.*
  ), entered as (
    insert into holdfast.ready (seq, id, lane, fence, np, tries, alone, child, key)
    select g.seq, g.id, g.lane, g.fence, g.np, g.tries, g.alone, g.child, g.key
    from gone g
  ), again as (
    -- Come back where there are more than one pass lets in, and where room is left but a row is held
    -- just now: whoever withdraws it may roll back, and its nudge is gone.
    insert into holdfast.nudge (pool, key, freed)
    select h.pool, h.key, 0
    from heads h
    where h.n >= 1000
      or (
        h.n < h.room
        and exists (select from holdfast.blocked b where b.pool = h.pool and b.key = h.key offset h.n)
      )
  )
  update holdfast.key_gate g
  set running = g.running + h.n
  from heads h
  where h.n > 0 and g.pool = any (array[h.pool]) and g.key = any (array[h.key]);
  get diagnostics moved = row_count;

  with asked as materialized (
    select a.pool, a.key from unnest(pools, keys) as a (pool, key)
  )
  delete from holdfast.key_gate g
  using asked a
  where g.pool = any (array[a.pool])
    and g.key = any (array[a.key])
    and g.running = 0
    and not exists (select from holdfast.blocked b where b.pool = g.pool and b.key = g.key)
    and not exists (select from holdfast.nudge n where n.pool = g.pool and n.key = g.key);
  return moved;
end $$;


-- One row, by columns: an array per field is decoded by the client in one go.
-- contended: a gate that another claim held just now (0: rows that another claim was taking). Ask
--   again at once with it as wait_gate: the call then queues for that gate, holding nothing.
-- specials: the few that have more to say; the arrays after it are theirs.
-- is_full: work waits behind a gate that has no room.
-- An id that stands in ready twice raises 23505 here: call repair, report, and ask again.

create function holdfast.claim(
  p_worker bigint,
  p_grant uuid,
  p_lanes int[],
  p_turns int[],
  p_want int,
  p_lease float8,
  wait_gate int,
  durable boolean,
  out ids uuid[],
  out lanes int[],
  out nps smallint[],
  out seqs bigint[],
  out fences int[],
  out tries smallint[],
  out payloads bytea[],
  out specials uuid[],
  out max_tries smallint[],
  out policies bytea[],
  out parents uuid[],
  out cancels boolean[],
  out expireds boolean[],
  out alones boolean[],
  out contended int,
  out is_full boolean,
  out next_due float8,
  out lane_change bigint
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  stamp timestamptz;
  want int := p_want;
  open_lanes int[] := p_lanes;             -- lanes still worth a look
  open_turns int[] := p_turns;
  chosen int[];                            -- lanes whose head has the best priority, best first
  chosen_gates jsonb;
  shares float8[];
  best smallint;
  upto smallint;                           -- how far down in priority this round may go
  batch int[];                             -- lanes that one statement takes from
  batch_shares float8[];
  gates int[];
  room int;
  opens float8;
  took int;
  locked int := 0;                         -- gated lanes cost a lock each: bounded per call
  shut int[] := '{}';                      -- gates that are full, or held by another claim
  full_gates int[];
  pools int[];
  got record;
begin
  is_full := false;
  -- Claims pass each other; a new limit waits for those under way, and counts what they took.
  perform pg_advisory_xact_lock_shared(hashtext('holdfast.limits'));

  if wait_gate > 0 then
    perform from holdfast.gate g where g.id = wait_gate for no key update;
  end if;

  stamp := holdfast.clock();               -- a variable can be looked up in an index, a volatile function not
  if exists (select from holdfast.later l where l.run_at <= stamp) then
    perform holdfast.promote(greatest(p_want, 100));
  end if;
  if exists (select from holdfast.nudge) then
    pools := array(select distinct l.pool from holdfast.lane l where l.id = any (p_lanes));
    perform holdfast.admit(greatest(p_want, 100), pools);
  end if;

  while want > 0 and cardinality(open_lanes) > 0 loop
    with head as materialized (
      select l.id as lane, coalesce(u.turn, 0) as turn, l.gates, h.np, h.seq
      from unnest(open_lanes, open_turns) as u (lane, turn)
      join holdfast.lane l
        on l.id = any (array[u.lane]) and not l.paused and (l.gates is null or not l.gates && shut)
      cross join lateral (
        select r.np, r.seq
        from holdfast.ready r
        where r.lane = l.id
        order by r.np, r.seq
        limit 1
      ) h
    ), top as (
      select
        h.*,
        1.0 / (count(*) over (partition by h.turn) * (dense_rank() over (order by h.turn) + dense_rank() over (order by h.turn desc) - 1)) as share
      from head h
      where h.np = (select min(np) from head)
    )
    select
      min(t.np),
      array_agg(t.lane order by t.turn, t.seq),
      jsonb_agg(t.gates order by t.turn, t.seq),
      array_agg(t.share::float8 order by t.turn, t.seq),
      (select min(h.np) from head h where h.np > (select min(np) from head))
    into best, chosen, chosen_gates, shares, upto
    from top t;

    exit when chosen is null;
    -- Alone at the top, a lane may give all that is at least as urgent as the best head elsewhere.
    if cardinality(chosen) > 1 then
      upto := best;
    else
      upto := coalesce(upto, 32767);
    end if;

    batch := '{}';
    batch_shares := '{}';
    for at in 1 .. cardinality(chosen) loop
      batch := batch || chosen[at];
      batch_shares := batch_shares || shares[at];
      room := want;
      gates := null;
      if jsonb_typeof(chosen_gates -> (at - 1)) = 'array' then
        gates := array(select g::int from jsonb_array_elements_text(chosen_gates -> (at - 1)) g order by 1);
      end if;

      if gates && shut then
        batch := '{}';
        batch_shares := '{}';
        continue;
      elsif gates is null then
        -- neighbours without a gate are taken together, in one statement
        continue when at < cardinality(chosen) and jsonb_typeof(chosen_gates -> at) = 'null';
      else
        -- a full gate is passed by without its lock, so that an empty claim holds up nobody
        select array_agg(f.id) filter (where f.free <= 0 or f.opens > 0), max(f.opens)
        into full_gates, opens
        from (
          select
            g.id,
            g.max_running - g.running + coalesce((select sum(f.n) from holdfast.freed f where f.gate = g.id), 0) as free,
            case                           -- further ahead: the clock was set back; below it is set right
              when g.rate_next <= stamp + make_interval(secs => g.rate_burst * g.rate_interval + 0.001)
              then extract(epoch from g.rate_next - stamp)::float8 - (g.rate_burst - 1) * g.rate_interval
            end as opens
          from holdfast.gate g
          where g.id = any (gates)
        ) f;
        if full_gates is not null then
          is_full := true;
          shut := shut || full_gates;
          if opens > 0 then
            next_due := least(next_due, opens);
          end if;
          batch := '{}';
          batch_shares := '{}';
          continue;
        end if;

        -- first the locks, and only then the look: the next statement has a younger snapshot
        locked := locked + 1;
        took := 0;
        if locked <= 64 then
          perform from holdfast.gate g where g.id = any (gates) order by g.id for no key update skip locked;
          get diagnostics took = row_count;
        end if;
        if took < cardinality(gates) then
          contended := coalesce(contended, case when locked <= 64 then gates[1] else 0 end);
          shut := shut || gates;
          batch := '{}';
          batch_shares := '{}';
          continue;
        end if;

        stamp := holdfast.clock();
        with folded as (
          delete from holdfast.freed f
          where f.gate = any (gates)
          returning f.gate, f.n
        ), counted as (
          update holdfast.gate g
          set
            running = g.running - coalesce((select sum(f.n) from folded f where f.gate = g.id), 0),
            rate_next = case
              when g.rate_next is not null
              then least(g.rate_next, stamp + make_interval(secs => g.rate_burst * g.rate_interval))
            end
          where g.id = any (gates)
          returning
            g.id,
            g.max_running - g.running as free,
            floor(g.rate_burst - greatest(extract(epoch from g.rate_next - stamp)::float8, 0) / g.rate_interval + 1e-6) as starts,
            extract(epoch from g.rate_next - stamp)::float8 - (g.rate_burst - 1) * g.rate_interval as opens
        )
        select
          least(want, min(least(c.free, c.starts::int))),
          array_agg(c.id) filter (where least(c.free, c.starts::int) <= 0),
          max(c.opens)
        into room, full_gates, opens
        from counted c;

        if room <= 0 then
          is_full := true;
          shut := shut || full_gates;
          if opens > 0 then
            next_due := least(next_due, opens);
          end if;
          batch := '{}';
          batch_shares := '{}';
          continue;
        end if;
        batch_shares := array[1.0];
      end if;

      stamp := holdfast.clock();
      with taken as (
        delete from holdfast.ready r
        where r.ctid = any (array(
          select x.ctid
          from unnest(batch, batch_shares) as b (lane, share)
          cross join lateral (
            select q.ctid
            from holdfast.ready q
            where q.lane = b.lane and q.np <= upto
            order by q.np, q.seq
            limit ceil(room * b.share)
            for update skip locked
          ) x
          limit room
        ))
        returning r.*
      ), leased as (
        insert into holdfast.lease (
          id, grant_id, worker, seq, lease_timeout, started_at, lane, fence, np, tries, alone, child, gates, key
        )
        select
          t.id, p_grant, p_worker, t.seq, stamp + make_interval(secs => p_lease), stamp,
          t.lane, t.fence + 1, t.np, t.tries + 1, t.alone, t.child, gates, t.key
        from taken t
        returning id, lane, np, seq, fence, tries, alone, key
      )
      select
        count(*)::int as n,
        bool_or(c.key is not null) as keyed,
        array_agg(c.id) as ids,
        array_agg(c.lane) as lanes,
        array_agg(c.np) as nps,
        array_agg(c.seq) as seqs,
        array_agg(c.fence) as fences,
        array_agg(c.tries) as tries,
        array_agg(c.payload) as payloads,
        array_agg(c.id) filter (where c.special) as specials,
        array_agg(c.max_tries) filter (where c.special) as max_tries,
        array_agg(c.policy) filter (where c.special) as policies,
        array_agg(c.parent) filter (where c.special) as parents,
        array_agg(c.cancel_requested) filter (where c.special) as cancels,
        array_agg(coalesce(c.expires_at <= stamp, false)) filter (where c.special) as expireds,
        array_agg(c.alone) filter (where c.special) as alones
      into got
      from (
        select
          l.*, t.payload, t.max_tries, t.policy, t.parent, t.cancel_requested, t.expires_at,
          t.cancel_requested or l.alone or t.max_tries is not null or t.policy is not null
            or t.parent is not null or t.expires_at is not null as special
        from leased l
        join holdfast.task t on t.id = any (array[l.id])
        offset 0
      ) c;

      took := got.n;
      ids := ids || got.ids;
      lanes := lanes || got.lanes;
      nps := nps || got.nps;
      seqs := seqs || got.seqs;
      fences := fences || got.fences;
      tries := tries || got.tries;
      payloads := payloads || got.payloads;
      specials := specials || got.specials;
      max_tries := max_tries || got.max_tries;
      policies := policies || got.policies;
      parents := parents || got.parents;
      cancels := cancels || got.cancels;
      expireds := expireds || got.expireds;
      alones := alones || got.alones;

      durable := durable or coalesce(got.keyed, false) or (gates is not null and took > 0);
      if gates is not null and took > 0 then
        update holdfast.gate g
        set
          running = g.running + took,
          rate_next = greatest(coalesce(g.rate_next, stamp), stamp) + make_interval(secs => took * g.rate_interval)
        where g.id = any (gates);
      end if;

      if took = 0 then                     -- a head was seen, but another claim is taking it
        contended := coalesce(contended, 0);
        got := holdfast.strike(open_lanes, open_turns, batch);
        open_lanes := got.lanes;
        open_turns := got.turns;
      end if;

      want := want - took;
      exit when want = 0;
      batch := '{}';
      batch_shares := '{}';
    end loop;
  end loop;

  if want = 0 then
    contended := null;
  else
    if contended is null and exists (select from holdfast.nudge n where n.pool = any (pools)) then
      contended := 0;                      -- a key that another claim is letting in just now
    end if;
    -- greatest() passes nulls by: where nothing is delayed it must not say "at once"
    select least(
      next_due,
      case
        when min(l.run_at) is not null
        then greatest(extract(epoch from min(l.run_at) - holdfast.clock())::float8, 0)
      end
    )
    into next_due
    from holdfast.later l
    where l.run_at < 'infinity';
  end if;
  select c.moved into lane_change from holdfast.lane_change c;

  -- A counter and the lease that it counts must survive a crash together.
  if not durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end $$;


create function holdfast.strike(inout lanes int[], inout turns int[], struck int[])
language sql
immutable
as $$
  select array_agg(u.lane), array_agg(u.turn)
  from unnest(lanes, turns) as u (lane, turn)
  where u.lane <> all (struck)
$$;


-- What a claim whose answer was lost has taken and still holds.

create function holdfast.claimed(p_worker bigint, p_grant uuid)
returns table (
  id uuid, lane int, np smallint, seq bigint, fence int, tries smallint, payload bytea, max_tries smallint,
  policy bytea, parent uuid, cancel_requested boolean, expired boolean, alone boolean
)
language sql
stable
as $$
  select
    l.id, l.lane, l.np, l.seq, l.fence, l.tries, t.payload, t.max_tries,
    t.policy, t.parent, t.cancel_requested, coalesce(t.expires_at <= holdfast.clock(), false), l.alone
  from holdfast.lease l
  join holdfast.task t on t.id = l.id
  where l.grant_id = p_grant and l.worker = p_worker
$$;


-- A row of ready whose task stands somewhere else as well must not wedge its lane.

create function holdfast.repair(p_lanes int[])
returns setof uuid
language sql
as $$
  with gone as (
    delete from holdfast.ready r
    using (
      select q.ctid, q.id, row_number() over (partition by q.id order by q.seq) as copy
      from holdfast.ready q
      where q.lane = any (p_lanes)
    ) d
    where r.ctid = d.ctid
      and (
        d.copy > 1
        or exists (select from holdfast.lease l where l.id = d.id)
        or exists (select from holdfast.outcome o where o.id = d.id)
        or exists (select from holdfast.later l where l.id = d.id)
      )
    returning r.id, r.lane, r.key
  ), nudged as (
    insert into holdfast.nudge (pool, key, freed)
    select l.pool, g.key, 1
    from gone g
    join holdfast.lane l on l.id = g.lane
    where g.key is not null
  )
  select g.id from gone g
$$;
