-- Lanes are interned on an engine connection, never inside a caller's transaction: after its
-- rollback an id that somebody remembered would lead nowhere.

-- Tags and requirements as JSON texts: lists of lists must be of equal length here. Answers the numbers in
-- the order of the lanes.

create function holdfast.intern_lanes(
  p_queues text[],
  p_types text[],
  p_versions text[],
  p_tags text[],
  p_requires text[],
  p_tenants text[]
)
returns int[]
language plpgsql
as $$
declare
  ids int[];
begin
  ids := holdfast.lane_ids(p_queues, p_types, p_versions, p_tags, p_requires, p_tenants);
  if array_position(ids, null) is null then
    return ids;
  end if;

  -- Locked first: pausing and limiting alter lanes too, and a new lane must not miss them.
  update holdfast.lane_change set moved = moved + 1;

  insert into holdfast.queue (name)
  select distinct a.queue
  from unnest(p_queues) as a (queue)
  order by a.queue
  on conflict do nothing;

  insert into holdfast.lane (queue, type, version, tags, requires, tenant, paused, gates, pool)
  select
    a.queue, a.type, a.version,
    array(select jsonb_array_elements_text(a.tags::jsonb)),
    array(select jsonb_array_elements_text(a.requires::jsonb)),
    a.tenant,
    (select q.paused from holdfast.queue q where q.name = a.queue),
    (
      select array_agg(g.id order by g.id)
      from holdfast.gate g
      where (g.kind, g.name) in (('type', a.type), ('queue', a.queue), ('tenant', a.tenant))
        and (g.max_running is not null or g.rate_interval is not null)
    ),
    0
  from unnest(p_queues, p_types, p_versions, p_tags, p_requires, p_tenants, ids) with ordinality
    as a (queue, type, version, tags, requires, tenant, id, n)
  where a.id is null
  order by a.n
  on conflict do nothing;

  update holdfast.lane l
  set pool = (select min(o.id) from holdfast.lane o where o.type = l.type and o.tenant = l.tenant)
  where l.type = any (p_types) and l.pool = 0;

  return holdfast.lane_ids(p_queues, p_types, p_versions, p_tags, p_requires, p_tenants);
end $$;


-- Null for a lane that nobody has interned yet.

create function holdfast.lane_ids(
  p_queues text[],
  p_types text[],
  p_versions text[],
  p_tags text[],
  p_requires text[],
  p_tenants text[]
)
returns int[]
language plpgsql
as $$
begin
  return array(
    select l.id
    from unnest(p_queues, p_types, p_versions, p_tags, p_requires, p_tenants) with ordinality
      as a (queue, type, version, tags, requires, tenant, n)
    left join holdfast.lane l
      on l.type = a.type
      and l.queue = a.queue
      and l.tenant = a.tenant
      and l.version = a.version
      and l.tags = array(select jsonb_array_elements_text(a.tags::jsonb))
      and l.requires = array(select jsonb_array_elements_text(a.requires::jsonb))
    order by a.n
  );
end $$;


-- Accepts all of them, or none. Whole arrays may be null: then nobody asked for that.
-- Answers the ids whose key was taken already, by whom, and whether by other work.

create function holdfast.accept(
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
  p_worker bigint default null,            -- who takes the first p_most of them at once, where nothing limits them
  p_grant uuid default null,
  p_lease float8 default null,
  p_most int default 0,
  out taken_ids uuid[],
  out taken_by uuid[],
  out conflicts boolean[]
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
  stamp timestamptz := holdfast.clock();
  skipped uuid[] := '{}';
begin
  if keys is not null then
    select k.taken_ids, k.taken_by, k.conflicts, k.skipped
    into taken_ids, taken_by, conflicts, skipped
    from holdfast.take_keys(ids, keys, tenants, fingerprints, lifetimes) k;
    if true = any (conflicts) then
      return;
    end if;
    if cardinality(skipped) > 100 then     -- a list that is known when a statement is planned is hashed
      perform set_config('plan_cache_mode', 'force_custom_plan', true);
    end if;
  end if;

  if cardinality(ids) = 1 and keys is null and delays is null and run_ats is null and expires is null
    and concurrency_keys is null and p_most = 0
  then                                     -- one plain task: nothing is listed then, which is half of the cost
    insert into holdfast.task (id, parent, created_at, lane, np, max_tries, user_id, policy, payload)
    values (ids[1], parents[1], stamp, lanes[1], nps[1], max_tries[1], user_ids[1], policies[1], payloads[1]);
    insert into holdfast.ready (id, lane, np, child) values (ids[1], lanes[1], nps[1], parents[1] is not null);
    return;
  end if;

  insert into holdfast.task (
    id, parent, created_at, run_at, expires_at, lane, np, max_tries, key, concurrency_key, user_id, policy, payload
  )
  select
    a.id, a.parent, stamp,
    case when a.delay > 0 then stamp + make_interval(secs => a.delay) else a.run_at end,
    stamp + make_interval(secs => a.expires),
    a.lane, a.np, a.max_tries, a.key, a.concurrency_key, a.user_id, a.policy, a.payload
  from unnest(
      ids, parents, delays, run_ats, expires, lanes, nps, max_tries, keys, concurrency_keys, user_ids, policies,
      payloads
    )
    as a (id, parent, delay, run_at, expires, lane, np, max_tries, key, concurrency_key, user_id, policy, payload)
  where skipped = '{}' or a.id <> all (skipped);

  if p_most > 0 and keys is null and delays is null and run_ats is null and concurrency_keys is null then
    perform pg_advisory_xact_lock_shared(hashtext('holdfast.limits'));  -- as a claim does
    with asked as materialized (
      select
        a.id, a.lane, a.np, a.parent is not null as child, nextval('holdfast.place') as seq,
        a.n <= p_most and l.gates is null and not l.paused as at_once
      from unnest(ids, lanes, nps, parents) with ordinality as a (id, lane, np, parent, n)
      join holdfast.lane l on l.id = any (array[a.lane])
    ), leased as (
      insert into holdfast.lease (
        id, grant_id, worker, seq, lease_timeout, started_at, lane, fence, np, tries, alone, child
      )
      select
        a.id, p_grant, p_worker, a.seq, stamp + make_interval(secs => p_lease), stamp,
        a.lane, 1, a.np, 1, false, a.child
      from asked a
      where a.at_once
    )
    insert into holdfast.ready (seq, id, lane, fence, np, tries, alone, child)
    select a.seq, a.id, a.lane, 0, a.np, 0, false, a.child
    from asked a
    where not a.at_once;
  elsif delays is null and run_ats is null and concurrency_keys is null then
    insert into holdfast.ready (id, lane, fence, np, tries, alone, child)
    select a.id, a.lane, 0, a.np, 0, false, a.parent is not null
    from unnest(ids, lanes, nps, parents) as a (id, lane, np, parent)
    where skipped = '{}' or a.id <> all (skipped);
  else
    with asked as materialized (
      select
        a.id, a.lane, a.np, a.parent is not null as child, a.key,
        case when a.delay > 0 then stamp + make_interval(secs => a.delay) else a.run_at end as due
      from unnest(ids, lanes, nps, parents, delays, run_ats, concurrency_keys)
        as a (id, lane, np, parent, delay, run_at, key)
      where a.id <> all (skipped)
    ), delayed as (
      insert into holdfast.later (id, run_at, lane, fence, np, tries, alone, child, key)
      select a.id, coalesce(a.due, stamp), a.lane, 0, a.np, 0, false, a.child, a.key
      from asked a
      where a.due > stamp or a.lane = 0
    ), at_once as (
      insert into holdfast.ready (id, lane, fence, np, tries, alone, child)
      select a.id, a.lane, 0, a.np, 0, false, a.child
      from asked a
      where (a.due is null or a.due <= stamp) and a.lane <> 0 and a.key is null
    ), keyed as (
      insert into holdfast.blocked (id, pool, lane, fence, np, tries, alone, child, key)
      select a.id, l.pool, a.lane, 0, a.np, 0, false, a.child, a.key
      from asked a
      join holdfast.lane l on l.id = any (array[a.lane])
      where (a.due is null or a.due <= stamp) and a.lane <> 0 and a.key is not null
      returning pool, key, seq
    )
    insert into holdfast.nudge (pool, key, freed)
    select k.pool, k.key, 0
    from keyed k
    group by k.pool, k.key
    order by min(k.seq);
  end if;

  if expires is not null then
    insert into holdfast.expiry (id, expires_at)
    select a.id, stamp + make_interval(secs => a.expires)
    from unnest(ids, expires) as a (id, expires)
    where a.expires is not null and a.id <> all (skipped);
  end if;
end $$;


-- One task for one (tenant, key), also among concurrent callers: whoever comes second waits for
-- the first to commit, or takes the key over when the first rolls back. Sorted, so that nobody
-- waits in a circle.

create function holdfast.take_keys(
  ids uuid[],
  keys text[],
  tenants text[],
  fingerprints bytea[],
  lifetimes float8[],
  out taken_ids uuid[],
  out taken_by uuid[],
  out conflicts boolean[],
  out skipped uuid[]
)
language plpgsql
set plan_cache_mode = force_custom_plan    -- the lists are hashed then
as $$
#variable_conflict use_column
declare
  mine uuid[] := '{}';
  got uuid[];
  missing int;
begin
  begin
    loop
      with inserted as (
        insert into holdfast.task_key (tenant, key, id, fingerprint, lifetime)
        select a.tenant, a.key, a.id, a.fingerprint, a.lifetime
        from unnest(ids, keys, tenants, fingerprints, lifetimes)
          with ordinality as a (id, key, tenant, fingerprint, lifetime, n)
        where a.key is not null
        order by a.tenant, a.key, a.n
        on conflict do nothing
        returning id
      )
      select coalesce(array_agg(i.id), '{}') into got from inserted i;
      mine := mine || got;

      -- First the locks, and only then the look: a replay may be giving an ended task a new life.
      perform
      from unnest(keys, tenants) as a (key, tenant)
      join holdfast.task_key k on k.tenant = a.tenant and k.key = a.key
      where k.lifetime is not null and k.id <> all (ids)
      order by k.tenant, k.key
      for no key update of k;

      with first as (
        select distinct on (a.tenant, a.key) a.*
        from unnest(ids, keys, tenants, fingerprints, lifetimes)
          with ordinality as a (id, key, tenant, fingerprint, lifetime, n)
        where a.key is not null
        order by a.tenant, a.key, a.n
      ), released as (
        update holdfast.task_key k
        set id = f.id, fingerprint = f.fingerprint, lifetime = f.lifetime
        from first f
        where k.tenant = f.tenant
          and k.key = f.key
          and k.lifetime is not null
          and k.id <> all (ids)
          and exists (
            select from holdfast.outcome o
            where o.id = k.id
              and (
                o.state <> 'done'
                or k.lifetime = 0          -- whatever the clock says
                or o.finished_at <= holdfast.clock() - make_interval(secs => k.lifetime)
              )
          )
        returning k.id
      )
      select coalesce(array_agg(r.id), '{}') into got from released r;
      mine := mine || got;

      select
        array_agg(a.id) filter (where k.id <> a.id),
        array_agg(k.id) filter (where k.id <> a.id),
        array_agg(k.fingerprint <> a.fingerprint) filter (where k.id <> a.id),
        coalesce(array_agg(a.id) filter (where a.id <> all (mine)), '{}'),
        count(*) filter (where k.id is null)
      into taken_ids, taken_by, conflicts, skipped, missing
      from unnest(ids, keys, tenants, fingerprints) as a (id, key, tenant, fingerprint)
      left join holdfast.task_key k on k.tenant = a.tenant and k.key = a.key
      where a.key is not null;

      exit when missing = 0;                 -- forgotten by a cleanup between the statements: again
    end loop;

    -- Nothing of a refused call stays: neither keys that were new nor those that were taken over.
    if true = any (conflicts) then
      raise exception 'holdfast: key conflict' using errcode = 'HF001';
    end if;
  exception
    when sqlstate 'HF001' then
      null;
  end;
end $$;


-- For every other language, also inside a transaction of yours. The arguments are those of the
-- function: select holdfast.enqueue('shop.orders:charge', args => '[7]', queue => 'vip').

create function holdfast.enqueue(
  type text,
  args jsonb default '[]',
  kwargs jsonb default '{}',
  queue text default 'default',
  priority int default 0,
  delay interval default null,
  run_at timestamptz default null,
  expires interval default null,
  max_tries int default null,
  idempotency_key text default null,
  concurrency_key text default null,
  tags text[] default '{}',
  requires text[] default '{}',
  tenant text default 'default',
  version text default '',
  user_id text default null
)
returns uuid
language plpgsql
as $$
#variable_conflict use_variable
declare
  new_id uuid := holdfast.new_id();
  found_lane int;
  payload bytea;
  answer record;
  sorted_tags text[] := array(select distinct t collate "C" from unnest(tags) t order by 1);
  sorted_requires text[] := array(select distinct r collate "C" from unnest(requires) r order by 1);
  name constant text := '^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}$';
  nesting text;
begin
  if type is null or type !~ '^[A-Za-z0-9_][A-Za-z0-9_.:/@<>+-]{0,199}$' then
    raise exception 'holdfast: type % is not a name such as shop.orders:charge', quote_nullable(type)
      using errcode = 'invalid_parameter_value';
  end if;
  if (queue ~ name and tenant ~ name and (version = '' or version ~ name)) is not true then
    raise exception 'holdfast: queue %, tenant % or version % is not a name',
      quote_nullable(queue), quote_nullable(tenant), quote_nullable(version)
      using errcode = 'invalid_parameter_value';
  end if;
  if exists (select from unnest(sorted_tags || sorted_requires) n where (n ~ name) is not true)
    or greatest(cardinality(sorted_tags), cardinality(sorted_requires)) > 16
  then
    raise exception 'holdfast: tags and requirements must be names, at most 16 of each'
      using errcode = 'invalid_parameter_value';
  end if;
  if priority is null or abs(priority) > 32000 or max_tries not between 1 and 32000 then
    raise exception 'holdfast: priority must be within 32000, max_tries from 1 to 32000'
      using errcode = 'invalid_parameter_value';
  end if;
  if delay not between interval '0' and interval '100 years'
    or expires not between interval '0' and interval '100 years'
    or run_at < timestamptz '1970-01-01 00:00Z'
    or run_at >= timestamptz '9001-01-01 00:00Z'
    or num_nonnulls(delay, run_at) = 2
  then
    raise exception 'holdfast: delay and expires must be from 0 to 100 years, run_at from 1970 to 9000 and instead of a delay'
      using errcode = 'invalid_parameter_value';
  end if;
  if delay > interval '0' and expires <= delay then
    raise exception 'holdfast: it would expire after %, before its delay of % is over; both count from now: give a longer expires',
      expires, delay using errcode = 'invalid_parameter_value';
  end if;
  if run_at > holdfast.clock() and run_at >= holdfast.clock() + expires then
    raise exception 'holdfast: it would expire after %, before its run_at of %; expires counts from now: give a longer one',
      expires, run_at using errcode = 'invalid_parameter_value';
  end if;
  if length(idempotency_key) not between 1 and 255 or length(concurrency_key) not between 1 and 255 then
    raise exception 'holdfast: a key must have 1 to 255 characters' using errcode = 'invalid_parameter_value';
  end if;
  if length(user_id) not between 1 and 200 or user_id ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'holdfast: user_id must have 1 to 200 characters, none of them a control character'
      using errcode = 'invalid_parameter_value';
  end if;
  if jsonb_typeof(args) is distinct from 'array' or jsonb_typeof(kwargs) is distinct from 'object' then
    raise exception 'holdfast: args must be a JSON array and kwargs a JSON object'
      using errcode = 'invalid_parameter_value';
  end if;
  payload := convert_to(jsonb_build_object('args', args, 'kwargs', kwargs)::text, 'UTF8');
  if length(payload) > 1048576 then
    raise exception 'holdfast: a payload of % bytes is over the limit of 1048576', length(payload)
      using errcode = 'invalid_parameter_value';
  end if;
  -- Only the brackets, all of one kind; each pass takes the innermost away.
  nesting := regexp_replace(convert_from(payload, 'UTF8'), '"([^"\\]|\\.)*"', '', 'g');
  nesting := translate(regexp_replace(nesting, '[^][{}]', '', 'g'), '{}', '[]');
  for level in 1 .. 100 loop
    exit when nesting = '';
    nesting := replace(nesting, '[]', '');
  end loop;
  if nesting <> '' then
    raise exception 'holdfast: a payload may nest at most 100 levels deep' using errcode = 'invalid_parameter_value';
  end if;

  select l.id into found_lane
  from holdfast.lane l
  where (l.type, l.queue, l.tenant, l.version, l.tags, l.requires)
      = (type, queue, tenant, version, sorted_tags, sorted_requires);

  -- A lane that nobody knows yet goes along on the row; whoever promotes it interns the lane.
  select * into answer
  from holdfast.accept(
    array[new_id],
    array[coalesce(found_lane, 0)],
    array[(-priority)::smallint],
    array[payload],
    array[max_tries::smallint],
    null,
    array[extract(epoch from delay)::float8],
    array[run_at],
    case when expires is not null then array[extract(epoch from expires)::float8] end,
    case when idempotency_key is not null then array[idempotency_key] end,
    array[tenant],
    array[substr(sha256(convert_to(type, 'UTF8') || decode('00', 'hex') || payload), 1, 16)],
    null,
    case when concurrency_key is not null then array[concurrency_key] end,
    case when user_id is not null then array[user_id] end,
    null
  );
  if true = any (answer.conflicts) then
    raise exception 'holdfast: idempotency key % belongs to task %, which has another type or payload',
      quote_literal(idempotency_key), answer.taken_by[1]
      using errcode = 'unique_violation';
  end if;
  if answer.taken_by[1] is not null then
    return answer.taken_by[1];
  end if;

  if found_lane is null then
    update holdfast.later l
    set parts = jsonb_build_object(
      'queue', queue, 'type', type, 'version', version,
      'tags', to_jsonb(sorted_tags), 'requires', to_jsonb(sorted_requires), 'tenant', tenant
    )
    where l.id = new_id;
  end if;
  perform pg_notify('holdfast_' || n.nspname, 'work:' || queue)  -- a hint to workers at rest, with the commit
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where c.oid = 'holdfast.task'::regclass;
  return new_id;
end $$;


create function holdfast.new_id()
returns uuid
language sql
as $$
  select encode(
    set_bit(
      set_bit(
        overlay(
          uuid_send(gen_random_uuid())
          placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
          from 1 for 6
        ),
        52, 1
      ),
      53, 1
    ),
    'hex'
  )::uuid
$$;
