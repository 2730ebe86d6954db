-- A second wall between tenants, for a role that is not the owner: whatever a statement of it forgets to ask,
-- it sees and changes rows of one tenant only. The owner passes by, and pays nothing.

-- Whose transaction this is; '*': all tenants', said on purpose; null: nobody's, who sees nothing. An empty
-- text is what a session has after a transaction that said it. In two parts: the migrator puts the schema's
-- name wherever it stands before a dot.

create function holdfast.tenant()
returns text
language sql
stable
as $$
  select nullif(current_setting('holdfast' || '.tenant', true), '')
$$;


create function holdfast.sees(p_tenant text)
returns boolean
language sql
stable
as $$
  select coalesce(holdfast.tenant() in ('*', p_tenant), false)
$$;


-- As the owner, who may look. A body that is read now depends on nobody's search path later.

create function holdfast.my_lanes()
returns int[]
language sql
stable
security definer
begin atomic
  select coalesce(array_agg(l.id), '{}')
  from holdfast.lane l
  where holdfast.sees(l.tenant);
end;


-- What belongs to no task (any more) is nobody else's: so that what goes with a task can be forgotten after it.

create function holdfast.is_mine(p_id uuid)
returns boolean
language sql
stable
security definer
set enable_seqscan = off                   -- asked for every row: whatever the statistics say, by the index
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
begin atomic
  select coalesce(
    (
      select holdfast.sees(l.tenant)
      from holdfast.task t
      join holdfast.lane l on l.id = t.lane
      where t.id = p_id
    ),
    holdfast.tenant() is not null
  );
end;


-- Which rows a walled role sees, by table; null: all of them, since they tell of no tenant's tasks. What it
-- may do there. A wake may be of a parent that belongs to another.

create function holdfast.wall_rules(out name text, out sees text, out writes text, out may text)
returns setof record
language sql
stable
as $$
  select
    a.name,
    case a.by
      when 'tenant' then 'holdfast.sees(tenant)'
      when 'scope' then 'holdfast.sees(split_part(scope, '' '', 1))'
      when 'lane' then lane.one
      when 'task' then lane.one
      -- its parts come right after it: see enqueue
      when 'later' then
        lane.one || ' or (lane = 0 and holdfast.sees(coalesce(parts ->> ''tenant'', holdfast.tenant())))'
      when 'pool' then '(select holdfast.tenant()) = ''*'' or pool = any ((select holdfast.my_lanes())::int[])'
      when 'id' then '(select holdfast.tenant()) = ''*'' or holdfast.is_mine(id)'
      when 'wake' then '(select holdfast.tenant()) = ''*'' or holdfast.is_mine(id)'
    end,
    case a.by
      when 'wake' then 'holdfast.tenant() is not null'
      when 'task' then lane.one || ' or (lane = 0 and holdfast.tenant() is not null)'
    end,
    a.may
  from (
    values
      ('lane', 'tenant', 'select, insert, update'),
      ('task_key', 'tenant', 'select, insert, update, delete'),
      ('api_key', 'tenant', 'select, insert, update'),
      ('audit', 'tenant', 'select, insert'),
      ('operation', 'tenant', 'select, insert, update'),
      ('rollup', 'tenant', 'select, insert, update'),
      ('request', 'scope', 'select, insert, update, delete'),
      ('task', 'task', 'select, insert, update, delete'),
      ('ready', 'lane', 'select, insert, update, delete'),
      ('later', 'later', 'select, insert, update, delete'),
      ('blocked', 'lane', 'select, insert, update, delete'),
      ('lease', 'lane', 'select, insert, update, delete'),
      ('key_gate', 'pool', 'select, insert, update, delete'),
      ('nudge', 'pool', 'select, insert, delete'),
      ('expiry', 'id', 'select, insert, update, delete'),
      ('outcome', 'id', 'select, insert, update, delete'),
      ('attempt', 'id', 'select, insert, update, delete'),
      ('refusal', 'id', 'select, insert, delete'),
      ('progress', 'id', 'select, insert, update, delete'),
      ('step', 'id', 'select, insert, update, delete'),
      ('signal', 'id', 'select, insert, update, delete'),
      ('task_log', 'id', 'select, insert, update, delete'),
      ('wake', 'wake', 'select, insert, delete'),
      ('queue', null, 'select, insert, update'),
      ('gate', null, 'select, insert, update'),
      ('freed', null, 'select, insert, delete'),
      ('lane_change', null, 'select, update'),
      ('worker', null, 'select, insert, update'),
      ('chore', null, 'select, insert, update'),
      ('schedule', null, 'select, insert, update'),
      ('reached', null, 'select, insert, update'),
      ('migration', null, 'select')
  ) as a (name, by, may)
  cross join (
    values ('(select holdfast.tenant()) = ''*'' or lane = any ((select holdfast.my_lanes())::int[])')
  ) as lane (one)
$$;


-- Again and again, if you like; after a migration it is done anew. It locks every table for a moment.

create function holdfast.wall(p_role text)
returns void
language plpgsql
as $$
declare
  home constant text := (
    select quote_ident(n.nspname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = 'holdfast.task'::regclass
  );
  rule record;
  place text;
begin
  if not exists (select from pg_roles r where r.rolname = p_role) then
    raise exception 'holdfast: there is no role %; create it first: create role % login', p_role, quote_ident(p_role)
      using errcode = 'undefined_object';
  end if;
  if exists (
    select from pg_roles r
    where r.rolname = p_role
      and (
        r.rolsuper
        or r.rolbypassrls
        or pg_has_role(r.oid, (select c.relowner from pg_class c where c.oid = 'holdfast.task'::regclass), 'usage')
      )
  ) then
    raise exception 'holdfast: no wall holds role %: it is a superuser, has bypassrls, or owns the tables', p_role
      using errcode = 'invalid_grant_operation', hint = 'give the API a role of its own: create role holdfast_api login';
  end if;

  execute format('grant usage on schema %s to %I', home, p_role);
  execute format('grant usage on all sequences in schema %s to %I', home, p_role);
  for place in select format('%s.%I', home, v.viewname) from pg_views v where quote_ident(v.schemaname) = home loop
    execute format('grant select on %s to %I', place, p_role);
  end loop;
  for rule in select * from holdfast.wall_rules() loop
    place := format('%s.%I', home, rule.name);
    execute format('grant %s on %s to %I', rule.may, place, p_role);
    continue when rule.sees is null;
    execute format('alter table %s enable row level security', place);
    execute format('drop policy if exists everyone on %s', place);
    execute format('create policy everyone on %s using (true)', place);
    execute format('drop policy if exists %I on %s', 'wall of ' || p_role, place);
    execute format(
      'create policy %I on %s as restrictive to %I using (%s) with check (%s)',
      'wall of ' || p_role, place, p_role, rule.sees, coalesce(rule.writes, rule.sees)
    );
  end loop;
end $$;


create function holdfast.rebuild_walls()
returns void
language plpgsql
as $$
declare
  walled text;
begin
  for walled in
    select distinct r.rolname
    from pg_policy p
    cross join lateral unnest(p.polroles) as o (id)
    join pg_roles r on r.oid = o.id
    where p.polrelid = 'holdfast.task'::regclass and not p.polpermissive
  loop
    perform holdfast.wall(walled);
  end loop;
end $$;
