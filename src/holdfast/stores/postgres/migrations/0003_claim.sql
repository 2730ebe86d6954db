-- Claiming: due tasks go into their lanes, keys that have room let their heads in, and the best
-- rows of the lanes move from ready to lease.


-- Due: into the lane, behind everybody who waits there already. Cancelled and expired ones end here.

create function holdfast.promote(p_batch int)
returns int
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
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
set enable_nestloop = on
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
      case when j.ends_as = 'failed' then 'not done before it expired' end
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
    returning pool, key, seq
  )
  insert into holdfast.nudge (pool, key, freed)
  select k.pool, k.key, 0
  from keyed k
  group by k.pool, k.key
  order by min(k.seq);
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
set enable_nestloop = on
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
-- memory: hand it to the next claim, whatever its lanes; null: there is nothing to remember.
-- An id that stands in ready twice raises 23505 here: call repair, report, and ask again.
--
-- Each round looks at the heads of the lanes, from where they last stood, and takes from the best. A
-- look that passed something by (see beyond and walk) is followed by a whole one before the claim comes
-- back short.

create function holdfast.claim(
  p_worker bigint,
  p_grant uuid,
  p_lanes int[],
  p_turns int[],
  p_want int,
  p_lease float8,
  wait_gate int,
  durable boolean,
  inout memory jsonb default null,
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
  out lefts float8[],                      -- seconds until it expires
  out alones boolean[],
  out user_ids text[],
  out contended int,
  out is_full boolean,
  out next_due float8,
  out lane_change bigint
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_hashjoin = on
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  stamp timestamptz;
  want int := p_want;
  many constant boolean := cardinality(p_lanes) > 500;
  looked_at timestamptz;
  is_whole boolean := false;               -- nothing was passed by
  entries bigint;                          -- of the index, read before a whole look
  open_lanes int[];                        -- lanes to be looked at
  open_turns int[];
  known_lanes int[];                       -- lanes whose heads are known
  known_turns int[];
  known_nps smallint[];
  known_seqs bigint[];
  chosen int[];                            -- lanes whose heads have the best priorities, best first
  chosen_turns int[];
  chosen_nps smallint[];                   -- where their heads stand
  chosen_seqs bigint[];
  chosen_gates jsonb;
  shares float8[];
  best smallint;
  worst smallint;                          -- of the chosen heads
  upto smallint;                           -- how far down in priority this round may go
  wide int := 1;                           -- how many lanes of several priorities a round may choose
  reach smallint;                          -- and how far down they are
  since int;                               -- from which of the chosen on one statement takes
  depth int;
  picked tid[];
  gates int[];
  room int;
  opens float8;
  took int;
  locked int := 0;                         -- gated lanes cost a lock each: bounded per call
  shut int[] := '{}';                      -- gates that are full, or held by another claim
  struck int[] := '{}';                    -- lanes that others hold all of, down to upto
  full_gates int[];
  due timestamptz;                         -- the next of those that wait for their time
  pools int[];
  seen int;
  head tid;
  got record;
  told record;
begin
  is_full := false;
  -- Claims pass each other; a new limit waits for those under way, and counts what they took.
  perform pg_advisory_xact_lock_shared(hashtext('holdfast.limits'));

  if wait_gate > 0 then
    perform from holdfast.gate g where g.id = wait_gate for no key update;
  end if;

  stamp := holdfast.clock();               -- a variable can be looked up in an index, a volatile function not
  select min(l.run_at) into due from holdfast.later l;
  if due <= stamp then
    perform holdfast.promote(greatest(p_want, 100));
    select min(l.run_at) into due from holdfast.later l;
  end if;
  if exists (select from holdfast.nudge) then
    pools := array(select distinct l.pool from holdfast.lane l where l.id = any (p_lanes));
    perform holdfast.admit(greatest(p_want, 100), pools);
  end if;

  -- One by itself, in a lane without limits, or nobody: what a worker that has time finds. It takes a
  -- fraction of what many cost. Whatever else there is, or holds it, goes the general way.
  if p_want > 1 and memory is null and not many then
    select count(*)::int, min(h.ctid) into seen, head
    from (
      select r.ctid
      from unnest(p_lanes) as u (lane)
      cross join lateral (
        select q.ctid
        from holdfast.ready q
        where q.lane = u.lane
        order by q.np, q.seq
        limit 2
      ) r
      limit 2
    ) h;
    is_whole := seen = 0;
    if seen = 1 then
      with taken as (
        delete from holdfast.ready r
        where r.ctid = (
            select q.ctid
            from holdfast.ready q
            join holdfast.lane l on l.id = any (array[q.lane])
            where q.ctid = head
              and q.lane = any (p_lanes)   -- our snapshot keeps the place for it; this costs nothing
              and not l.paused
              and l.gates is null
            for update of q skip locked    -- nothing that is not taken is locked
          )
        returning r.*
      )
      insert into holdfast.lease (
        id, grant_id, worker, seq, lease_timeout, started_at, lane, fence, np, tries, alone, child, key
      )
      select
        t.id, p_grant, p_worker, t.seq, stamp + make_interval(secs => p_lease), stamp,
        t.lane, t.fence + 1, t.np, t.tries + 1, t.alone, t.child, t.key
      from taken t
      returning * into got;
      if found then
        is_whole := true;
        want := want - 1;
        durable := durable or got.key is not null;
        select
          t.*,
          t.cancel_requested or got.alone or t.max_tries is not null or t.policy is not null
            or t.parent is not null or t.expires_at is not null or t.user_id is not null as special
        into told
        from holdfast.task t
        where t.id = got.id;
        if found then                      -- else it is a double of what was forgotten
          ids := array[got.id];
          lanes := array[got.lane];
          nps := array[got.np];
          seqs := array[got.seq];
          fences := array[got.fence];
          tries := array[got.tries];
          payloads := array[told.payload];
        end if;
        if told.special then
          specials := ids;
          max_tries := array[told.max_tries];
          policies := array[told.policy];
          parents := array[told.parent];
          cancels := array[told.cancel_requested];
          lefts := array[extract(epoch from told.expires_at - stamp)::float8];
          alones := array[got.alone];
          user_ids := array[told.user_id];
        end if;
      end if;
    end if;
  end if;

  while want > 0 loop
    if chosen is null then
      exit when is_whole;
      wide := 1;
      reach := null;
      if many then
        select
          w.lanes, w.turns, w.nps, w.seqs, w.reached is null,
          case when w.reached is not null then jsonb_build_object('after', w.reached) end
        into known_lanes, known_turns, known_nps, known_seqs, is_whole, memory
        from holdfast.walk(
          p_lanes, p_turns, (memory ->> 'after')::int, case when looked_at is null then 1000 end
        ) w;
      elsif looked_at is null and stamp - (memory ->> 'at')::timestamptz between '0' and '1 second' then
        select b.lanes, b.turns, b.nps, b.seqs
        into known_lanes, known_turns, known_nps, known_seqs
        from holdfast.beyond(memory -> 'floors', p_lanes, p_turns) b;
      else
        open_lanes := p_lanes;
        open_turns := p_turns;
        known_lanes := null;
        known_nps := null;
        known_seqs := null;
        is_whole := true;
        entries := pg_stat_get_xact_tuples_returned('holdfast.ready_order'::regclass);
      end if;
      looked_at := stamp;
    end if;

    with head as materialized (
      select l.id as lane, coalesce(p.turn, 0) as turn, l.gates, p.np, p.seq
      from (
        select u.lane, u.turn, h.np, h.seq
        from unnest(open_lanes, open_turns) as u (lane, turn)
        cross join lateral (
          select r.np, r.seq
          from holdfast.ready r
          where r.lane = u.lane
          order by r.np, r.seq
          limit 1
        ) h
        union all
        select k.lane, k.turn, k.np, k.seq
        from unnest(known_lanes, known_turns, known_nps, known_seqs) as k (lane, turn, np, seq)
      ) p
      join holdfast.lane l
        on l.id = any (array[p.lane])
          and not l.paused
          and (l.gates is null or not l.gates && shut)
    ), top as (
      select
        h.*,
        1.0 / (count(*) over (partition by h.turn) * (dense_rank() over (order by h.turn) + dense_rank() over (order by h.turn desc) - 1)) as share
      from head h
      where h.np <= greatest(reach, (select min(m.np) from head m))
    )
    select
      min(t.np), max(t.np), array_agg(t.lane), array_agg(t.turn), array_agg(t.np), array_agg(t.seq),
      jsonb_agg(t.gates), array_agg(t.share::float8),
      (select min(h.np) from head h where h.np > (select min(m.np) from head m))
    into best, worst, chosen, chosen_turns, chosen_nps, chosen_seqs, chosen_gates, shares, upto
    from (
      select t.* from top t order by t.turn, t.seq
    ) t;

    if entries is not null then            -- the first round after a whole look
      entries := pg_stat_get_xact_tuples_returned('holdfast.ready_order'::regclass) - entries;
      memory := case when entries > 5000 then holdfast.stay(memory, looked_at) end;
      entries := null;
    end if;
    continue when chosen is null;

    -- Alone at the top, a lane may give all that is at least as urgent as the best head elsewhere.
    if worst > best then
      upto := worst;
    elsif cardinality(chosen) > 1 then
      upto := best;
    else
      upto := coalesce(upto, 32767);
    end if;
    since := 1;
    for at in 1 .. cardinality(chosen) loop
      room := want;
      gates := null;
      if jsonb_typeof(chosen_gates -> (at - 1)) = 'array' then
        gates := array(select g::int from jsonb_array_elements_text(chosen_gates -> (at - 1)) g order by 1);
      end if;

      if gates && shut then
        since := at + 1;
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
          since := at + 1;
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
          since := at + 1;
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
          since := at + 1;
          continue;
        end if;
        shares[at] := 1.0;
      end if;

      -- Lanes of several priorities: the best rows of all, each read no deeper than twice its share.
      -- Where one has more, nothing below what was read of it may be taken. Rows are locked one by one
      -- in their order, so that what another claim holds is passed by.
      picked := null;
      if worst > best then
        depth := greatest(ceil(2.0 * room / (at - since + 1)), 16);
        with seen as materialized (
          select x.*, b.turn, b.share
          from unnest(
            chosen[since:at], chosen_nps[since:at], chosen_seqs[since:at], chosen_turns[since:at], shares[since:at]
          ) as b (lane, np, seq, turn, share)
          cross join lateral (
            select
              y.*,
              row_number() over (partition by y.np order by y.seq) as nth,
              case when count(*) over () = depth then max(y.np) over () end as floor
            from (
              select q.ctid, q.np, q.seq
              from holdfast.ready q
              where q.lane = b.lane and (q.np, q.seq) >= (b.np, b.seq) and q.np <= upto
              order by q.np, q.seq
              limit depth
            ) y
          ) x
        ), held as (
          select h.ctid
          from (
            select s.ctid
            from seen s
            where s.np <= coalesce((select min(f.floor) from seen f), 32767)
            order by s.np, s.nth / s.share, s.turn, s.seq
          ) s
          cross join lateral (
            select q.ctid
            from holdfast.ready q
            where q.ctid = s.ctid
            for update skip locked
          ) h
          limit room
        )
        select
          coalesce((select array_agg(h.ctid) from held h), '{}'),
          case when (select min(f.floor) from seen f) is not null then 0 else wide end
        into picked, wide;
      elsif memory ? 'at' then
        -- Where much lies before the heads this starts at them, which costs a little where nothing does.
        picked := array(
          select x.ctid
          from unnest(chosen[since:at], chosen_nps[since:at], chosen_seqs[since:at], shares[since:at])
            as b (lane, np, seq, share)
          cross join lateral (
            select q.ctid
            from holdfast.ready q
            where q.lane = b.lane and (q.np, q.seq) >= (b.np, b.seq) and q.np <= upto
            order by q.np, q.seq
            limit ceil(room * b.share)
            for update skip locked
          ) x
          limit room
        );
      end if;

      stamp := holdfast.clock();
      with taken as (
        delete from holdfast.ready r
        where r.ctid = any (coalesce(picked, array(
          select x.ctid
          from unnest(chosen[since:at], shares[since:at]) as b (lane, share)
          cross join lateral (
            select q.ctid
            from holdfast.ready q
            where q.lane = b.lane and q.np <= upto
            order by q.np, q.seq
            limit ceil(room * b.share)
            for update skip locked
          ) x
          limit room
        )))
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
        array_agg(extract(epoch from c.expires_at - stamp)::float8) filter (where c.special) as lefts,
        array_agg(c.alone) filter (where c.special) as alones,
        array_agg(c.user_id) filter (where c.special) as user_ids
      into got
      from (
        select
          l.*, t.payload, t.max_tries, t.policy, t.parent, t.cancel_requested, t.expires_at, t.user_id,
          t.cancel_requested or l.alone or t.max_tries is not null or t.policy is not null
            or t.parent is not null or t.expires_at is not null or t.user_id is not null as special
        from leased l
        join (
          select t.* from holdfast.task t where t.id = any (array(select l.id from leased l)) offset 0
        ) t on t.id = l.id
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
      lefts := lefts || got.lefts;
      alones := alones || got.alones;
      user_ids := user_ids || got.user_ids;

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
        if worst = best or wide > 0 then   -- all that these lanes have so far down is held
          struck := struck || chosen[since:at];
        end if;
      end if;

      want := want - took;
      exit when want = 0;
      since := at + 1;
    end loop;

    -- Short: go on from where the heads stand, with several priorities at once, as many whole ones
    -- as these lanes have, no gate among them. Where others hold all so far down, go on below it.
    if want > 0 then
      wide := greatest(least(wide * 4, 256), 1);
      with head as materialized (
        select l.id as lane, u.turn, h.np, h.seq, l.gates is not null as gated
        from unnest(
          coalesce(known_lanes, open_lanes), coalesce(known_turns, open_turns), known_nps, known_seqs
        ) as u (lane, turn, np, seq)
        cross join lateral (
          select r.np, r.seq
          from holdfast.ready r
          where r.lane = u.lane
            and (r.np, r.seq) >= (coalesce(u.np, (-32768)::smallint), coalesce(u.seq, 0))
            and (r.np > upto or u.lane <> all (struck))
          order by r.np, r.seq
          limit 1
        ) h
        join holdfast.lane l
          on l.id = any (array[u.lane])
            and not l.paused
            and (l.gates is null or not l.gates && shut)
      )
      select
        array_agg(d.lane), array_agg(d.turn), array_agg(d.np), array_agg(d.seq),
        max(d.np) filter (where d.lanes <= wide and not d.gated)
      into known_lanes, known_turns, known_nps, known_seqs, reach
      from (
        select h.lane, h.turn, h.np, h.seq, count(*) over up as lanes, bool_or(h.gated) over up as gated
        from head h
        window up as (order by h.np)
      ) d;
      open_lanes := null;
      open_turns := null;
      struck := '{}';
      if known_lanes is null then
        chosen := null;
      end if;
    end if;
  end loop;

  if memory ? 'at' and ids is not null then
    memory := holdfast.advance(memory, lanes, nps, seqs);
  end if;

  if want = 0 then
    contended := null;
  else
    if contended is null and exists (select from holdfast.nudge n where n.pool = any (pools)) then
      contended := 0;                      -- a key that another claim is letting in just now
    end if;
    if due < 'infinity' then
      next_due := least(next_due, greatest(extract(epoch from due - holdfast.clock())::float8, 0));
    end if;
  end if;
  select c.moved into lane_change from holdfast.lane_change c;

  -- A counter and the lease that it counts must survive a crash together.
  if not durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end $$;


-- Floors. While somebody holds an old snapshot, what was taken stays in the index and is read again by
-- every look. So a claim that read much more than it found remembers, for each lane and priority, the
-- last place that it took: up to there nobody stands. A row may still come to stand there (of a slower
-- transaction, or given back with its old place), so floors hold for one second after a whole look,
-- and a claim that would come back short makes a whole look itself. A floor hides nothing of any other
-- priority, more urgent or less, and nothing that waits behind a key (see advance).

create function holdfast.beyond(
  p_floors jsonb, p_lanes int[], p_turns int[], out lanes int[], out turns int[], out nps smallint[], out seqs bigint[]
)
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  with stretch as materialized (           -- from a floor down to the priority of the next
    select s.lane, s.np, s.seq, lead(s.np::int, 1, 32768) over (partition by s.lane order by s.np) as upto
    from (
      select u.lane, (-32768)::smallint as np, 0::bigint as seq
      from unnest(p_lanes) as u (lane)
      union all
      select f.lane, f.np, f.seq
      from jsonb_to_recordset(p_floors) as f (lane int, np smallint, seq bigint)
      where f.lane = any (p_lanes)
    ) s
  ), head as (
    select distinct on (s.lane) s.lane, h.np, h.seq
    from stretch s
    cross join lateral (
      select r.np, r.seq
      from holdfast.ready r
      where r.lane = s.lane and (r.np, r.seq) > (s.np, s.seq) and r.np < s.upto
      order by r.np, r.seq
      limit 1
    ) h
    order by s.lane, h.np
  )
  select
    array_agg(h.lane), array_agg(p_turns[array_position(p_lanes, h.lane)]), array_agg(h.np), array_agg(h.seq)
  from head h
$$;


-- After a whole look: the floors that nobody has come to stand below stay.

create function holdfast.stay(memory jsonb, looked_at timestamptz)
returns jsonb
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  select jsonb_build_object('at', looked_at, 'floors', coalesce(jsonb_agg(to_jsonb(f)), '[]'))
  from jsonb_to_recordset(memory -> 'floors') as f (lane int, np smallint, seq bigint)
  cross join lateral (
    select min(x.seq) as seq
    from (
      select r.seq
      from holdfast.ready r
      where r.lane = f.lane and r.np = f.np and r.seq <= f.seq
      order by r.seq
      limit 1
    ) x
  ) below
  where below.seq is null
$$;


-- After a claim: up to the last that it took. Too many floors would cost more than they spare. Not where
-- keys are about: what waits behind a key, or was let in just now, keeps its place before what was taken.

create function holdfast.advance(memory jsonb, lanes int[], nps smallint[], seqs bigint[])
returns jsonb
language sql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  with keyless as materialized (
    select l.id
    from (select distinct u.lane from unnest(lanes) as u (lane)) u
    join holdfast.lane l on l.id = any (array[u.lane])
    where not exists (select from holdfast.key_gate g where g.pool = l.pool)
      and not exists (select from holdfast.blocked b where b.pool = l.pool)
  )
  select jsonb_set(memory, '{floors}', coalesce(jsonb_agg(to_jsonb(f)), '[]'))
  from (
    select m.lane, m.np, max(m.seq) as seq
    from (
      select o.lane, o.np, o.seq
      from jsonb_to_recordset(memory -> 'floors') as o (lane int, np smallint, seq bigint)
      union all
      select t.lane, t.np, t.seq
      from unnest(lanes, nps, seqs) as t (lane, np, seq)
      where t.lane in (select k.id from keyless k)
    ) m
    group by m.lane, m.np
    order by max(m.seq) desc
    limit 256
  ) f
$$;


-- Many lanes, most of them empty: one step finds the next lane that somebody waits in, with its head.
-- A step never lands before the next lane that is asked for, so it takes no more steps than there are
-- lanes asked for, nor than there are lanes with somebody in them. p_lanes must be sorted.
-- Up to p_most steps, from p_after on and around: beyond that many lanes with somebody in them a claim
-- sees a window of them, and the next claim the next one. Priority, turns and the oldest head then hold
-- among the lanes of the window; a lane is passed by for no more than (lanes / p_most) claims.
-- reached: where the window ends; null: all were seen.

create function holdfast.walk(
  p_lanes int[], p_turns int[], p_after int, p_most int,
  out lanes int[], out turns int[], out nps smallint[], out seqs bigint[], out reached int
)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  start int := coalesce(p_after, 0);
  upto int := 2147483647;
  got record;
begin
  loop
    with recursive step as (
      select start as lane, null::smallint as np, null::bigint as seq, width_bucket(start, p_lanes) as place
      union all
      select n.lane, n.np, n.seq, width_bucket(n.lane, (select p_lanes || '{}'))  -- a flat array: else copied at each step
      from step s
      cross join lateral (
        select r.lane, r.np, r.seq
        from holdfast.ready r
        where r.lane >= p_lanes[s.place + 1] and r.lane <= upto
        order by r.lane, r.np, r.seq
        limit 1
      ) n
    ), seen as materialized (
      select s.*, s.np is not null and p_lanes[s.place] = s.lane as asked
      from step s
      limit p_most + 1
    )
    select
      count(*)::int - 1 as steps,
      max(s.lane) as lane,
      array_agg(s.lane) filter (where s.asked) as lanes,
      array_agg(p_turns[s.place]) filter (where s.asked) as turns,
      array_agg(s.np) filter (where s.asked) as nps,
      array_agg(s.seq) filter (where s.asked) as seqs
    into got
    from seen s;
    lanes := lanes || got.lanes;
    turns := turns || got.turns;
    nps := nps || got.nps;
    seqs := seqs || got.seqs;

    p_most := p_most - got.steps;
    if p_most <= 0 then
      reached := got.lane;
      return;
    end if;
    exit when start = 0;
    upto := start;                         -- around, up to where it began
    start := 0;
  end loop;
end $$;


-- What a claim whose answer was lost has taken and still holds.

create function holdfast.claimed(p_worker bigint, p_grant uuid)
returns table (
  id uuid, lane int, np smallint, seq bigint, fence int, tries smallint, payload bytea, max_tries smallint,
  policy bytea, parent uuid, cancel_requested boolean, expires_in float8, alone boolean, user_id text
)
language sql
stable
as $$
  select
    l.id, l.lane, l.np, l.seq, l.fence, l.tries, t.payload, t.max_tries,
    t.policy, t.parent, t.cancel_requested, extract(epoch from t.expires_at - holdfast.clock())::float8, l.alone,
    t.user_id
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
