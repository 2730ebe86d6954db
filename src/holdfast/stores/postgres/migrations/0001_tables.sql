-- A task is written once; its status is where its row stands: ready, later, blocked, lease, outcome.
-- The schema is written as "holdfast"; the migrator puts the chosen name in its place.

create table holdfast.migration (
  version int primary key,
  name text not null,
  fits int not null,                       -- releases that know at least this version keep working
  applied_at timestamptz not null
);

create function holdfast.clock()
returns timestamptz
language sql
as 'select clock_timestamp()';

-- The same at the start of the statement: COPY writes page by page only where no default changes
-- from row to row.
create function holdfast.statement_clock()
returns timestamptz
language sql
stable
as 'select statement_timestamp()';

-- What people name -----------------------------------------------------------------------------

create table holdfast.lane (
  id int generated always as identity primary key,
  queue text not null,
  type text not null,
  version text not null,
  tags text[] not null,
  requires text[] not null,
  tenant text not null,
  paused boolean not null,
  gates int[],                             -- the limits that it passes; null: none
  pool int not null,                       -- lanes of one type and tenant share their keys' limits
  unique (type, queue, tenant, version, tags, requires)
);

-- One row, moved by every transaction that alters lanes, so that a lane that commits late is seen.
create table holdfast.lane_change (
  moved bigint not null
);
insert into holdfast.lane_change values (0);

create table holdfast.queue (
  name text primary key,
  paused boolean not null default false
);

create table holdfast.gate (
  id int generated always as identity primary key,
  kind text not null check (kind in ('type', 'queue', 'tenant')),
  name text not null,
  max_running int,                         -- null: not limited (any more)
  running int not null default 0,          -- leases counted, less what lies in freed
  max_per_key int,
  rate_interval float8,                    -- seconds between two starts; null: no rate
  rate_burst int,
  rate_next timestamptz,                   -- when the bucket will be empty again
  said jsonb,                              -- the limit in force, as it was said; null: none
  declared jsonb,                          -- what the function's code says
  held boolean not null default false,     -- an operator's word, which goes before the code's
  unique (kind, name)
) with (fillfactor = 20);

-- A settle never touches a gate: it appends here, and the next claim adds it up under the gate's lock.
create table holdfast.freed (
  gate int not null,
  n int not null
);
create index freed_gate on holdfast.freed (gate);

create table holdfast.key_gate (
  pool int not null,
  key text not null,
  running int not null,                    -- in ready or under a lease, less what nudges have freed
  primary key (pool, key)
) with (fillfactor = 50);

create table holdfast.worker (
  id bigint primary key,                   -- random for each start of a process
  tenant text,                             -- whose key it came with; null: one of the house's own
  name text not null,
  host text not null,
  pid int not null,
  version text not null,
  queues text[] not null,
  tags text[] not null,
  capabilities text[] not null,
  tenants text[] not null,
  group_id text not null,
  types text[] not null,
  priority int not null,
  slots int not null,
  status text not null,
  tasks_acquired bigint not null,
  tasks_recovered bigint not null,
  poll_interval float8 not null,
  loop_lag float8 not null,
  lease float8 not null,
  drain_requested boolean not null default false,
  started_at timestamptz not null,
  last_heartbeat timestamptz not null
) with (fillfactor = 50);

-- What one process does for all: the next turn is free when next_at has come.
create table holdfast.chore (
  name text primary key,
  next_at timestamptz not null
) with (fillfactor = 50);

-- When functions run by the clock. A row for each way in which it is said: workers of two releases keep to their own.
create table holdfast.schedule (
  type text not null,
  cron text not null,
  timezone text not null,
  next_at timestamptz not null,             -- all before it are planned
  seen_at timestamptz not null,             -- by a worker that knows the function
  primary key (type, cron, timezone)
) with (fillfactor = 50);

-- Tasks ----------------------------------------------------------------------------------------

create table holdfast.task (
  id uuid primary key,                     -- UUIDv7, made by the client
  parent uuid,
  created_at timestamptz not null default holdfast.statement_clock(),
  run_at timestamptz,                      -- as asked for; null: at once
  expires_at timestamptz,
  lane int not null,
  np smallint not null,                    -- minus the priority: smaller is sooner
  max_tries smallint,                      -- null: the default of whoever claims or recovers it
  cancel_requested boolean not null default false,
  key text,
  concurrency_key text,
  user_id text,                            -- for whom it runs, in the words of the caller's application
  policy bytea,
  payload bytea not null
);
create index task_lane on holdfast.task (lane, id);
create index task_parent on holdfast.task (parent) where parent is not null;
create index task_user on holdfast.task (user_id, lane, id) where user_id is not null;

create table holdfast.task_key (
  tenant text not null,
  key text not null,
  id uuid not null,
  fingerprint bytea not null,
  lifetime float8,                         -- seconds after a good end; null: as long as the task is kept
  primary key (tenant, key)
);

create table holdfast.expiry (
  id uuid primary key,
  expires_at timestamptz not null
);
create index expiry_due on holdfast.expiry (expires_at);

-- Cache 1: a cached block of numbers would let one session overtake another.
create sequence holdfast.place;
create sequence holdfast.event;

create table holdfast.ready (
  seq bigint not null default nextval('holdfast.place'),
  id uuid not null,
  lane int not null,
  fence int not null default 0,
  np smallint not null,
  tries smallint not null default 0,
  alone boolean not null default false,
  child boolean not null default false,
  key text
);
create index ready_order on holdfast.ready (lane, np, seq);
create index ready_child on holdfast.ready (id) where child;

create table holdfast.later (
  id uuid primary key,
  run_at timestamptz not null,
  lane int not null,                       -- 0: not interned yet, see parts
  fence int not null,
  np smallint not null,
  tries smallint not null,
  alone boolean not null,
  child boolean not null,
  key text,
  waiting text,                            -- why a durable function was put down; null: delayed or to be retried
  wakes int not null default 1,
  watched uuid[],                          -- tasks that are not its children, and count as wakes once they have ended
  parts jsonb
);
create index later_due on holdfast.later (run_at);
create index later_waiting on holdfast.later (id) where waiting is not null;
create index later_watcher on holdfast.later (id) where watched <> '{}';
create index later_watching on holdfast.later using gin (watched) with (fastupdate = off) where watched is not null;
create index later_child on holdfast.later (id) where child;

create table holdfast.blocked (
  seq bigint not null default nextval('holdfast.place'),
  id uuid not null,
  pool int not null,
  lane int not null,
  fence int not null,
  np smallint not null,
  tries smallint not null,
  alone boolean not null,
  child boolean not null,
  key text not null
);
create index blocked_order on holdfast.blocked (pool, key, np, seq);
create index blocked_child on holdfast.blocked (id) where child;

create table holdfast.nudge (
  seq bigint generated always as identity,
  pool int not null,
  key text not null,
  freed int not null
);
create index nudge_order on holdfast.nudge (pool, seq);
create index nudge_key on holdfast.nudge (pool, key);

create table holdfast.lease (
  id uuid primary key,                     -- that nobody else holds it
  grant_id uuid not null,
  worker bigint not null,
  seq bigint not null,                     -- its place: a recovered task goes back to the head
  lease_timeout timestamptz not null,      -- never indexed: a renewal stays HOT
  started_at timestamptz not null,
  lane int not null,
  fence int not null,
  np smallint not null,
  tries smallint not null,
  alone boolean not null,
  child boolean not null,
  gates int[],                             -- the gates that counted this lease; null: none did
  key text
) with (fillfactor = 50);

create table holdfast.outcome (
  id uuid primary key,
  grant_id uuid,
  worker bigint,
  seq bigint not null default nextval('holdfast.event'),
  started_at timestamptz,
  finished_at timestamptz not null,
  fence int not null,
  tries smallint not null,
  state text not null check (state in ('done', 'failed', 'cancelled')),
  ended_by text not null,                  -- holder, recovery, operator
  result bytea,
  error_type text,
  error text,
  detail bytea
);
create index outcome_done on holdfast.outcome (seq) where state = 'done';
create index outcome_undone on holdfast.outcome (state, seq) where state <> 'done';

-- Attempts that did not end in the outcome row.
create table holdfast.attempt (
  id uuid not null,
  grant_id uuid,
  worker bigint,
  seq bigint not null default nextval('holdfast.event'),
  started_at timestamptz,
  ended_at timestamptz not null,
  fence int not null,
  tries smallint not null,                 -- charged after it
  ended text not null,
  ended_by text not null,
  result bytea,
  error_type text,
  error text,
  detail bytea
);
create index attempt_of on holdfast.attempt (id, fence);
create index attempt_life on holdfast.attempt (id, fence) where ended in ('failed', 'cancelled');
create index attempt_cost on holdfast.attempt (id, fence, seq)
  where ended in ('retry', 'lost', 'snoozed', 'failed', 'cancelled');
create index attempt_seq on holdfast.attempt (seq);
create index attempt_lost on holdfast.attempt (worker) where ended = 'lost';
create index attempt_lost_last on holdfast.attempt (seq) where ended = 'lost';

-- Late writes that were refused: the only row that a stale lease can leave.
create table holdfast.refusal (
  seq bigint primary key default nextval('holdfast.event'),
  id uuid not null,
  grant_id uuid not null,
  fence int not null,
  verb text not null,
  at timestamptz not null
);
create index refusal_of on holdfast.refusal (id);

-- Inside a task --------------------------------------------------------------------------------

create table holdfast.progress (
  id uuid primary key,
  percent real not null,
  message text,
  saved bytea,
  updated_at timestamptz not null
) with (fillfactor = 50);

create table holdfast.step (
  id uuid not null,
  position int not null,
  kind text not null,
  name text not null,
  value bytea,
  fence int not null,
  recorded_at timestamptz not null,
  primary key (id, position)
);

create table holdfast.signal (
  signal uuid primary key,                 -- made by the sender: sent twice is sent once
  id uuid not null,
  seq bigint generated always as identity,
  name text not null,
  payload bytea not null,
  sent_at timestamptz not null,
  consumed boolean not null default false
);
create index signal_of on holdfast.signal (id, consumed, name, seq);

create table holdfast.wake (
  seq bigint generated always as identity primary key,
  id uuid not null,
  urgent boolean not null                  -- moves its task at once, whatever else it waits for
);
create index wake_of on holdfast.wake (id);
