-- The public contract for people with a SQL prompt. Names are those of the interface.

create view holdfast.tasks with (security_invoker = true) as
select
  t.id,
  coalesce(l.type, w.parts ->> 'type') as type,
  case
    when o.id is not null then o.state
    when e.id is not null then 'running'
    when w.waiting is not null then 'waiting'
    else 'pending'
  end as status,
  coalesce(l.queue, w.parts ->> 'queue') as queue,
  -t.np as priority,
  coalesce(l.tenant, w.parts ->> 'tenant') as tenant_id,
  coalesce(l.version, w.parts ->> 'version') as version,
  coalesce(l.tags, array(select jsonb_array_elements_text(w.parts -> 'tags'))) as tags,
  coalesce(l.requires, array(select jsonb_array_elements_text(w.parts -> 'requires'))) as requires,
  case when e.id is not null then coalesce(k.name, e.worker::text) end as locked_by,
  e.lease_timeout,
  coalesce(o.tries, e.tries, w.tries, a.tries, 0)::int as try_count,
  t.max_tries::int as max_tries,
  coalesce(o.error, a.error) as last_error,
  coalesce(o.error_type, a.error_type) as last_error_type,
  p.percent as progress,
  p.message as progress_message,
  t.cancel_requested,
  t.key as idempotency_key,
  t.concurrency_key,
  t.user_id,
  t.parent,
  w.waiting as reason,
  t.created_at,
  case when w.run_at = 'infinity' then null else coalesce(w.run_at, t.run_at, t.created_at) end as run_at,
  t.expires_at,
  coalesce(e.started_at, o.started_at) as started_at,
  o.finished_at
from holdfast.task t
left join holdfast.lane l on l.id = t.lane
left join holdfast.outcome o on o.id = t.id
left join holdfast.lease e on e.id = t.id
left join holdfast.later w on w.id = t.id
left join holdfast.worker k on k.id = e.worker
left join holdfast.progress p on p.id = t.id
left join lateral (
  select x.tries, x.error, x.error_type
  from holdfast.attempt x
  where x.id = t.id
  order by x.fence desc, x.seq desc
  limit 1
) a on true;

create view holdfast.processing_jobs with (security_invoker = true) as
select
  t.id,
  coalesce(t.idempotency_key, t.id::text) as job_id,
  case
    when t.status = 'running' then 'processing'
    when t.status in ('pending', 'waiting') and t.try_count > 0 then 'retry'
    when t.status in ('pending', 'waiting') then 'pending'
    when t.status = 'cancelled' then 'failed'
    else t.status
  end as status,
  t.try_count as attempts,
  t.locked_by,
  t.lease_timeout as locked_until,
  t.last_error,
  greatest(
    t.created_at, t.started_at, t.finished_at,
    (select max(a.ended_at) from holdfast.attempt a where a.id = t.id)
  ) as updated_at,
  coalesce(t.progress, 0) as progress
from holdfast.tasks t;

create view holdfast.workers with (security_invoker = true) as
select
  w.id,
  w.tenant as tenant_id,
  w.name,
  w.host as hostname,
  case
    when w.status not in ('stale', 'stopped') and w.last_heartbeat < holdfast.clock() - interval '90 seconds'
    then 'stale'
    else w.status
  end as status,
  w.capabilities,
  w.queues,
  w.tags,
  w.tenants,
  w.group_id,
  w.slots as max_concurrent,
  coalesce(h.held, 0) as active,
  w.version,
  w.started_at,
  w.last_heartbeat
from holdfast.worker w
left join (
  select e.worker, count(*)::int as held
  from holdfast.lease e
  group by e.worker
) h on h.worker = w.id;

create view holdfast.active_leases with (security_invoker = true) as
select
  e.id as task_id,
  l.type,
  l.queue,
  coalesce(k.name, e.worker::text) as locked_by,
  e.worker as worker_id,
  e.fence,
  e.tries::int as try_count,
  e.started_at,
  e.lease_timeout,
  e.lease_timeout - holdfast.clock() as time_left
from holdfast.lease e
join holdfast.lane l on l.id = e.lane
left join holdfast.worker k on k.id = e.worker
where e.lease_timeout >= holdfast.clock();

create view holdfast.stale_leases with (security_invoker = true) as
select
  e.id as task_id,
  l.type,
  l.queue,
  coalesce(k.name, e.worker::text) as locked_by,
  e.worker as worker_id,
  e.fence,
  e.tries::int as try_count,
  e.started_at,
  e.lease_timeout,
  holdfast.clock() - e.lease_timeout as late_by
from holdfast.lease e
join holdfast.lane l on l.id = e.lane
left join holdfast.worker k on k.id = e.worker
where e.lease_timeout < holdfast.clock();

create view holdfast.worker_utilization with (security_invoker = true) as
select
  w.id,
  w.name,
  case
    when w.status not in ('stale', 'stopped') and w.last_heartbeat < holdfast.clock() - interval '90 seconds'
    then 'stale'
    else w.status
  end as status,
  w.slots as max_concurrent,
  coalesce(h.held, 0) as active,
  round(coalesce(h.held, 0) / greatest(w.slots, 1)::numeric, 3) as utilization,
  w.last_heartbeat
from holdfast.worker w
left join (
  select e.worker, count(*)::int as held
  from holdfast.lease e
  group by e.worker
) h on h.worker = w.id
where w.status <> 'stopped';

create view holdfast.queue_load with (security_invoker = true) as
select
  q.name as queue,
  q.paused,
  (select count(*) from holdfast.lane l join holdfast.ready r on r.lane = l.id where l.queue = q.name) as ready,
  (select count(*) from holdfast.lane l join holdfast.later w on w.lane = l.id where l.queue = q.name and w.waiting is null) as scheduled,
  (select count(*) from holdfast.lane l join holdfast.later w on w.lane = l.id where l.queue = q.name and w.waiting is not null) as waiting,
  (select count(*) from holdfast.lane l join holdfast.blocked b on b.lane = l.id where l.queue = q.name) as blocked,
  (select count(*) from holdfast.lane l join holdfast.lease e on e.lane = l.id where l.queue = q.name) as running
from holdfast.queue q;

create view holdfast.dead_letters with (security_invoker = true) as
select
  o.id,
  l.type,
  l.queue,
  l.tenant as tenant_id,
  o.tries::int as try_count,
  o.error_type,
  o.error as last_error,
  o.ended_by,
  t.created_at,
  o.finished_at
from holdfast.outcome o
join holdfast.task t on t.id = o.id
join holdfast.lane l on l.id = t.lane
where o.state = 'failed';


-- A function, so that it can say jit = off: compiling it took a hundred times as long as running it.

create function holdfast.queue_loads(p_cap int, p_tenant text)
returns table (
  queue text, paused boolean, ready bigint, scheduled bigint, blocked bigint, waiting bigint, running bigint,
  expired bigint, failed bigint, oldest_age float8, capped boolean
)
language plpgsql
stable
set jit = off
as $$
#variable_conflict use_column
declare
  scan int := 10 * p_cap;                  -- rows that one pass looks at, whatever queue they are of
  most_failed int := case when p_tenant is null then p_cap else scan end;
  stamp timestamptz := holdfast.clock();
begin
  return query
  with in_lane as materialized (
    select
      l.queue, count(*) filter (where x.kind = 'ready') as ready, count(*) filter (where x.kind = 'blocked') as blocked,
      count(*) filter (where x.kind = 'scheduled') as scheduled, count(*) filter (where x.kind = 'waiting') as waiting,
      count(*) filter (where x.kind = 'failed') as failed
    from (
      (
        select l.id as lane, 'ready' as kind
        from holdfast.lane l
        cross join lateral (select from holdfast.ready r where r.lane = l.id limit p_cap) r
        where p_tenant is null or l.tenant = p_tenant
        limit scan
      )
      union all
      (select w.lane, case when w.waiting is null then 'scheduled' else 'waiting' end from holdfast.later w limit scan)
      union all
      (select b.lane, 'blocked' from holdfast.blocked b limit scan)
      union all
      select t.lane, 'failed'
      from (select o.id from holdfast.outcome o where o.state = 'failed' order by o.seq desc limit most_failed) o
      join holdfast.task t on t.id = any (array[o.id])
    ) x
    join holdfast.lane l on l.id = x.lane
    where p_tenant is null or l.tenant = p_tenant
    group by l.queue
  ), held as materialized (
    select l.queue, count(*) as running, count(*) filter (where e.lease_timeout < stamp) as expired
    from holdfast.lease e
    join holdfast.lane l on l.id = e.lane
    where p_tenant is null or l.tenant = p_tenant
    group by l.queue
  ), oldest as materialized (
    select l.queue, extract(epoch from stamp - min(t.created_at))::float8 as age
    from holdfast.lane l
    cross join lateral (
      select r.id from holdfast.ready r where r.lane = l.id order by r.np, r.seq limit 1
    ) h
    join holdfast.task t on t.id = any (array[h.id])
    where p_tenant is null or l.tenant = p_tenant
    group by l.queue
  ), whole as materialized (
    select
      (select sum(i.ready) from in_lane i) >= scan
      or (select count(*) from (select from holdfast.later limit scan) x) = scan
      or (select count(*) from (select from holdfast.blocked limit scan) x) = scan
      or (select count(*) from (select from holdfast.outcome o where o.state = 'failed' limit most_failed) x) = most_failed as cut
  )
  select
    q.name, q.paused,
    least(coalesce(i.ready, 0), p_cap), least(coalesce(i.scheduled, 0), p_cap),
    least(coalesce(i.blocked, 0), p_cap), least(coalesce(i.waiting, 0), p_cap),
    coalesce(h.running, 0), coalesce(h.expired, 0), least(coalesce(i.failed, 0), p_cap), o.age,
    w.cut or p_cap <= greatest(i.ready, i.scheduled, i.blocked, i.waiting)
  from holdfast.queue q
  cross join whole w
  left join in_lane i on i.queue = q.name
  left join held h on h.queue = q.name
  left join oldest o on o.queue = q.name
  where p_tenant is null
    or exists (select from holdfast.lane l where l.queue = q.name and l.tenant = p_tenant)
  order by q.name;
end $$;


-- Where one task stands. In ready and blocked it is found only by walking its line, so no further than
-- needed: p_cap in its lane; ten times that behind its key, and whose key has more waits there.

create function holdfast.standing(p_id uuid, p_cap int)
returns table (
  place text, queue text, type text, version text, tags text[], requires text[], tenant text, key text, pool int,
  due float8, paused boolean, ahead int, cancel_requested boolean, reason text, holder text, seconds_left float8
)
language plpgsql
stable                                     -- one snapshot for all statements: it cannot move in between
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
  found_lane int;
  line uuid[];
begin
  select
    case
      when o.id is not null then 'outcome'
      when e.id is not null then 'lease'
      when w.waiting is not null then 'waiting'
      when w.id is not null then 'later'
    end,
    coalesce(l.queue, w.parts ->> 'queue'),
    coalesce(l.type, w.parts ->> 'type'),
    coalesce(l.version, w.parts ->> 'version'),
    coalesce(l.tags, array(select jsonb_array_elements_text(w.parts -> 'tags'))),
    coalesce(l.requires, array(select jsonb_array_elements_text(w.parts -> 'requires'))),
    coalesce(l.tenant, w.parts ->> 'tenant'),
    t.concurrency_key,
    l.pool,
    case
      when w.run_at > stamp and w.run_at < 'infinity'
      then extract(epoch from w.run_at - stamp)::float8
    end,
    exists (
      select from holdfast.queue q
      where q.name = coalesce(l.queue, w.parts ->> 'queue') and q.paused
    ),
    t.cancel_requested,
    w.waiting,
    case when e.id is not null then coalesce(k.name, e.worker::text) end,
    extract(epoch from e.lease_timeout - stamp)::float8,
    t.lane
  into
    place, queue, type, version, tags, requires, tenant, key, pool, due, paused,
    cancel_requested, reason, holder, seconds_left, found_lane
  from holdfast.task t
  left join holdfast.lane l on l.id = t.lane
  left join holdfast.outcome o on o.id = t.id
  left join holdfast.lease e on e.id = t.id
  left join holdfast.later w on w.id = t.id
  left join holdfast.worker k on k.id = e.worker
  where t.id = p_id;
  if not found then
    return;
  end if;

  if place is null then
    line := array(
      select r.id
      from holdfast.ready r
      where r.lane = found_lane
      order by r.np, r.seq
      limit p_cap
    );
    ahead := array_position(line, p_id) - 1;
    if ahead is null and key is not null then
      line := array(
        select b.id
        from holdfast.blocked b
        where b.pool = standing.pool and b.key = standing.key
        order by b.np, b.seq
        limit 10 * p_cap
      );
      ahead := least(array_position(line, p_id) - 1, p_cap);
      if array_position(line, p_id) is not null or cardinality(line) = 10 * p_cap then
        place := 'blocked';
      end if;
    end if;
    place := coalesce(place, 'ready');
    ahead := coalesce(ahead, p_cap);
  end if;
  return next;
end $$;


-- The limits that a task passes, how much of each is taken, and by whom where it is full. The counter of
-- a gate that limits no number is not told: leases older than its rate are not in it.

create function holdfast.standing_gates(
  p_id uuid, p_type text, p_queue text, p_tenant text, p_pool int, p_key text, p_most int
)
returns table (
  kind text, name text, max_running int, running int, max_per_key int, running_of_key int, rate_opens float8,
  occupants uuid[]
)
language plpgsql
stable
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
  of_key int;
begin
  of_key := greatest(
    coalesce((select g.running from holdfast.key_gate g where g.pool = p_pool and g.key = p_key), 0)
    - coalesce((select sum(n.freed) from holdfast.nudge n where n.pool = p_pool and n.key = p_key), 0),
    0
  );
  return query
  with passed as materialized (
    select
      g.id, g.kind, g.name, g.max_running,
      case
        when g.max_running is not null
        then g.running - coalesce((select sum(f.n) from holdfast.freed f where f.gate = g.id), 0)::int
      end as running,
      g.max_per_key,
      case when g.max_per_key is not null and p_key is not null then of_key end as of_key,
      -- nobody waits for more than one start: a rate that is further ahead is put right by the next claim
      case
        when g.rate_next is not null
        then least(
          extract(epoch from g.rate_next - stamp)::float8 - (g.rate_burst - 1) * g.rate_interval, g.rate_interval
        )
      end as opens
    from holdfast.gate g
    where (g.kind, g.name) in (('type', p_type), ('queue', p_queue), ('tenant', p_tenant))
      and (g.max_running is not null or g.max_per_key is not null or g.rate_interval is not null)
  )
  select
    p.kind, p.name, p.max_running, p.running, p.max_per_key, p.of_key,
    case when p.opens > 0 then p.opens end,
    array(
      select e.id
      from holdfast.lease e
      where (p.running >= p.max_running or p.of_key >= p.max_per_key)
        and e.id <> p_id
        and (
          (p.running >= p.max_running and p.id = any (e.gates))
          or (
            p.of_key >= p.max_per_key
            and e.key = p_key
            and exists (select from holdfast.lane l where l.id = e.lane and l.pool = p_pool)
          )
        )
      order by e.started_at, e.id
      limit p_most
    )
  from passed p
  order by p.kind desc;                    -- the function's, the tenant's, the queue's
end $$;
