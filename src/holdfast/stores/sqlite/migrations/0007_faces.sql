-- What the faces keep: keys, the audit log, answered requests, logs, bulk work, and numbers per minute.
-- Nothing here is on the way of a task: claim, settle and enqueue neither read nor write it.

-- How far somebody has come who follows a sequence, or counts; nobody: nowhere yet.
create table reached (
  name text primary key,
  seq integer not null
) strict, without rowid;

create table api_key (
  id text primary key,
  name text not null,
  tenant text,                             -- null: of all tenants
  scopes text not null,
  digest blob not null,                    -- never the secret
  created_at integer not null,
  created_by text not null,
  expires_at integer,
  last_used_at integer,
  revoked_at integer
) strict, without rowid;

-- Autoincrement: a number that was forgotten never comes again.
create table audit (
  seq integer primary key autoincrement,
  at integer not null,
  actor text not null,
  tenant text,
  verb text not null,
  subject text not null,
  detail text not null
) strict;
create index audit_tenant on audit (tenant, seq);

-- The audit log only grows. Cleanup first says how far it forgets, and then may.
create trigger audit_unchanged before update on audit
begin
  select raise(abort, 'the audit log only grows: update is refused; cleanup forgets what is past its retention');
end;

create trigger audit_kept before delete on audit
when old.seq > coalesce((select r.seq from reached r where r.name = 'audit'), 0)
begin
  select raise(abort, 'the audit log only grows: delete is refused; cleanup forgets what is past its retention');
end;

create table request (
  scope text not null,
  key text not null,
  digest blob not null,
  state text not null check (state in ('running', 'done')),
  token blob not null,                     -- whoever answers it
  status integer,
  headers blob,                            -- JSON
  body blob,
  at integer not null,
  primary key (scope, key)
) strict, without rowid;
create index request_at on request (at);

create table task_log (
  id blob not null,
  fence integer not null,
  position integer not null,               -- counted by the holder: written twice is written once
  at integer not null,
  level text not null,
  logger text not null,
  message text not null,
  seen integer,                            -- on the last line of an attempt that said too much: how many lines it had
  primary key (id, fence, position)
) strict, without rowid;

create table operation (
  id blob primary key,                     -- UUIDv7, made by the client
  action text not null,
  filter text not null,
  rate real,                               -- tasks a second; null: as fast as it goes
  state text not null check (state in ('pending', 'running', 'done', 'failed', 'cancelled')),
  matched integer,
  capped integer not null default 0,       -- 1: at least so many match
  done integer not null default 0,
  failed integer not null default 0,
  position text,
  actor text not null,
  tenant text,
  reason text,
  error text,
  created_at integer not null,
  ended_at integer,
  grant_id blob,                           -- whoever drives it
  lease_timeout integer
) strict, without rowid;
create index operation_open on operation (id) where state in ('pending', 'running');

-- Each bucket counts what was shorter than its bound and not shorter than the one before.
create table rollup (
  minute integer not null,
  queue text not null,
  type text not null,
  tenant text not null,
  done integer not null,
  failed integer not null,
  cancelled integer not null,
  retried integer not null,
  lost integer not null,
  wait text not null,
  wait_seconds real not null,
  run text not null,
  run_seconds real not null,
  primary key (minute, queue, type, tenant)
) strict, without rowid;
