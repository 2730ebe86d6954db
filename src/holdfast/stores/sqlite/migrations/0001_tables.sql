-- A task is written once; its status is where its row stands: ready, later, blocked, lease, outcome.
-- Ids are the 16 bytes of a UUID, instants whole microseconds of wall time, lists JSON, flags 0 and 1.

create table migration (
  version integer primary key,
  name text not null,
  fits integer not null,                   -- releases that know at least this version keep working
  applied_at integer not null
) strict;

-- Rows, not sequences: whoever takes numbers holds the writer, so they come in the order of the commits.
create table counter (
  name text primary key,
  value integer not null
) strict, without rowid;
insert into counter values ('place', 0), ('event', 0);

-- What people name -----------------------------------------------------------------------------

create table lane (
  id integer primary key autoincrement,    -- remembered by clients: a number must never come again
  queue text not null,
  type text not null,
  version text not null,
  tags text not null,
  requires text not null,
  tenant text not null,
  paused integer not null,
  gates text,                              -- the limits that it passes; null: none
  pool integer not null,                   -- lanes of one type and tenant share their keys' limits
  unique (type, queue, tenant, version, tags, requires)
) strict;
create index lane_queue on lane (queue);

-- One row, moved by every transaction that alters lanes.
create table lane_change (
  moved integer not null
) strict;
insert into lane_change values (0);

create table queue (
  name text primary key,
  paused integer not null default 0
) strict, without rowid;

create table gate (
  id integer primary key,
  kind text not null check (kind in ('type', 'queue', 'tenant')),
  name text not null,
  max_running integer,                     -- null: not limited (any more)
  running integer not null default 0,      -- leases counted, less what lies in freed
  max_per_key integer,
  rate_interval real,                      -- seconds between two starts; null: no rate
  rate_burst integer,
  rate_next integer,                       -- when the bucket will be empty again
  said text,                               -- the limit in force, as it was said; null: none
  declared text,                           -- what the function's code says
  held integer not null default 0,         -- an operator's word, which goes before the code's
  unique (kind, name)
) strict;

-- A settle never touches a gate: it appends here, and the next claim adds it up.
create table freed (
  gate integer not null,
  n integer not null
) strict;
create index freed_gate on freed (gate);

create table key_gate (
  pool integer not null,
  key text not null,
  running integer not null,                -- in ready or under a lease, less what nudges have freed
  primary key (pool, key)
) strict, without rowid;

create table worker (
  id integer primary key,                  -- random for each start of a process
  tenant text,                             -- whose key it came with; null: one of the house's own
  name text not null,
  host text not null,
  pid integer not null,
  version text not null,
  queues text not null,
  tags text not null,
  capabilities text not null,
  tenants text not null,
  group_id text not null,
  types text not null,
  priority integer not null,
  slots integer not null,
  status text not null,
  tasks_acquired integer not null,
  tasks_recovered integer not null,
  poll_interval real not null,
  loop_lag real not null,
  lease real not null,
  drain_requested integer not null default 0,
  started_at integer not null,
  last_heartbeat integer not null
) strict;

-- What one process does for all: the next turn is free when next_at has come.
create table chore (
  name text primary key,
  next_at integer not null
) strict, without rowid;

-- When functions run by the clock. A row for each way in which it is said: workers of two releases keep to their own.
create table schedule (
  type text not null,
  cron text not null,
  timezone text not null,
  next_at integer not null,                 -- all before it are planned
  seen_at integer not null,                 -- by a worker that knows the function
  primary key (type, cron, timezone)
) strict, without rowid;

-- Tasks ----------------------------------------------------------------------------------------

create table task (
  id blob primary key,                     -- UUIDv7, made by the client
  parent blob,
  created_at integer not null,
  run_at integer,                          -- as asked for; null: at once
  expires_at integer,
  lane integer not null,
  np integer not null,                     -- minus the priority: smaller is sooner
  max_tries integer,                       -- null: the default of whoever claims or recovers it
  cancel_requested integer not null default 0,
  key text,
  concurrency_key text,
  user_id text,                            -- for whom it runs, in the words of the caller's application
  policy blob,
  payload blob not null
) strict, without rowid;
create index task_lane on task (lane, id);
create index task_parent on task (parent) where parent is not null;
create index task_user on task (user_id, lane, id) where user_id is not null;

create table task_key (
  tenant text not null,
  key text not null,
  id blob not null,
  fingerprint blob not null,
  lifetime real,                           -- seconds after a good end; null: as long as the task is kept
  primary key (tenant, key)
) strict, without rowid;

create table expiry (
  id blob primary key,
  expires_at integer not null
) strict, without rowid;
create index expiry_due on expiry (expires_at);

create table ready (
  lane integer not null,
  np integer not null,
  seq integer not null,
  id blob not null,
  fence integer not null,
  tries integer not null,
  alone integer not null,
  child integer not null,
  key text,
  primary key (lane, np, seq)
) strict, without rowid;
create index ready_child on ready (id) where child;

create table later (
  id blob primary key,
  run_at integer not null,                 -- 9223372036854775807: no timer
  lane integer not null,
  fence integer not null,
  np integer not null,
  tries integer not null,
  alone integer not null,
  child integer not null,
  key text,
  waiting text,                            -- why a durable function was put down; null: delayed or to be retried
  wakes integer not null default 1,
  watched text                             -- tasks that are not its children, and count as wakes once they have ended: JSON
) strict, without rowid;
create index later_due on later (run_at);
create index later_waiting on later (id) where waiting is not null;
create index later_watcher on later (id) where watched is not null;
create index later_child on later (id) where child;

create table watch (                       -- an index of what is watched, which triggers keep
  task blob not null,
  watcher blob not null,
  primary key (task, watcher)
) strict, without rowid;
create trigger later_watches after insert on later when new.watched is not null begin
  insert into watch (task, watcher) select distinct unhex(a.value), new.id from json_each(new.watched) a;
end;
create trigger later_watched after delete on later when old.watched is not null begin
  delete from watch where watcher = old.id and task in (select unhex(a.value) from json_each(old.watched) a);
end;

create table blocked (
  pool integer not null,
  key text not null,
  np integer not null,
  seq integer not null,
  id blob not null,
  lane integer not null,
  fence integer not null,
  tries integer not null,
  alone integer not null,
  child integer not null,
  primary key (pool, key, np, seq)
) strict, without rowid;
create index blocked_child on blocked (id) where child;

create table nudge (
  pool integer not null,
  key text not null,
  freed integer not null
) strict;
create index nudge_order on nudge (pool);  -- and its rowid, which is the order of arrival
create index nudge_key on nudge (pool, key);

-- The end of a lease is judged by boot time, which nobody can set: every process is its own clock here.
create table lease (
  id blob primary key,                     -- that nobody else holds it
  grant_id blob not null,
  worker integer not null,
  seq integer not null,                    -- its place: a recovered task goes back to the head
  lease_timeout integer not null,          -- wall time, for people
  boot integer not null,                   -- which boot boot_end belongs to; in another one it has lapsed
  boot_end integer not null,
  started_at integer not null,
  lane integer not null,
  fence integer not null,
  np integer not null,
  tries integer not null,
  alone integer not null,
  child integer not null,
  gates text,                              -- the gates that counted this lease; null: none did
  key text
) strict, without rowid;
create index lease_special on lease (id) where gates is not null or child or key is not null;

create table outcome (
  id blob primary key,
  grant_id blob,
  worker integer,
  seq integer not null,
  started_at integer,
  finished_at integer not null,
  fence integer not null,
  tries integer not null,
  -- not "in": that builds a list anew for every row
  state text not null check (state = 'done' or state = 'failed' or state = 'cancelled'),
  ended_by text not null,                  -- holder, recovery, operator
  result blob,
  error_type text,
  error text,
  detail blob
) strict, without rowid;
create index outcome_seq on outcome (seq, state);
create index outcome_undone on outcome (state, seq) where state <> 'done';
-- A cleanup looks at what is old and at nothing else.
create index outcome_ended on outcome (finished_at) where state <> 'failed';
create index outcome_failed on outcome (finished_at) where state = 'failed';

-- Attempts that did not end in the outcome row.
create table attempt (
  seq integer primary key,
  id blob not null,
  grant_id blob,
  worker integer,
  started_at integer,
  ended_at integer not null,
  fence integer not null,
  tries integer not null,                  -- charged after it
  ended text not null,
  ended_by text not null,
  result blob,
  error_type text,
  error text,
  detail blob
) strict;
create index attempt_of on attempt (id, fence);
create index attempt_life on attempt (id, fence) where ended in ('failed', 'cancelled');
create index attempt_cost on attempt (id, fence) where ended in ('retry', 'lost', 'snoozed', 'failed', 'cancelled');
create index attempt_lost on attempt (worker) where ended = 'lost';
create index attempt_lost_last on attempt (seq) where ended = 'lost';

-- Late writes that were refused: the only row that a stale lease can leave.
create table refusal (
  seq integer primary key,
  id blob not null,
  grant_id blob not null,
  fence integer not null,
  verb text not null,
  at integer not null
) strict;
create index refusal_of on refusal (id);

-- Inside a task --------------------------------------------------------------------------------

create table progress (
  id blob primary key,
  percent real not null,
  message text,
  saved blob,
  updated_at integer not null
) strict, without rowid;

create table step (
  id blob not null,
  position integer not null,
  kind text not null,
  name text not null,
  value blob,
  fence integer not null,
  recorded_at integer not null,
  primary key (id, position)
) strict, without rowid;

create table signal (
  seq integer primary key autoincrement,
  signal blob not null unique,             -- made by the sender: sent twice is sent once
  id blob not null,
  name text not null,
  payload blob not null,
  sent_at integer not null,
  consumed integer not null default 0
) strict;
create index signal_of on signal (id, consumed, name, seq);

-- Autoincrement: a number that an attempt has read must never come again.
create table wake (
  seq integer primary key autoincrement,
  id blob not null,
  urgent integer not null                  -- moves its task at once, whatever else it waits for
) strict;
create index wake_of on wake (id);
